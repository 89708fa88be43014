//! Power control of nodes: the actions of the power program, and its last failure.

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// What the power program of a site does with a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PowerAction {
    /// Reports the power state.
    Status,
    /// Makes sure that nothing runs on the node any more.
    Fence,
    /// Resets the node at once.
    Reset,
    /// Reboots the node, in order if it can.
    Reboot,
    Off,
    On,
}

impl PowerAction {
    pub const ALL: [PowerAction; 6] = [
        PowerAction::Status,
        PowerAction::Fence,
        PowerAction::Reset,
        PowerAction::Reboot,
        PowerAction::Off,
        PowerAction::On,
    ];

    /// The first argument of the power program.
    pub fn as_str(self) -> &'static str {
        match self {
            PowerAction::Status => "status",
            PowerAction::Fence => "fence",
            PowerAction::Reset => "reset",
            PowerAction::Reboot => "reboot",
            PowerAction::Off => "off",
            PowerAction::On => "on",
        }
    }

    /// True if the jobs on the node end by it.
    pub fn ends_jobs(self) -> bool {
        !matches!(self, PowerAction::Status | PowerAction::On)
    }
}

/// The power program failed for a node. It proves nothing about the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PowerFailure {
    pub action: PowerAction,
    /// Its exit and its last output.
    pub why: String,
    /// Failures of this action in a row.
    pub times: u32,
    /// Time of the last one.
    pub since: Timestamp,
}

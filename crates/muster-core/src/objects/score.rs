//! The score of a placement: its cost, term by term. `muster why` prints the terms.

use serde::{Deserialize, Serialize};

/// The score of a placement: weighted terms in thousandths of a device; the lowest sum wins.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Score {
    /// Terms with zero cost are omitted.
    pub terms: Vec<Term>,
    /// Number of node classes compared; a class has the same kind and the same free resources.
    pub compared: u32,
}

/// One term of a score.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Term {
    pub name: TermName,
    /// Weighted cost in thousandths of a device.
    pub milli: i64,
}

/// The name of a score term.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TermName {
    /// Expected fragmentation: the rest of partly used devices, stranded devices (without cores or memory beside
    /// them), lost slots for tasks of several GPUs, devices of the wrong model, and the unused part of a MIG instance.
    Fragmentation,
    /// Slower links between the devices of a task than the best possible.
    Locality,
    /// Devices with a warning or degraded health.
    Health,
    Policy,
}

impl TermName {
    pub fn as_str(self) -> &'static str {
        match self {
            TermName::Fragmentation => "fragmentation",
            TermName::Locality => "locality",
            TermName::Health => "health",
            TermName::Policy => "policy",
        }
    }
}

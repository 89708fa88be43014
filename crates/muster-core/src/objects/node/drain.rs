//! What follows the drain of a node: a deadline for the jobs that still run, and a reboot once it is empty.

use serde::{Deserialize, Serialize};

use crate::objects::node::Service;
use crate::time::Timestamp;

/// What follows a drain. A later change of service replaces it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drain {
    /// Jobs that still run at this time are stopped and queue again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reboot: Option<Reboot>,
}

/// A node reboots once no job holds anything of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reboot {
    /// The boot that ends. The node has rebooted when its agent registers with another boot id.
    pub boot_id: String,
    /// Its service after that: a node that was held or drained before stays so.
    pub then: Service,
    /// The power program has confirmed the reboot, so it is not run again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub confirmed: bool,
}

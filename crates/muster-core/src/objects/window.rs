//! Windows: nodes booked by operators for a time, for maintenance or for one tenant (in Slurm: an advance reservation).
//!
//! Before a window begins, only jobs whose time limit ends before it start on its nodes. While it lasts, only jobs of
//! its tenant start there, or none if it is for maintenance. Running jobs are not stopped.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::ids::{NodeId, TenantId};
use crate::time::Timestamp;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    pub name: String,
    pub nodes: BTreeSet<NodeId>,
    pub from: Timestamp,
    pub until: Timestamp,
    /// The tenant, with its children, that may use the nodes; `None` for maintenance.
    #[serde(default)]
    pub tenant: Option<TenantId>,
    #[serde(default)]
    pub why: String,
    #[serde(default)]
    pub by: String,
}

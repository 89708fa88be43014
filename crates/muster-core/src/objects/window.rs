//! Windows: times in which nodes are booked, for maintenance or for one tenant.
//!
//! Before a window begins, only jobs that are sure to be over by then start on its nodes; while it lasts, nobody but the
//! tenant it is for, if it is for one. Jobs that run already are left alone.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::ids::{NodeId, TenantId};
use crate::time::Timestamp;

/// Nodes that are booked for a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// What people call it.
    pub name: String,
    pub nodes: BTreeSet<NodeId>,
    pub from: Timestamp,
    pub until: Timestamp,
    /// For whom, with all below it; for nobody when it is for maintenance.
    #[serde(default)]
    pub tenant: Option<TenantId>,
    #[serde(default)]
    pub why: String,
    #[serde(default)]
    pub by: String,
}

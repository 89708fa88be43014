//! Windows: times in which nodes are booked, for maintenance or for one tenant.
//!
//! Before a window begins, only jobs that are sure to be over by then start on its nodes; while it lasts, nobody but the
//! tenant it is for, if it is for one. Jobs that run already are left alone.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::guarantee::is_below;
use crate::ids::{NodeId, TenantId};
use crate::job::Job;
use crate::state::State;
use crate::time::Timestamp;

/// Nodes that are booked for a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// What people call it.
    pub name: String,
    /// Which nodes.
    pub nodes: BTreeSet<NodeId>,
    /// From when.
    pub from: Timestamp,
    /// Until when.
    pub until: Timestamp,
    /// For whom, with all below it; for nobody when it is for maintenance.
    #[serde(default)]
    pub tenant: Option<TenantId>,
    /// Why.
    #[serde(default)]
    pub why: String,
    /// Who booked it.
    #[serde(default)]
    pub by: String,
}

impl Window {
    /// Whether a tenant may use it.
    pub fn is_open_to(&self, state: &State, tenant: &TenantId) -> bool {
        self.tenant.as_ref().is_some_and(|top| is_below(state, tenant, top))
    }
}

impl State {
    /// Whether no window is in the way of a job that starts on a node now.
    pub(crate) fn windows_admit(&self, job: &Job, node: &NodeId, now: Timestamp) -> bool {
        let over_by = job.spec.time_limit_ms.map(|limit| now.plus(limit).plus(self.settings.stop_grace_ms));
        let against = |window: &&Window| {
            window.nodes.contains(node) && !window.is_open_to(self, &job.spec.tenant) && window.until > now
        };
        self.windows.values().filter(against).all(|window| over_by.is_some_and(|end| end <= window.from))
    }
}

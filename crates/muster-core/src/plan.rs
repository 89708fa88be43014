//! Step 7, plan: draw up what should run next, and say of everyone else why they wait.
//!
//! The planner proposes and changes nothing; `AdoptPlan` checks each gang again against the state of now.

use serde::{Deserialize, Serialize};

use crate::ids::{JobId, NodeId};
use crate::job::PlacedTask;
use crate::time::Timestamp;

/// What should happen next.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Plan {
    /// How many events the planner had seen.
    pub snapshot: u64,
    /// The planner's `now`.
    pub now: Timestamp,
    /// Gangs to start, in order.
    pub starts: Vec<Start>,
    /// Gangs to make room for, in order.
    pub claims: Vec<MakeRoom>,
}

impl Plan {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty() && self.claims.is_empty()
    }
}

/// A gang to start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// Which job.
    pub job: JobId,
    /// Which task sits where.
    pub tasks: Vec<PlacedTask>,
}

/// Running jobs to displace so that another fits afterwards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MakeRoom {
    /// For which job.
    pub job: JobId,
    /// Where it will fit.
    pub node: NodeId,
    /// On which devices.
    pub gpus: Vec<u8>,
    /// Who must go, least loss first.
    pub victims: Vec<JobId>,
}

/// What is missing for a shape on every node, and the smallest change that would make it feasible.
pub fn infeasible(_capacity: &crate::capacity::Capacity, _shape: &crate::queue::Shape) -> (String, String) {
    (String::new(), String::new())
}

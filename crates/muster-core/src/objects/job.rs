//! Jobs: the request (`JobSpec`), the live job with its phase (`Job`), and each execution (`Attempt`).

mod attempt;
mod outcome;
mod placed_task;
mod sharing;
mod spec;

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::JobId;
use crate::objects::demand::Demand;
use crate::objects::start_range::StartRange;
use crate::time::Timestamp;

pub use attempt::{Attempt, NodeReport, NodeReports, SelfFence, StopCause, Stopping, Unkillable};
pub use outcome::{Exit, Outcome};
pub use placed_task::PlacedTask;
pub use spec::{
    CheckpointRule, Dependency, DependencyWhen, EarlySignal, JobSpec, Mount, OnNodeLost, Resources, RestartRule, Run,
    TaskGroup, Topology,
};

/// A live job: waiting, running or ending.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    pub id: JobId,
    pub spec: Arc<JobSpec>,
    /// When it was accepted. Order within a priority and aging count from here, also after preemption.
    pub submitted_at: Timestamp,
    pub phase: Phase,
    /// Attempts so far.
    pub attempts: u32,
    /// Attempts that failed by themselves.
    #[serde(default)]
    pub restarts: u32,
    /// Attempts that were preempted.
    #[serde(default)]
    pub preemptions: u32,
    /// Attempts that ended for another external reason: a lost node, an operator's requeue, a refused launch.
    #[serde(default)]
    pub requeues: u32,
    /// Runtime of earlier attempts whose work was not lost.
    #[serde(default)]
    pub ran_ms: i64,
    /// Sequence number among the jobs of the same owner with the same number of GPUs.
    #[serde(default)]
    pub class_number: u64,
    /// Not placed before this time: its start time, or the backoff after a failed launch.
    #[serde(default)]
    pub wakes_at: Option<Timestamp>,
    /// Dependencies that are not met yet.
    #[serde(default)]
    pub open_dependencies: BTreeSet<Dependency>,
    /// The first forecast of its start in this wait. Boxed, because only a few of many waiting jobs have one.
    #[serde(default)]
    pub first_forecast: Option<Box<StartRange>>,
}

/// The phase of a live job. Ended jobs leave the state; `State::ended` keeps their outcome for a day.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "kebab-case")]
pub enum Phase {
    /// Waits in the queue.
    Queued {
        /// Its last attempt was preempted.
        preempted: bool,
        /// Its last attempt lost a node: it precedes new jobs of its priority.
        #[serde(default)]
        returning: bool,
        since: Timestamp,
    },
    /// Waits until somebody releases it.
    Held {
        /// The actor that holds it.
        by: String,
        why: String,
        since: Timestamp,
    },
    /// Has an attempt: starting, running, stopping, or on an unreachable node.
    Active(Box<Attempt>),
}

impl Job {
    pub fn attempt(&self) -> Option<&Attempt> {
        match &self.phase {
            Phase::Active(attempt) => Some(attempt),
            Phase::Queued { .. } | Phase::Held { .. } => None,
        }
    }

    /// The quota usage of its attempt; zero while it waits.
    pub fn held(&self) -> Demand {
        self.attempt().map(|attempt| attempt.demand(&self.spec)).unwrap_or_default()
    }

    /// True if it waits in the queue: not held and without an attempt.
    pub fn is_queued(&self) -> bool {
        matches!(self.phase, Phase::Queued { .. })
    }

    /// True if it may be placed now: queued, past its wake-up time and without open dependencies.
    pub fn is_ready(&self) -> bool {
        self.is_queued() && self.wakes_at.is_none() && self.open_dependencies.is_empty()
    }

    /// The phase as users see it; an attempt is `Starting`, `Running` or `Stopping`.
    pub fn phase_name(&self) -> &'static str {
        match &self.phase {
            Phase::Queued { .. } => "Queued",
            Phase::Held { .. } => "Held",
            Phase::Active(attempt) => attempt.phase_name(),
        }
    }
}

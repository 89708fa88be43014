//! What was asked (`JobSpec`), what became of it (`Job`), and each try at running it (`Attempt`).

mod attempt;
mod outcome;
mod sharing;
mod spec;

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::JobId;
use crate::objects::demand::Demand;
use crate::objects::start_range::StartRange;
use crate::time::Timestamp;

pub use attempt::{Attempt, NodeReport, NodeReports, PlacedTask, StopCause, Stopping};
pub use outcome::{Exit, Outcome};
pub use spec::{
    CheckpointRule, Dependency, DependencyWhen, JobSpec, OnNodeLost, Resources, RestartRule, Run, TaskGroup,
    Topology,
};

/// A job that is alive: waiting, running, or ending.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Its name for ever.
    pub id: JobId,
    pub spec: Arc<JobSpec>,
    /// When it was accepted. Order inside a priority, and aging, count from here, also after preemption.
    pub submitted_at: Timestamp,
    pub phase: Phase,
    /// How many attempts were made.
    pub attempts: u32,
    /// How many of them failed by themselves.
    #[serde(default)]
    pub restarts: u32,
    /// How many were preempted.
    #[serde(default)]
    pub preemptions: u32,
    /// How many ended for other outside reasons: a lost node, an operator's requeue, a refused launch.
    #[serde(default)]
    pub requeues: u32,
    /// How long it ran in earlier attempts, as far as that work was not lost.
    #[serde(default)]
    pub ran_ms: i64,
    /// Its number among those of its kind.
    #[serde(default)]
    pub class_number: u64,
    /// Asleep until this moment: its start time, or the pause after a failed launch.
    #[serde(default)]
    pub wakes_at: Option<Timestamp>,
    /// Dependencies that are still open.
    #[serde(default)]
    pub open_dependencies: BTreeSet<Dependency>,
    /// When it was said that it would start, the first time that was said of this wait. In a box, because it is said of
    /// few of many that wait.
    #[serde(default)]
    pub first_forecast: Option<Box<StartRange>>,
}

/// Where a live job stands. Ended jobs leave the state; `State::ended` remembers their outcome for a day.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "kebab-case")]
pub enum Phase {
    /// Waits for its turn.
    Queued {
        /// It was running and lost its place.
        preempted: bool,
        /// It was running and lost a node: it goes before new work of its priority.
        #[serde(default)]
        returning: bool,
        since: Timestamp,
    },
    /// Waits for a person to release it.
    Held {
        /// Who or what holds it.
        by: String,
        why: String,
        since: Timestamp,
    },
    /// Has an attempt: starting, running, stopping, or lost from sight.
    Active(Box<Attempt>),
}

impl Job {
    /// The attempt under way, if there is one.
    pub fn attempt(&self) -> Option<&Attempt> {
        match &self.phase {
            Phase::Active(attempt) => Some(attempt),
            Phase::Queued { .. } | Phase::Held { .. } => None,
        }
    }

    /// What its attempt takes from its tenant's quota; nothing while it waits.
    pub fn held(&self) -> Demand {
        self.attempt().map(|attempt| attempt.demand(&self.spec)).unwrap_or_default()
    }

    /// Whether it waits in the queue: not held and without an attempt.
    pub fn is_queued(&self) -> bool {
        matches!(self.phase, Phase::Queued { .. })
    }

    /// Whether it could be placed now: it waits, awake and without open dependencies.
    pub fn is_ready(&self) -> bool {
        self.is_queued() && self.wakes_at.is_none() && self.open_dependencies.is_empty()
    }

    /// The fine word of the phase, as people read it.
    pub fn phase_name(&self) -> &'static str {
        match &self.phase {
            Phase::Queued { .. } => "Queued",
            Phase::Held { .. } => "Held",
            Phase::Active(attempt) => attempt.phase_name(),
        }
    }
}

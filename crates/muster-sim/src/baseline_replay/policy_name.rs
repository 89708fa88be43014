//! The scheduling policies of the queue benchmark by name.

use super::policies::policy_by_name;
use super::{PlannerPolicy, QueuePolicy, ReplayOutcome, TraceJob, replay};

/// A scheduling policy by its name on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum QueuePolicyName {
    Fifo,
    Sjf,
    Srtf,
    Srsf,
    Tiresias,
    Las,
    Easy,
    /// The muster planner with the objective `fast`.
    Muster,
    /// The muster planner with the objective `fast` and known durations.
    MusterKnown,
}

impl QueuePolicyName {
    pub const ALL: [QueuePolicyName; 9] = [
        QueuePolicyName::Fifo,
        QueuePolicyName::Sjf,
        QueuePolicyName::Srtf,
        QueuePolicyName::Srsf,
        QueuePolicyName::Tiresias,
        QueuePolicyName::Las,
        QueuePolicyName::Easy,
        QueuePolicyName::Muster,
        QueuePolicyName::MusterKnown,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            QueuePolicyName::Fifo => "fifo",
            QueuePolicyName::Sjf => "sjf",
            QueuePolicyName::Srtf => "srtf",
            QueuePolicyName::Srsf => "srsf",
            QueuePolicyName::Tiresias => "tiresias",
            QueuePolicyName::Las => "las",
            QueuePolicyName::Easy => "easy",
            QueuePolicyName::Muster => "muster",
            QueuePolicyName::MusterKnown => "muster-known",
        }
    }

    /// One line of help.
    pub fn about(self) -> &'static str {
        match self {
            QueuePolicyName::Fifo => "First in, first out, without backfill",
            QueuePolicyName::Sjf => "Shortest job that fits, without preemption",
            QueuePolicyName::Srtf => "Shortest remaining time first",
            QueuePolicyName::Srsf => "Shortest remaining service (GPU time) first",
            QueuePolicyName::Tiresias => "Least attained service in three queues",
            QueuePolicyName::Las => "Least attained service",
            QueuePolicyName::Easy => "First in, first out, with EASY backfill",
            QueuePolicyName::Muster => "The planner of muster with the objective `fast`; it learns runtimes",
            QueuePolicyName::MusterKnown => "The same with known runtimes",
        }
    }

    /// The policy's name in the published results.
    pub fn published_name(self) -> Option<&'static str> {
        match self {
            QueuePolicyName::Srtf => Some("SRTF"),
            QueuePolicyName::Srsf => Some("SRSF"),
            QueuePolicyName::Tiresias => Some("Tiresias"),
            _ => None,
        }
    }

    /// Replay a trace under this policy.
    pub fn replay(self, jobs: &[TraceJob], nodes: usize) -> ReplayOutcome {
        let planner = || -> Box<dyn QueuePolicy> { Box::new(PlannerPolicy::new(self == QueuePolicyName::MusterKnown)) };
        let mut policy = policy_by_name(self.as_str()).unwrap_or_else(planner);
        replay(jobs, nodes, &mut *policy)
    }
}

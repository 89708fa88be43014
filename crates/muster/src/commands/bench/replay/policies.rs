//! The policies by their names.

use clap::ValueEnum;
use muster_sim::baseline_replay::policies::policy_by_name;
use muster_sim::baseline_replay::{ReplayOutcome, QueuePolicy, PlannerPolicy, TraceJob, replay};

/// A policy by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum QueuePolicyName {
    /// In the order of arrival, nobody passes
    Fifo,
    /// The shortest that fits; nobody stops
    Sjf,
    /// The least time left
    Srtf,
    /// The least GPU time left
    Srsf,
    /// Least attained service in three queues
    Tiresias,
    /// Least attained service
    Las,
    /// In the order of arrival, who delays nobody passes
    Easy,
    /// The planner of this product with the objective `fast`, which learns how long jobs run
    Muster,
    /// The same, and it is told
    MusterKnown,
}

impl QueuePolicyName {
    /// All, in order.
    pub fn all() -> &'static [QueuePolicyName] {
        QueuePolicyName::value_variants()
    }

    /// What it is called here.
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

    /// What it is called where its numbers are published.
    pub fn published_name(self) -> Option<&'static str> {
        match self {
            QueuePolicyName::Srtf => Some("SRTF"),
            QueuePolicyName::Srsf => Some("SRSF"),
            QueuePolicyName::Tiresias => Some("Tiresias"),
            _ => None,
        }
    }

    /// Play a trace by it.
    pub fn replay(self, jobs: &[TraceJob], nodes: usize) -> ReplayOutcome {
        let product = || -> Box<dyn QueuePolicy> { Box::new(PlannerPolicy::new(self == QueuePolicyName::MusterKnown)) };
        let mut policy = policy_by_name(self.as_str()).unwrap_or_else(product);
        replay(jobs, nodes, &mut *policy)
    }
}

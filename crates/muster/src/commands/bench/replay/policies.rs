//! The policies by their names.

use clap::ValueEnum;
use muster_sim::replay::policies::named;
use muster_sim::replay::{Outcome, Policy, Product, TraceJob, replay};

/// A policy by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Name {
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

impl Name {
    /// All, in order.
    pub fn all() -> &'static [Name] {
        Name::value_variants()
    }

    /// What it is called here.
    pub fn text(self) -> &'static str {
        match self {
            Name::Fifo => "fifo",
            Name::Sjf => "sjf",
            Name::Srtf => "srtf",
            Name::Srsf => "srsf",
            Name::Tiresias => "tiresias",
            Name::Las => "las",
            Name::Easy => "easy",
            Name::Muster => "muster",
            Name::MusterKnown => "muster-known",
        }
    }

    /// What it is called where its numbers are published.
    pub fn published(self) -> Option<&'static str> {
        match self {
            Name::Srtf => Some("SRTF"),
            Name::Srsf => Some("SRSF"),
            Name::Tiresias => Some("Tiresias"),
            _ => None,
        }
    }

    /// Play a trace by it.
    pub fn replay(self, jobs: &[TraceJob], nodes: usize) -> Outcome {
        let product = || -> Box<dyn Policy> { Box::new(Product::new(self == Name::MusterKnown)) };
        let mut policy = named(self.text()).unwrap_or_else(product);
        replay(jobs, nodes, &mut *policy)
    }
}

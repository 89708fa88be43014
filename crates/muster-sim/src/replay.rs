//! Replay of a training queue: jobs come as they were recorded, run as gangs on nodes of 8 GPUs, and a policy says at
//! every event who runs from then on.
//!
//! The rules are those of the published runs (Zhao et al., "Multi-Resource Interleaving for Deep Learning Training",
//! SIGCOMM'22), for all policies alike. Events are arrivals, ends, and moments a policy asked for. At each of them every
//! running job is credited the time since the last event less the time it takes to start, whether it was restarted or
//! not; what is lost by that is counted. An end that nothing comes before is where it was foreseen.

mod engine;
mod nodes;
mod outcome;
pub mod policies;
mod product;

pub use engine::{Live, Policy, replay, replay_on};
pub use nodes::Nodes;
pub use outcome::Outcome;
pub use product::Product;

/// A job as it was recorded.
#[derive(Debug, Clone, PartialEq)]
pub struct TraceJob {
    /// GPUs it needs, all or none.
    pub gpus: u32,
    /// When it came.
    pub submit_s: f64,
    /// How long it runs on its GPUs.
    pub work_s: f64,
    /// How long it takes to start.
    pub overhead_s: f64,
    /// What it trains.
    pub model: String,
}

#[cfg(test)]
mod tests;

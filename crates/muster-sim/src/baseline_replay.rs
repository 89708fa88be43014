//! Baseline replay: the jobs of a training trace run as gangs on nodes of 8 GPUs, and a queue policy selects at
//! every event the jobs that run from then on.
//!
//! The rules are those of the published runs (Zhao et al., "Multi-Resource Interleaving for Deep Learning
//! Training", SIGCOMM'22), for all policies alike. Events are arrivals, ends, and times that a policy requests. At
//! each event every running job is credited the time since the last event less its start-up time, whether it was
//! restarted or not; the lost time is counted. A job with no event before its predicted end ends exactly then.

mod engine;
mod muri;
mod nodes;
mod outcome;
mod planner_policy;
pub mod policies;
mod policy_name;
mod results;

pub use engine::{LiveJob, QueuePolicy, replay, replay_on};
pub use muri::{MuriJob, MuriTraces, PublishedJct, WORK_FACTOR};
pub use nodes::UniformNodes;
pub use outcome::ReplayOutcome;
pub use planner_policy::PlannerPolicy;
pub use policy_name::QueuePolicyName;
pub use results::ReplayRow;

/// A recorded job.
#[derive(Debug, Clone, PartialEq)]
pub struct TraceJob {
    /// The size of the gang.
    pub gpus: u32,
    pub submit_s: f64,
    /// The runtime on its GPUs.
    pub work_s: f64,
    /// The start-up time.
    pub overhead_s: f64,
    pub model: String,
}

#[cfg(test)]
mod tests;

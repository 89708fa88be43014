//! Scheduling policies of `muster sim replay`, by name.

use clap::ValueEnum;
use muster_core::objects::settings::Objective;
use muster_sim::baseline_replay::policies::policy_by_name;
use muster_sim::job_log::LoggedJob;
use muster_sim::run_history::RunHistory;
use muster_sim::trace_replay::{ReplayAssumptions, ReplayCluster, ReplayProgress, replay_trace, replay_with_policy};

use crate::error::CliError;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SimPolicyName {
    /// The planner of muster with default settings
    Muster,
    /// The planner of muster with the objective `fast`
    MusterFast,
    /// First in, first out, without backfill
    Fifo,
    /// Shortest job first, without preemption
    Sjf,
    /// Shortest remaining time first
    Srtf,
    /// Shortest remaining service (GPU time) first
    Srsf,
    /// Least attained service in three queues
    Tiresias,
    /// Least attained service
    Las,
    /// First in, first out, with EASY backfill
    Easy,
}

impl SimPolicyName {
    pub fn as_str(self) -> &'static str {
        match self {
            SimPolicyName::Muster => "muster",
            SimPolicyName::MusterFast => "muster-fast",
            SimPolicyName::Fifo => "fifo",
            SimPolicyName::Sjf => "sjf",
            SimPolicyName::Srtf => "srtf",
            SimPolicyName::Srsf => "srsf",
            SimPolicyName::Tiresias => "tiresias",
            SimPolicyName::Las => "las",
            SimPolicyName::Easy => "easy",
        }
    }

    /// Replays the jobs of a log under this policy.
    pub fn replay(
        self,
        jobs: &[LoggedJob],
        cluster: &ReplayCluster,
        assumptions: ReplayAssumptions,
        watch: &mut dyn FnMut(ReplayProgress),
    ) -> Result<RunHistory, CliError> {
        let Some(mut policy) = policy_by_name(self.as_str()) else {
            let fast = self == SimPolicyName::MusterFast;
            let objective = if fast { Objective::Fast } else { assumptions.objective };
            return Ok(replay_trace(jobs, cluster, &ReplayAssumptions { objective, ..assumptions }, watch));
        };
        replay_with_policy(jobs, cluster, &mut *policy, watch).map_err(|error| {
            CliError::usage(format!("cannot replay with policy `{}`: {error}", self.as_str())).hint("`--policy muster`")
        })
    }
}

//! Who decides, by name.

use clap::ValueEnum;
use muster_core::objects::settings::Objective;
use muster_sim::baseline_replay::policies::policy_by_name;
use muster_sim::job_log::LoggedJob;
use muster_sim::run_history::RunHistory;
use muster_sim::trace_replay::{
    ReplayAssumptions, ReplayCluster, ReplayProgress, replay_trace, replay_with_policy,
};

use crate::error::CliError;

/// Who decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SimPolicyName {
    /// The planner of this product as it is by default
    Muster,
    /// The same with the objective `fast`
    MusterFast,
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
}

impl SimPolicyName {
    /// What it is called here.
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

    /// Let the jobs of a log meet it.
    pub fn replay(
        self,
        jobs: &[LoggedJob],
        site: &ReplayCluster,
        assumptions: ReplayAssumptions,
        watch: &mut dyn FnMut(ReplayProgress),
    ) -> Result<RunHistory, CliError> {
        let Some(mut policy) = policy_by_name(self.as_str()) else {
            let fast = self == SimPolicyName::MusterFast;
            let objective = if fast { Objective::Fast } else { assumptions.objective };
            return Ok(replay_trace(jobs, site, &ReplayAssumptions { objective, ..assumptions }, watch));
        };
        replay_with_policy(jobs, site, &mut *policy, watch).map_err(|error| {
            CliError::usage(format!("cannot play `{}`: {error}", self.as_str())).hint("`--policy muster`")
        })
    }
}

//! Who decides, by name.

use clap::ValueEnum;
use muster_core::settings::Objective;
use muster_sim::history::History;
use muster_sim::jobs::LoggedJob;
use muster_sim::rehearsal::{Assumptions, Progress, Site, against, rehearse};
use muster_sim::replay::policies::named;

use crate::error::CliError;

/// Who decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Name {
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

impl Name {
    /// What it is called here.
    pub fn text(self) -> &'static str {
        match self {
            Name::Muster => "muster",
            Name::MusterFast => "muster-fast",
            Name::Fifo => "fifo",
            Name::Sjf => "sjf",
            Name::Srtf => "srtf",
            Name::Srsf => "srsf",
            Name::Tiresias => "tiresias",
            Name::Las => "las",
            Name::Easy => "easy",
        }
    }

    /// Let the jobs of a log meet it.
    pub fn play(
        self,
        jobs: &[LoggedJob],
        site: &Site,
        assumptions: Assumptions,
        watch: &mut dyn FnMut(Progress),
    ) -> Result<History, CliError> {
        let Some(mut policy) = named(self.text()) else {
            let fast = self == Name::MusterFast;
            let objective = if fast { Objective::Fast } else { assumptions.objective };
            return Ok(rehearse(jobs, site, &Assumptions { objective, ..assumptions }, watch));
        };
        against(jobs, site, &mut *policy, watch).map_err(|error| {
            CliError::usage(format!("cannot play `{}`: {error}", self.text())).hint("`--policy muster`")
        })
    }
}

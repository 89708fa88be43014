//! Who decides, by name.

use clap::ValueEnum;
use muster_core::settings::Objective;
use muster_sim::history::History;
use muster_sim::jobs::LoggedJob;
use muster_sim::rehearsal::{Assumptions, Progress, Site, against, rehearse};
use muster_sim::replay::Policy;
use muster_sim::replay::policies::{Easy, Fifo, Las, Sjf, Srsf, Srtf, Tiresias};

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
        let mut policy: Box<dyn Policy> = match self {
            Name::Muster => return Ok(rehearse(jobs, site, &assumptions, watch)),
            Name::MusterFast => {
                let assumptions = Assumptions { objective: Objective::Fast, ..assumptions };
                return Ok(rehearse(jobs, site, &assumptions, watch));
            }
            Name::Fifo => Box::new(Fifo),
            Name::Sjf => Box::new(Sjf),
            Name::Srtf => Box::new(Srtf),
            Name::Srsf => Box::new(Srsf),
            Name::Tiresias => Box::new(Tiresias::default()),
            Name::Las => Box::new(Las),
            Name::Easy => Box::new(Easy),
        };
        against(jobs, site, &mut *policy, watch).map_err(|error| {
            CliError::usage(format!("cannot play `{}`: {error}", self.text())).hint("`--policy muster`")
        })
    }
}

//! How many GPUs small jobs need that share them in one manner or another, and how much slower they get.
//!
//! All jobs are to run at once on H200s. `demand.rs` says who comes and what they ask for, `policies.rs` and `planner.rs`
//! who sits where, `harm.rs` how much slower each job is there than alone: by pairs that were measured, and by a rule
//! where nothing was.

mod demand;
mod harm;
mod planner;
mod policies;
mod report;

use std::num::NonZeroUsize;
use std::path::PathBuf;

use self::demand::Wall;
use self::harm::Pairs;
use self::report::Row;
use super::traces;
use crate::commands::{Code, Ending};
use crate::error::CliError;
use crate::output::{self, Format, ListArgs};

/// `muster bench share`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The folder of traces; the one read is `h200-interference` in it [env: MUSTER_TRACES] [default: ../shared/traces]
    #[arg(long, value_name = "DIR")]
    traces: Option<PathBuf>,
    /// Jobs that are to run at once
    #[arg(long, value_name = "N", default_value = "200")]
    jobs: NonZeroUsize,
    /// Which jobs come, and in which order: the same seed, the same jobs
    #[arg(long, value_name = "N", default_value_t = 7)]
    seed: u64,
    #[command(flatten)]
    list: ListArgs,
}

/// Seat the jobs in each manner, and print a line for each.
pub fn run(args: Args) -> Ending {
    let pairs = Pairs::read(&traces::folder(args.traces))?;
    let rows = rows(&pairs, args.jobs.get(), args.seed)?;
    output::list(&args.list, false, &report::COLUMNS, rows.clone(), &rows)?;
    if args.list.show.output == Format::Table {
        output::talk(report::NOTE);
    }
    Ok(Code::DONE)
}

fn rows(pairs: &Pairs, count: usize, seed: u64) -> Result<Vec<Row>, CliError> {
    let jobs = demand::jobs(count, seed);
    let (layout, partitioned) = policies::partitioned(&jobs, pairs);
    let none = String::new();
    let seated = [
        ("whole", none.clone(), policies::whole(&jobs)),
        ("mig-static", layout, partitioned),
        ("time-slice", none.clone(), policies::in_turns(&jobs)),
        ("mps", none.clone(), policies::side_by_side(&jobs)),
        ("muster-mps", none.clone(), planner::fewest(&jobs, Wall::Nobody)?),
        ("muster", none, planner::fewest(&jobs, Wall::AsAsked)?),
    ];
    Ok(seated
        .into_iter()
        .map(|(policy, layout, devices)| Row::of(policy, layout, &devices, count, pairs))
        .collect())
}

#[cfg(test)]
mod tests;

//! How many GPUs small jobs need that share them in one manner or another, and how much slower they get.
//!
//! All jobs are to run at once on H200s. `demand.rs` says who comes and what they ask for, `policies.rs` and `planner.rs`
//! who sits where, `harm.rs` how much slower each job is there than alone: by pairs that were measured, and by a rule
//! where nothing was.

mod demand;
mod interference;
mod planner;
mod policies;
mod report;

use std::num::NonZeroUsize;
use std::path::PathBuf;

use self::demand::IsolationMode;
use self::interference::InterferenceTable;
use self::report::SharingRow;
use super::traces;
use crate::commands::{ExitStatus, CommandResult};
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
pub fn run(args: Args) -> CommandResult {
    let pairs = InterferenceTable::read(&traces::traces_dir(args.traces))?;
    let rows = sharing_rows(&pairs, args.jobs.get(), args.seed)?;
    output::list(&args.list, false, &report::COLUMNS, rows.clone(), &rows)?;
    if args.list.show.output == Format::Table {
        output::print_stderr(report::TABLE_NOTE);
    }
    Ok(ExitStatus::SUCCESS)
}

fn sharing_rows(pairs: &InterferenceTable, count: usize, seed: u64) -> Result<Vec<SharingRow>, CliError> {
    let jobs = demand::random_jobs(count, seed);
    let (layout, partitioned) = policies::best_mig_layout(&jobs, pairs);
    let none = String::new();
    let seated = [
        ("whole", none.clone(), policies::whole_gpus(&jobs)),
        ("mig-static", layout, partitioned),
        ("time-slice", none.clone(), policies::time_sliced(&jobs)),
        ("mps", none.clone(), policies::mps_unlimited(&jobs)),
        ("muster-mps", none.clone(), planner::place_on_fewest_gpus(&jobs, IsolationMode::Ignored)?),
        ("muster", none, planner::place_on_fewest_gpus(&jobs, IsolationMode::Requested)?),
    ];
    Ok(seated
        .into_iter()
        .map(|(policy, layout, devices)| SharingRow::of_placement(policy, layout, &devices, count, pairs))
        .collect())
}

#[cfg(test)]
mod tests;

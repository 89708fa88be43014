//! `muster bench share`: GPUs needed and slowdown of small jobs that share GPUs, by the model in
//! `muster_sim::gpu_sharing`.

mod report;

use std::num::NonZeroUsize;
use std::path::PathBuf;

use muster_sim::gpu_sharing::{InterferenceTable, sharing_rows};

use super::traces;
use crate::error::{CliError, CommandResult, ExitStatus};
use crate::output::{self, Format, ListArgs};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The traces directory; its `h200-interference` is read [env: MUSTER_TRACES] [default: ../shared/traces]
    #[arg(long, value_name = "DIR")]
    traces: Option<PathBuf>,
    /// Jobs that run at once
    #[arg(long, value_name = "N", default_value = "200")]
    jobs: NonZeroUsize,
    /// Seed of the jobs and their order: the same seed gives the same jobs
    #[arg(long, value_name = "N", default_value_t = 7)]
    seed: u64,
    #[command(flatten)]
    list: ListArgs,
}

/// Print a row for each sharing policy.
pub fn run(args: Args) -> CommandResult {
    let table = InterferenceTable::read(&traces::traces_dir(args.traces))?;
    let rows = sharing_rows(&table, args.jobs.get(), args.seed).map_err(|error| CliError::failed(error.to_string()))?;
    output::list(&args.list, false, &report::COLUMNS, rows.clone(), &rows)?;
    if args.list.show.output == Format::Table {
        output::print_stderr(report::TABLE_NOTE);
    }
    Ok(ExitStatus::SUCCESS)
}

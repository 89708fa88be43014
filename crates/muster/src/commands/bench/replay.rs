//! How soon training jobs are done under policies of scheduling, on recorded queues.
//!
//! The rules are those of the published runs (Zhao et al., "Multi-Resource Interleaving for Deep Learning Training",
//! SIGCOMM'22): 8 nodes of 8 GPUs, and the same time to start for every policy.

mod policies;
mod report;
mod trace;

use std::path::PathBuf;

use super::traces;
use crate::commands::{Code, Ending};
use crate::error::{CliError, Exit};
use crate::output::{self, ListArgs};
use policies::Name;
use report::Row;
use trace::Folder;

/// Nodes of the published runs.
const NODES: usize = 8;

/// `muster bench replay`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The folder of traces; files are read from `muri` in it [env: MUSTER_TRACES] [default: ../shared/traces]
    #[arg(long, value_name = "DIR")]
    traces: Option<PathBuf>,
    /// Only these traces, for example `trace1,trace3_pr`; any file there, not only those that figures are published for
    #[arg(long, value_name = "NAME", value_delimiter = ',', num_args = 1..)]
    trace: Vec<String>,
    /// Only these policies
    #[arg(long, value_name = "NAME", value_delimiter = ',', num_args = 1..)]
    policy: Vec<Name>,
    #[command(flatten)]
    list: ListArgs,
}

/// Replay, and print a line for each trace and policy.
pub fn run(args: Args) -> Ending {
    let folder = Folder::open(&traces::folder(args.traces))?;
    let published = folder.published()?;
    let policies = if args.policy.is_empty() { Name::all() } else { &args.policy };
    let (mut lines, mut rows) = (Vec::new(), Vec::new());
    for name in chosen(&folder, args.trace)? {
        let jobs = folder.jobs(&name)?;
        for policy in policies {
            let row = Row::of(&name, *policy, &policy.replay(&jobs, NODES));
            lines.push(report::measured(&row, *policy, &published));
            rows.push(row);
        }
        if args.policy.is_empty() {
            lines.extend(report::others(&name, &published));
        }
    }
    output::list(&args.list, false, &report::COLUMNS, lines, &rows)?;
    Ok(Code::DONE)
}

/// The traces that were asked for, else all that figures are published for.
fn chosen(folder: &Folder, asked: Vec<String>) -> Result<Vec<String>, CliError> {
    if asked.is_empty() {
        return folder.with_figures();
    }
    let known = folder.traces()?;
    if let Some(name) = asked.iter().find(|name| !known.contains(name)) {
        return Err(CliError::new(Exit::NotFound, format!("there is no trace `{name}`"))
            .hint(format!("one of {}", known.join(", "))));
    }
    Ok(asked)
}

//! `muster bench replay`: scheduling policies by job completion time on the Muri traces.
//!
//! The rules are those of the published runs (Zhao et al., "Multi-Resource Interleaving for Deep Learning Training",
//! SIGCOMM'22): 8 nodes of 8 GPUs, and the same start overheads for every policy. `muster_sim::baseline_replay` has the
//! engine and the policies.

mod report;

use std::path::PathBuf;

use muster_sim::baseline_replay::{MuriTraces, QueuePolicyName, ReplayRow};

use super::named_values::named;
use super::traces;
use crate::error::{CliError, CommandResult, Exit, ExitStatus};
use crate::output::{self, ListArgs};

/// Nodes of the published runs.
const CLUSTER_NODES: usize = 8;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The traces directory; its `muri` is read [env: MUSTER_TRACES] [default: ../shared/traces]
    #[arg(long, value_name = "DIR")]
    traces: Option<PathBuf>,
    /// Only these traces, for example `trace1,trace3_pr`, with or without published figures; otherwise all with them
    #[arg(long, value_name = "NAME", value_delimiter = ',', num_args = 1..)]
    trace: Vec<String>,
    /// Only these policies
    #[arg(
        long, value_name = "NAME", value_delimiter = ',', num_args = 1..,
        value_parser = named(&QueuePolicyName::ALL, QueuePolicyName::as_str, QueuePolicyName::about)
    )]
    policy: Vec<QueuePolicyName>,
    #[command(flatten)]
    list: ListArgs,
}

/// Print a row for each trace and policy.
pub fn run(args: Args) -> CommandResult {
    let traces = MuriTraces::open(&traces::traces_dir(args.traces))?;
    let published = traces.published()?;
    let policies = if args.policy.is_empty() { &QueuePolicyName::ALL[..] } else { &args.policy };
    let (mut lines, mut rows) = (Vec::new(), Vec::new());
    for name in selected_traces(&traces, args.trace)? {
        let jobs = traces.jobs(&name)?;
        for policy in policies {
            let row = ReplayRow::of_outcome(&name, *policy, &policy.replay(&jobs, CLUSTER_NODES));
            lines.push(report::measured_line(&row, *policy, &published));
            rows.push(row);
        }
        if args.policy.is_empty() {
            lines.extend(report::published_lines(&name, &published));
        }
    }
    output::list(&args.list, false, &report::COLUMNS, lines, &rows)?;
    Ok(ExitStatus::SUCCESS)
}

/// The traces named by the flag, else all with published figures.
fn selected_traces(traces: &MuriTraces, named: Vec<String>) -> Result<Vec<String>, CliError> {
    if named.is_empty() {
        return Ok(traces.published_traces()?);
    }
    let known = traces.traces()?;
    if let Some(name) = named.iter().find(|name| !known.contains(name)) {
        return Err(CliError::new(Exit::NotFound, format!("there is no trace `{name}`"))
            .hint(format!("one of {}", known.join(", "))));
    }
    Ok(named)
}

//! How much of a cluster policies of placement fill, on recorded pods.
//!
//! The rules are those of the published runs (Weng et al., "Beware of Fragmentation", ATC'23): pods come one at a time
//! and stay until 130 % of all GPUs have been asked for; what counts is how much is allocated then.

mod cluster;
mod policies;
mod policy;
mod replay;
mod report;
mod seeds;
mod trace;
mod typical;

use std::path::PathBuf;

use super::traces;
use crate::commands::{Code, Ending};
use crate::error::{CliError, Exit};
use crate::output::{self, ListArgs};
use policies::Name;
use replay::{Outcome, Pods};
use seeds::Seeds;
use trace::{Trace, Workload};

/// `muster bench placement`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The folder of traces; the one read is `openb` in it [env: MUSTER_TRACES] [default: ../shared/traces]
    #[arg(long, value_name = "DIR")]
    traces: Option<PathBuf>,
    /// Only these workloads, for example `default,cpu050`
    #[arg(long, value_name = "NAME", value_delimiter = ',', num_args = 1..)]
    workload: Vec<String>,
    /// Only these policies
    #[arg(long, value_name = "NAME", value_delimiter = ',', num_args = 1..)]
    policy: Vec<Name>,
    /// Only these orders of arrival, for example `42-51`
    #[arg(long, value_name = "SEEDS")]
    seeds: Option<Seeds>,
    #[command(flatten)]
    list: ListArgs,
}

/// Replay, and print a line for each workload and policy.
pub fn run(args: Args) -> Ending {
    let trace = Trace::open(&traces::folder(args.traces))?;
    let policies = if args.policy.is_empty() { Name::all() } else { &args.policy };
    let published = trace.published()?;
    let (mut lines, mut whole) = (Vec::new(), Vec::new());
    for name in chosen(&trace, args.workload)? {
        let workload = trace.workload(&name)?;
        let seeds = seeds_of(&workload, args.seeds.as_ref())?;
        let pods = Pods::of(&workload);
        for policy in policies {
            let replay = |seed: &u64| {
                Ok::<Outcome, CliError>(pods.replay(trace.cluster(&name, *seed)?, *policy, *seed))
            };
            let outcomes = seeds.iter().map(replay).collect::<Result<Vec<_>, _>>()?;
            lines.push(report::line(&name, *policy, &outcomes, &published));
            whole.extend(outcomes);
        }
    }
    output::list(&args.list, false, &report::COLUMNS, lines, &whole)?;
    Ok(Code::DONE)
}

/// The workloads that were asked for, else all.
fn chosen(trace: &Trace, asked: Vec<String>) -> Result<Vec<String>, CliError> {
    let known = trace.workloads()?;
    if let Some(name) = asked.iter().find(|name| !known.contains(name)) {
        return Err(CliError::new(Exit::NotFound, format!("there is no workload `{name}`"))
            .hint(format!("one of {}", known.join(", "))));
    }
    Ok(if asked.is_empty() { known } else { asked })
}

/// The seeds that were asked for, else all.
fn seeds_of(workload: &Workload, asked: Option<&Seeds>) -> Result<Vec<u64>, CliError> {
    let known: Vec<u64> = workload.arrivals.keys().copied().collect();
    let Some(Seeds(asked)) = asked else { return Ok(known) };
    if let Some(seed) = asked.iter().find(|seed| !known.contains(seed)) {
        let (first, last) = (known.first().copied().unwrap_or(0), known.last().copied().unwrap_or(0));
        return Err(CliError::new(
            Exit::NotFound,
            format!("workload `{}` has no order of arrival for seed {seed}", workload.name),
        )
        .hint(format!("seeds between {first} and {last}")));
    }
    Ok(asked.iter().copied().collect())
}

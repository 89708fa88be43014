//! `muster bench placement`: placement policies by allocated GPUs on the OpenB trace.
//!
//! `muster_sim::placement` has the rules and the policies. The time of the decisions is measured here.

mod report;
mod seeds;

use std::path::PathBuf;

use muster_sim::placement::{OpenbTrace, PlacementPolicyName, PreparedWorkload, TraceCluster, TraceWorkload};

use super::named_values::named;
use super::timing::thread_cpu_us;
use super::traces;
use crate::error::{CliError, CommandResult, Exit, ExitStatus};
use crate::output::{self, ListArgs};
use report::PlacementOutcome;
use seeds::Seeds;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The traces directory; its `openb` is read [env: MUSTER_TRACES] [default: ../shared/traces]
    #[arg(long, value_name = "DIR")]
    traces: Option<PathBuf>,
    /// Only these workloads, for example `default,cpu050`
    #[arg(long, value_name = "NAME", value_delimiter = ',', num_args = 1..)]
    workload: Vec<String>,
    /// Only these policies
    #[arg(
        long, value_name = "NAME", value_delimiter = ',', num_args = 1..,
        value_parser = named(&PlacementPolicyName::ALL, PlacementPolicyName::as_str, PlacementPolicyName::about)
    )]
    policy: Vec<PlacementPolicyName>,
    /// Only the arrival orders of these seeds, for example `42-51`
    #[arg(long, value_name = "SEEDS")]
    seeds: Option<Seeds>,
    #[command(flatten)]
    list: ListArgs,
}

/// Print a row for each workload and policy.
pub fn run(args: Args) -> CommandResult {
    let trace = OpenbTrace::open(&traces::traces_dir(args.traces))?;
    let policies = if args.policy.is_empty() { &PlacementPolicyName::ALL[..] } else { &args.policy };
    let published = trace.published()?;
    let (mut rows, mut all) = (Vec::new(), Vec::new());
    for name in selected_workloads(&trace, args.workload)? {
        let workload = trace.workload(&name)?;
        let seeds = selected_seeds(&workload, args.seeds.as_ref())?;
        let prepared = PreparedWorkload::of_workload(&workload);
        for policy in policies {
            let replay = |seed: &u64| {
                let cluster = trace.cluster(&name, *seed)?;
                Ok::<PlacementOutcome, CliError>(replay(&name, &prepared, cluster, *policy, *seed))
            };
            let outcomes = seeds.iter().map(replay).collect::<Result<Vec<_>, _>>()?;
            rows.push(report::result_row(&name, *policy, &outcomes, &published));
            all.extend(outcomes);
        }
    }
    output::list(&args.list, false, &report::COLUMNS, rows, &all)?;
    Ok(ExitStatus::SUCCESS)
}

/// One replay. Only the decisions are timed, not the figures.
fn replay(
    workload: &str,
    prepared: &PreparedWorkload,
    cluster: TraceCluster,
    policy: PlacementPolicyName,
    seed: u64,
) -> PlacementOutcome {
    let arrivals = prepared.arriving_shapes(seed);
    let start_us = thread_cpu_us();
    let placements = prepared.place_all(cluster.clone(), policy, seed, &arrivals);
    let cpu_us = thread_cpu_us() - start_us;
    let figures = prepared.figures(cluster, &arrivals, &placements);
    PlacementOutcome::new(workload, policy, seed, figures, cpu_us / arrivals.len().max(1) as f64)
}

/// The workloads named by the flag, else all.
fn selected_workloads(trace: &OpenbTrace, named: Vec<String>) -> Result<Vec<String>, CliError> {
    let known = trace.workloads()?;
    if let Some(name) = named.iter().find(|name| !known.contains(name)) {
        return Err(CliError::new(Exit::NotFound, format!("there is no workload `{name}`"))
            .hint(format!("one of {}", known.join(", "))));
    }
    Ok(if named.is_empty() { known } else { named })
}

/// The seeds named by the flag, else all.
fn selected_seeds(workload: &TraceWorkload, named: Option<&Seeds>) -> Result<Vec<u64>, CliError> {
    let known: Vec<u64> = workload.arrivals.keys().copied().collect();
    let Some(Seeds(named)) = named else { return Ok(known) };
    if let Some(seed) = named.iter().find(|seed| !known.contains(seed)) {
        let (first, last) = (known.first().copied().unwrap_or(0), known.last().copied().unwrap_or(0));
        return Err(CliError::new(
            Exit::NotFound,
            format!("workload `{}` has no arrival order for seed {seed}", workload.name),
        )
        .hint(format!("seeds between {first} and {last}")));
    }
    Ok(named.iter().copied().collect())
}

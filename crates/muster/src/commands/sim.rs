//! `muster sim`: simulated clusters: fault injection, trace replay, what-if, comparison of results.

mod compare;
mod fault_runs;
mod replay;
pub mod whatif;

use super::CommandResult;
use crate::options::Options;

/// `muster sim`; without a verb, runs of whole clusters with injected faults.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    faults: fault_runs::FaultRunArgs,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Replay the jobs of a log on a simulated cluster and print waits, completion times and utilisation
    Replay(replay::Args),
    /// What-if: replay the history of the server under other quotas, settings, policies or nodes
    #[command(name = "whatif", visible_alias = "what-if")]
    WhatIf(whatif::Args),
    /// Compare two results of `whatif -o json` or `replay -o json`
    Compare(compare::Args),
}

pub fn run(args: Args, options: &Options) -> CommandResult {
    match args.verb {
        Some(Verb::Replay(args)) => replay::run(args),
        Some(Verb::WhatIf(args)) => whatif::run(&args, options),
        Some(Verb::Compare(args)) => compare::run(&args),
        None => fault_runs::run(&args.faults),
    }
}

//! Clusters that exist in memory only, in simulated time.

mod compare;
mod replay;
mod stories;
pub mod whatif;

use super::Ending;
use crate::options::Options;

/// `muster sim`: without a verb, stories of whole clusters.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    stories: stories::StoryArgs,
}

/// What else to simulate.
#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Let the jobs of a log meet the planner, on a cluster of any size, and say what became of them
    Replay(replay::Args),
    /// Replay the history of the server under other rules, and say who would have won and lost
    #[command(name = "whatif", visible_alias = "what-if")]
    WhatIf(whatif::Args),
    /// Put two results side by side: of `whatif -o json`, of `replay -o json`, or one of each
    Compare(compare::Args),
}

/// Simulate, and print what came of it.
pub fn run(args: Args, options: &Options) -> Ending {
    match args.verb {
        Some(Verb::Replay(args)) => replay::run(args),
        Some(Verb::WhatIf(args)) => whatif::run(&args, options),
        Some(Verb::Compare(args)) => compare::run(&args),
        None => stories::run(&args.stories),
    }
}

//! Clusters that exist in memory only, in simulated time.

mod replay;
mod stories;

use super::Ending;

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
}

/// Simulate, and print what came of it.
pub fn run(args: Args) -> Ending {
    match args.verb {
        Some(Verb::Replay(args)) => replay::run(args),
        None => stories::run(&args.stories),
    }
}

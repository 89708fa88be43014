//! Clusters that exist in memory only, in simulated time.

mod stories;

use super::Ending;

/// `muster sim`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(flatten)]
    stories: stories::StoryArgs,
}

/// Tell stories.
pub fn run(args: Args) -> Ending {
    stories::run(&args.stories)
}

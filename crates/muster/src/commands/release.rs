//! Let held jobs queue again.

use hyper::Method;

use super::Ending;
use super::steer::{self, Which};
use crate::jobs;
use crate::options::Options;

/// `muster release`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    which: Which,
}

/// Let held jobs queue again.
pub fn run(args: Args, options: &Options) -> Ending {
    steer::each(&args.which, "release", options, |client, job| {
        client.act(Method::POST, jobs::target(job).at("release"))
    })
}

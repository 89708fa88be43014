//! End jobs, waiting or running.

use hyper::Method;

use super::Ending;
use super::steer::{self, Which};
use crate::jobs;
use crate::options::Options;

/// `muster cancel`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    which: Which,
}

/// End jobs, waiting or running.
pub fn run(args: Args, options: &Options) -> Ending {
    steer::each(&args.which, "cancel", options, |client, job| client.act(Method::DELETE, jobs::target(job)))
}

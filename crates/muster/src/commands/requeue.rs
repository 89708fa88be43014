//! Stop running jobs and queue them again.

use hyper::Method;

use super::Ending;
use super::steer::{self, Which};
use crate::jobs;
use crate::options::Options;

/// `muster requeue`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    which: Which,
}

/// Stop running jobs and queue them again.
pub fn run(args: Args, options: &Options) -> Ending {
    steer::each(&args.which, "requeue", options, |client, job| {
        client.act(Method::POST, jobs::target(job).at("requeue"))
    })
}

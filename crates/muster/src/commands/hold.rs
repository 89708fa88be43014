//! Keep jobs from starting; running ones are stopped and kept.

use hyper::Method;
use muster_protocol::submit::Reasoned;

use super::Ending;
use super::steer::{self, Which};
use crate::jobs;
use crate::options::Options;

/// `muster hold`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    which: Which,
    /// Why, for those who ask `muster why`
    #[arg(long, value_name = "TEXT", default_value = "")]
    why: String,
}

/// Keep jobs from starting.
pub fn run(args: Args, options: &Options) -> Ending {
    let reasoned = Reasoned { why: args.why };
    steer::each(&args.which, "hold", options, |client, job| {
        client.send(Method::POST, jobs::target(job).at("hold"), &reasoned)
    })
}

//! Keep jobs from starting; running ones are stopped and kept.

use hyper::Method;
use muster_protocol::submit::ActionReason;

use super::CommandResult;
use super::job_control::{self, JobSelection};
use crate::jobs;
use crate::options::Options;

/// `muster hold`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    selection: JobSelection,
    /// Why, for those who ask `muster why`
    #[arg(long, value_name = "TEXT", default_value = "")]
    why: String,
}

/// Keep jobs from starting.
pub fn run(args: Args, options: &Options) -> CommandResult {
    let reasoned = ActionReason { why: args.why };
    job_control::for_each_job(&args.selection, "hold", options, |client, job| {
        client.send(Method::POST, jobs::job_target(job).segment("hold"), &reasoned)
    })
}

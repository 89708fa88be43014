//! `muster hold`: keep jobs from starting; running jobs are stopped and queue again, held.

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
    /// Reason, shown by `muster why`
    #[arg(long, value_name = "TEXT", default_value = "")]
    why: String,
}

pub fn run(args: Args, options: &Options) -> CommandResult {
    let reason = ActionReason { why: args.why };
    job_control::for_each_job(&args.selection, "hold", options, |client, job| {
        client.send(Method::POST, jobs::job_target(job).segment("hold"), &reason)
    })
}

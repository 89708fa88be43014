//! `muster checkpoint`: report a checkpoint of a running job.

use hyper::Method;
use muster_protocol::submit::Acknowledgement;

use super::{CommandResult, ExitStatus};
use crate::jobs::{self, JobRef};
use crate::options::Options;
use crate::output;

/// `muster checkpoint`.
#[derive(Debug, clap::Args)]
#[command(before_help = "Example, in a job after it has saved its work:\n  muster checkpoint $MUSTER_JOB_ID")]
pub struct Args {
    /// Job id; `-` is your newest job
    job: JobRef,
}

/// A preemption after the report loses only the work done since.
pub fn run(args: Args, options: &Options) -> CommandResult {
    let client = options.client()?;
    let id = args.job.resolve(&client)?;
    let done: Acknowledgement = client.send_without_body(Method::POST, jobs::job_target(id).segment("checkpoint"))?;
    output::print_stderr(&done.message);
    Ok(ExitStatus::SUCCESS)
}

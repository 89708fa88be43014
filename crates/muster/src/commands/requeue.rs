//! `muster requeue`: stop running jobs and queue them again under the same id.

use hyper::Method;

use super::CommandResult;
use super::job_control::{self, JobSelection};
use crate::jobs;
use crate::options::Options;

/// `muster requeue`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    selection: JobSelection,
}

pub fn run(args: Args, options: &Options) -> CommandResult {
    job_control::for_each_job(&args.selection, "requeue", options, |client, job| {
        client.send_without_body(Method::POST, jobs::job_target(job).segment("requeue"))
    })
}

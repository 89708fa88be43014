//! `muster cancel`: end waiting or running jobs.

use hyper::Method;
use muster_protocol::submit::{Acknowledgement, Cancelled};

use super::job_control::{self, JobSelection};
use super::{CommandResult, wait};
use crate::jobs;
use crate::options::Options;

/// `muster cancel`.
///
/// A running job is stopped and ends as cancelled, unless its processes had already exited with code 0: then it ends as
/// completed.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    selection: JobSelection,
    /// Wait until the jobs have ended, and print how they ended
    #[arg(long)]
    wait: bool,
}

pub fn run(args: Args, options: &Options) -> CommandResult {
    let cancelled = job_control::for_each_job(&args.selection, "cancel", options, |client, job| {
        let cancelled: Cancelled = client.send_without_body(Method::DELETE, jobs::job_target(job))?;
        Ok(Acknowledgement { message: cancelled.message })
    })?;
    if args.wait {
        wait::wait_until_ended(args.selection.jobs(), None, options)?;
    }
    Ok(cancelled)
}

//! End jobs, waiting or running.

use hyper::Method;
use muster_protocol::submit::{Cancelled, Done};

use super::steer::{self, Which};
use super::{Ending, wait};
use crate::jobs;
use crate::options::Options;

/// `muster cancel`.
///
/// A job that runs is told to stop. It ends as cancelled, unless its processes had already exited with code 0: then its
/// work is done, and it ends as completed.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    which: Which,
    /// Wait until the jobs have ended, and say how
    #[arg(long)]
    wait: bool,
}

/// End jobs, waiting or running.
pub fn run(args: Args, options: &Options) -> Ending {
    let cancelled = steer::each(&args.which, "cancel", options, |client, job| {
        let cancelled: Cancelled = client.act(Method::DELETE, jobs::target(job))?;
        Ok(Done { message: cancelled.message })
    })?;
    if args.wait {
        wait::until_ended(args.which.jobs(), None, options)?;
    }
    Ok(cancelled)
}

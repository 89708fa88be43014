//! Say that a running job has saved its work.

use hyper::Method;
use muster_protocol::submit::Done;

use super::{Code, Ending};
use crate::jobs::{self, JobRef};
use crate::options::Options;
use crate::output;

/// `muster checkpoint`.
#[derive(Debug, clap::Args)]
#[command(before_help = "Example, at the end of a job's own checkpoint:\n  muster checkpoint $MUSTER_JOB_ID")]
pub struct Args {
    /// Which job; `-` is your newest
    job: JobRef,
}

/// From now on only what comes after is lost if the job is displaced.
pub fn run(args: Args, options: &Options) -> Ending {
    let client = options.client()?;
    let id = args.job.resolve(&client)?;
    let done: Done = client.act(Method::POST, jobs::target(id).at("checkpoint"))?;
    output::talk(&done.message);
    Ok(Code::DONE)
}

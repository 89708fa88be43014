//! Wait until jobs have ended, and return their exit code.

use std::time::Duration;

use muster_protocol::job::Job;

use super::{Code, Ending};
use crate::error::{CliError, EXIT_CODES, Exit};
use crate::follow::{Came, INTERRUPTED, Patience};
use crate::jobs::{self, JobRef};
use crate::options::Options;
use crate::output;
use crate::units;

/// `muster wait`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES, before_help = "Example:\n  muster wait job-42 --timeout 1h && echo good")]
pub struct Args {
    /// Which jobs; `-` is your newest, an array's number means all its tasks
    #[arg(required = true, value_name = "JOB")]
    jobs: Vec<JobRef>,
    /// Give up after this time, with exit code 7
    #[arg(long, value_name = "TIME", value_parser = units::duration_ms)]
    timeout: Option<i64>,
}

/// Wait for all of them. The first that did not end well decides the exit code.
pub fn run(args: Args, options: &Options) -> Ending {
    until_ended(&args.jobs, args.timeout, options)
}

/// Wait for jobs to end, for so many milliseconds at most.
pub fn until_ended(jobs: &[JobRef], timeout_ms: Option<i64>, options: &Options) -> Ending {
    let client = options.client()?;
    let ids = jobs.iter().map(|job| job.resolve(&client)).collect::<Result<Vec<_>, _>>()?;
    let timeout = timeout_ms.map(|ms| Duration::from_millis(ms.max(0).unsigned_abs()));
    let mut patience = Patience::new(&client, timeout)?;
    let mut code = Code::DONE;
    for id in ids {
        let mut told = false;
        let tell = |job: &Job| told = told || tell_held(job);
        let job = match patience.job(id, tell, jobs::has_ended)? {
            Came::This(job) => job,
            Came::Interrupt => return Ok(Code(INTERRUPTED)),
            Came::Deadline => return Err(CliError::new(Exit::TimedOut, format!("{id} has not ended yet"))),
        };
        output::talk(&jobs::ending(&job));
        code = if code == Code::DONE { jobs::code_of(&job) } else { code };
    }
    Ok(code)
}

/// A held job does not go on by itself; whoever waits for it should know.
fn tell_held(job: &Job) -> bool {
    let held = job.summary.phase == "Held" && job.array.is_none();
    if held {
        let id = &job.summary.id;
        output::talk(&format!("{id} is held: {}; `muster release {id}` lets it go on", job.summary.message));
    }
    held
}

//! `muster wait`: wait until jobs have ended, and return the exit code of the first that failed.

use std::time::Duration;

use muster_protocol::job::Job;

use super::{CommandResult, ExitStatus};
use crate::error::{CliError, EXIT_CODES, Exit};
use crate::jobs::{self, JobRef};
use crate::options::Options;
use crate::output;
use crate::units;
use crate::waiter::{EXIT_INTERRUPTED, WaitOutcome, Waiter};

/// `muster wait`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES, before_help = "Example:\n  muster wait job-42 --timeout 1h && echo done")]
pub struct Args {
    /// Job ids; `-` is your newest job, an array id selects all its jobs
    #[arg(required = true, value_name = "JOB")]
    jobs: Vec<JobRef>,
    /// Give up after this time, with exit code 7
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration_ms)]
    timeout: Option<i64>,
}

/// Waits for all jobs. The first one named that did not complete determines the exit code.
pub fn run(args: Args, options: &Options) -> CommandResult {
    wait_until_ended(&args.jobs, args.timeout, options)
}

/// Waits until all jobs have ended, at most for the timeout.
pub fn wait_until_ended(jobs: &[JobRef], timeout_ms: Option<i64>, options: &Options) -> CommandResult {
    let client = options.client()?;
    let ids = jobs.iter().map(|job| job.resolve(&client)).collect::<Result<Vec<_>, _>>()?;
    let timeout = timeout_ms.map(|ms| Duration::from_millis(ms.max(0).unsigned_abs()));
    let mut waiter = Waiter::new(&client, timeout)?;
    let mut code = ExitStatus::SUCCESS;
    for id in ids {
        let mut reported = false;
        let observe = |job: &Job| reported = reported || report_held(job);
        let job = match waiter.poll_job(id, observe, jobs::has_ended)? {
            WaitOutcome::Ready(job) => job,
            WaitOutcome::Interrupted => return Ok(ExitStatus(EXIT_INTERRUPTED)),
            WaitOutcome::TimedOut => {
                return Err(CliError::new(Exit::TimedOut, format!("{id} has not ended yet")));
            }
        };
        output::print_stderr(&jobs::outcome_text(&job));
        code = if code == ExitStatus::SUCCESS { jobs::exit_status_of(&job) } else { code };
    }
    Ok(code)
}

/// Prints that a job is held: the wait lasts until somebody releases the job.
fn report_held(job: &Job) -> bool {
    let held = job.summary.phase == "Held" && job.array.is_none();
    if held {
        let id = &job.summary.id;
        output::print_stderr(&format!("{id} is held: {}; `muster release {id}` queues it again", job.summary.message));
    }
    held
}

//! `muster run`: submit a command, follow its state and output, and return its exit code.

use std::time::Duration;

use muster_core::JobId;
use muster_protocol::job::Job;

use super::logs::all_ranks;
use super::submit::submit_job;
use super::{CommandResult, ExitStatus};
use crate::client::Client;
use crate::error::{CliError, EXIT_CODES, Exit};
use crate::job_flags::JobArgs;
use crate::jobs;
use crate::log_lines::OutputStream;
use crate::log_tail::{LogSelection, LogTail, TailOptions};
use crate::options::Options;
use crate::output;
use crate::waiter::{EXIT_INTERRUPTED, StatusReporter, WaitOutcome, Waiter};

/// Pause between the end of a stream and the next request for the job.
const RECHECK_PAUSE: Duration = Duration::from_millis(50);

/// `muster run`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES, before_help = "\
Examples:
  muster run --gpus 1 -- python train.py
  muster run --gpus 4 --time 30m --script job.sh
Ctrl-C stops following, not the job.")]
pub struct Args {
    #[command(flatten)]
    job: JobArgs,
    /// Do not print the state of the job
    #[arg(short, long)]
    quiet: bool,
}

/// Submits and follows the job; returns its exit code.
pub fn run(args: Args, options: &Options) -> CommandResult {
    if args.job.array.is_some() {
        return Err(CliError::usage("`run` follows one job").hint("use `muster submit --array …` and `muster wait`"));
    }
    let client = options.client()?;
    let mut waiter = Waiter::new(&client, None)?;
    let submitted = submit_job(&client, args.job, None, options)?;
    let id = jobs::parse_job_id(&submitted.job_id)?;
    if !args.quiet {
        output::print_stderr(&submitted.message);
    }
    match follow_job(&client, id, args.quiet, &mut waiter)? {
        WaitOutcome::Ready(job) => Ok(jobs::exit_status_of(&job)),
        WaitOutcome::Interrupted | WaitOutcome::TimedOut => Ok(print_detach_hints(id)),
    }
}

/// Follows each attempt until the job has ended.
fn follow_job(client: &Client, id: JobId, quiet: bool, waiter: &mut Waiter) -> Result<WaitOutcome<Box<Job>>, CliError> {
    let mut reporter = StatusReporter::default();
    let mut tail = LogTail::new(TailOptions { quiet, ..TailOptions::default() });
    loop {
        let observe = |job: &Job| {
            if !quiet {
                reporter.report_change(job)
            }
        };
        let job = match waiter
            .poll_job(id, observe, |job| jobs::has_ended(job) || is_active(job) || is_held_by_system(job))?
        {
            WaitOutcome::Ready(job) => job,
            other => return Ok(other),
        };
        if is_held_by_system(&job) {
            return Err(held_error(&job));
        }
        let wanted = LogSelection {
            job: id,
            attempt: job.summary.attempts,
            ranks: all_ranks(&job),
            streams: OutputStream::BOTH.to_vec(),
        };
        match tail.follow(client, &wanted, waiter) {
            Ok(WaitOutcome::Ready(())) if jobs::has_ended(&job) => return Ok(WaitOutcome::Ready(job)),
            Ok(WaitOutcome::Ready(())) => {}
            Ok(_) => return Ok(WaitOutcome::Interrupted),
            Err(error) if error.is_transient => {}
            Err(error) => return Err(error),
        }
        waiter.sleep(RECHECK_PAUSE);
    }
}

fn is_active(job: &Job) -> bool {
    matches!(job.summary.phase.as_str(), "Starting" | "Running" | "Stopping" | "LostNode")
}

/// Held by the system because its attempts cannot be started; the job stays held until somebody acts.
fn is_held_by_system(job: &Job) -> bool {
    job.summary.phase == "Held" && job.summary.attempts > 0
}

fn held_error(job: &Job) -> CliError {
    let id = &job.summary.id;
    CliError::new(Exit::Conflict, format!("{id} is held: {}", job.summary.message))
        .hint(format!("`muster release {id}` queues it again, `muster cancel {id}` ends it"))
}

fn print_detach_hints(id: JobId) -> ExitStatus {
    output::print_stderr(&format!("\n{id} keeps running"));
    output::print_stderr(&format!("  follow again:  muster logs -f {id}"));
    output::print_stderr(&format!("  exit code:     muster wait {id}"));
    output::print_stderr(&format!("  end it:        muster cancel {id}"));
    ExitStatus(EXIT_INTERRUPTED)
}

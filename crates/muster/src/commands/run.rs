//! Run a command on GPUs as if it were here: follow its state and output, return its exit code.

use std::time::Duration;

use muster_core::JobId;
use muster_protocol::job::Job;

use super::logs::all_ranks;
use super::submit::submit_job;
use super::{ExitStatus, CommandResult};
use crate::client::Client;
use crate::error::{CliError, EXIT_CODES, Exit};
use crate::waiter::{WaitOutcome, EXIT_INTERRUPTED, StatusReporter, Waiter};
use crate::job_flags::JobArgs;
use crate::jobs;
use crate::options::Options;
use crate::output;
use crate::log_tail::{LogTail, LogSelection};

/// Between the end of a stream and the next look at the job.
const RECHECK_PAUSE: Duration = Duration::from_millis(50);

/// `muster run`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES, before_help = "\
Examples:
  muster run --gpus 1 -- python train.py
  muster run --gpus 4 --time 30m --script job.sh
Ctrl-C stops looking, not the job.")]
pub struct Args {
    #[command(flatten)]
    job: JobArgs,
    /// Do not say where the job stands
    #[arg(short, long)]
    quiet: bool,
}

/// Submit, follow, and return the job's own exit code.
pub fn run(args: Args, options: &Options) -> CommandResult {
    if args.job.array.is_some() {
        return Err(
            CliError::usage("`run` follows one job").hint("use `muster submit --array …` and `muster wait`")
        );
    }
    let client = options.client()?;
    let mut patience = Waiter::new(&client, None)?;
    let submitted = submit_job(&client, args.job, None, options)?;
    let id = jobs::parse_job_id(&submitted.job_id)?;
    if !args.quiet {
        output::print_stderr(&submitted.message);
    }
    match follow_job(&client, id, args.quiet, &mut patience)? {
        WaitOutcome::Ready(job) => Ok(jobs::exit_status_of(&job)),
        WaitOutcome::Interrupted | WaitOutcome::TimedOut => Ok(print_detach_hints(id)),
    }
}

/// Attempt by attempt, until the job has ended. A stream may also end because the server restarts: then the job
/// is still active, and its output goes on where it stopped.
fn follow_job(
    client: &Client,
    id: JobId,
    quiet: bool,
    patience: &mut Waiter,
) -> Result<WaitOutcome<Box<Job>>, CliError> {
    let mut narrator = StatusReporter::default();
    let mut tail = LogTail::default();
    loop {
        let look = |job: &Job| {
            if !quiet {
                narrator.report_change(job)
            }
        };
        let job =
            match patience.poll_job(id, look, |job| jobs::has_ended(job) || is_active(job) || is_held_by_system(job))? {
                WaitOutcome::Ready(job) => job,
                other => return Ok(other),
            };
        if is_held_by_system(&job) {
            return Err(held_error(&job));
        }
        let wanted = LogSelection { job: id, attempt: job.summary.attempts, ranks: all_ranks(&job) };
        match tail.follow(client, &wanted, patience) {
            Ok(WaitOutcome::Ready(())) if jobs::has_ended(&job) => return Ok(WaitOutcome::Ready(job)),
            Ok(WaitOutcome::Ready(())) => {}
            Ok(_) => return Ok(WaitOutcome::Interrupted),
            Err(error) if error.is_transient => {}
            Err(error) => return Err(error),
        }
        patience.sleep(RECHECK_PAUSE);
    }
}

fn is_active(job: &Job) -> bool {
    matches!(job.summary.phase.as_str(), "Starting" | "Running" | "Stopping" | "LostNode")
}

/// Held by the system, because it cannot be started: nothing will happen by itself.
fn is_held_by_system(job: &Job) -> bool {
    job.summary.phase == "Held" && job.summary.attempts > 0
}

fn held_error(job: &Job) -> CliError {
    let id = &job.summary.id;
    CliError::new(Exit::Conflict, format!("{id} is held: {}", job.summary.message))
        .hint(format!("`muster release {id}` lets it try again, `muster cancel {id}` ends it"))
}

fn print_detach_hints(id: JobId) -> ExitStatus {
    output::print_stderr(&format!("\n{id} goes on without you"));
    output::print_stderr(&format!("  look again:  muster logs -f {id}"));
    output::print_stderr(&format!("  its code:    muster wait {id}"));
    output::print_stderr(&format!("  end it:      muster cancel {id}"));
    ExitStatus(EXIT_INTERRUPTED)
}

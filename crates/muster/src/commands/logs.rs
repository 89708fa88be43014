//! `muster logs`: the output of a job.

use muster_protocol::job::Job;

use super::{CommandResult, ExitStatus};
use crate::client::Client;
use crate::error::{CliError, Exit};
use crate::jobs::{self, JobRef};
use crate::log_tail::{LogSelection, LogTail};
use crate::options::Options;
use crate::output;
use crate::waiter::{EXIT_INTERRUPTED, WaitOutcome, Waiter};

/// `muster logs`.
#[derive(Debug, clap::Args)]
#[command(before_help = "Examples:\n  muster logs job-42 -f\n  muster logs job-42 --rank all --attempt 1")]
pub struct Args {
    /// Job id; `-` is your newest job
    job: JobRef,
    /// Follow the output until the attempt ends; Ctrl-C stops following, not the job
    #[arg(short, long)]
    follow: bool,
    /// Task: a rank, or `all`
    #[arg(long, value_name = "RANK", default_value = "0")]
    rank: RankSelection,
    /// Attempt [default: the newest]
    #[arg(long, value_name = "N")]
    attempt: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RankSelection {
    Single(u32),
    All,
}

impl std::str::FromStr for RankSelection {
    type Err = String;

    fn from_str(text: &str) -> Result<RankSelection, String> {
        match text {
            "all" => Ok(RankSelection::All),
            _ => text.parse().map(RankSelection::Single).map_err(|_| format!("`{text}` is neither a number nor `all`")),
        }
    }
}

/// Prints the output; the standard error of the job goes to standard error.
pub fn run(args: Args, options: &Options) -> CommandResult {
    let client = options.client()?;
    let id = args.job.resolve(&client)?;
    let job = jobs::fetch_job(&client, id)?;
    if job.array.is_some() {
        return Err(
            CliError::usage(format!("{id} is an array")).hint(format!("name one of its jobs, for example `{id}.0`"))
        );
    }
    if args.follow {
        return follow_logs(&client, &args, job);
    }
    let attempt = args.attempt.unwrap_or(job.summary.attempts);
    if attempt == 0 {
        let message = format!("{id} has not started yet");
        return Err(CliError::new(Exit::Conflict, message).hint(format!("`muster why {id}`, or follow with `-f`")));
    }
    let wanted = LogSelection { job: id, attempt, ranks: selected_ranks(args.rank, &job)? };
    LogTail::default().print_available(&client, &wanted)?;
    Ok(ExitStatus::SUCCESS)
}

/// Waits until the job has an attempt, then follows its output.
fn follow_logs(client: &Client, args: &Args, job: Job) -> CommandResult {
    let mut waiter = Waiter::new(client, None)?;
    let id = jobs::parse_job_id(&job.summary.id)?;
    let started = |job: &Job| job.summary.attempts > 0 || jobs::has_ended(job);
    let WaitOutcome::Ready(job) = waiter.poll_job(id, |_| {}, started)? else {
        return Ok(ExitStatus(EXIT_INTERRUPTED));
    };
    let attempt = args.attempt.unwrap_or(job.summary.attempts);
    if attempt == 0 {
        output::print_stderr(&jobs::outcome_text(&job));
        return Ok(ExitStatus::SUCCESS);
    }
    let wanted = LogSelection { job: id, attempt, ranks: selected_ranks(args.rank, &job)? };
    match LogTail::default().follow(client, &wanted, &mut waiter)? {
        WaitOutcome::Ready(()) => Ok(ExitStatus::SUCCESS),
        WaitOutcome::Interrupted | WaitOutcome::TimedOut => Ok(ExitStatus(EXIT_INTERRUPTED)),
    }
}

fn selected_ranks(rank: RankSelection, job: &Job) -> Result<Vec<u32>, CliError> {
    let all = all_ranks(job);
    match rank {
        RankSelection::All => Ok(all),
        RankSelection::Single(rank) if all.contains(&rank) => Ok(vec![rank]),
        RankSelection::Single(rank) => {
            let last = all.len().saturating_sub(1);
            Err(CliError::usage(format!("{} has no rank {rank}: its ranks are 0 to {last}", job.summary.id)))
        }
    }
}

/// All ranks that the gang may have; ranks without a task have no output.
pub fn all_ranks(job: &Job) -> Vec<u32> {
    (0..job.tasks.iter().map(|task| task.max_count.unwrap_or(task.count)).sum()).collect()
}

//! `muster logs`: the output of a job.

use muster_core::JobId;
use muster_protocol::job::Job;
use regex::bytes::Regex;

use super::{CommandResult, ExitStatus};
use crate::client::Client;
use crate::error::{CliError, Exit};
use crate::jobs::{self, JobRef};
use crate::log_lines::OutputStream;
use crate::log_tail::{LogSelection, LogTail, TailOptions};
use crate::moments;
use crate::options::Options;
use crate::output;
use crate::waiter::{EXIT_INTERRUPTED, WaitOutcome, Waiter};

/// `muster logs`.
#[derive(Debug, clap::Args)]
#[command(before_help = "\
Examples:
  muster logs job-42 -f --tail 20
  muster logs job-42 --rank all --since 10m --grep 'loss|error'
  muster logs job-42 --attempt 1 --stderr")]
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
    /// Start N lines before the end, for each task
    #[arg(long, value_name = "N")]
    tail: Option<u32>,
    /// Start with the output since a time: a span before now such as `10m`, or a time such as `18:00`. Some two seconds of
    /// earlier output may come with it
    #[arg(long, value_name = "SPAN|TIME", value_parser = moments::parse_past_moment)]
    since: Option<i64>,
    /// Print only lines that match this regular expression
    #[arg(long, value_name = "PATTERN")]
    grep: Option<String>,
    /// Only the standard output
    #[arg(long)]
    stdout: bool,
    /// Only the standard error
    #[arg(long)]
    stderr: bool,
}

impl Args {
    fn selection(&self, id: JobId, attempt: u32, job: &Job) -> Result<LogSelection, CliError> {
        let streams = match (self.stdout, self.stderr) {
            (true, false) => vec![OutputStream::Stdout],
            (false, true) => vec![OutputStream::Stderr],
            _ => OutputStream::BOTH.to_vec(),
        };
        Ok(LogSelection { job: id, attempt, ranks: selected_ranks(self.rank, job)?, streams })
    }

    fn log_tail(&self) -> Result<LogTail, CliError> {
        let compiled = self.grep.as_deref().map(Regex::new).transpose();
        let filter = compiled.map_err(|error| CliError::usage(format!("--grep: {error}")))?;
        Ok(LogTail::new(TailOptions { tail: self.tail, since_ms: self.since, filter, quiet: false }))
    }
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
    let mut tail = args.log_tail()?;
    let client = options.client()?;
    let id = args.job.resolve(&client)?;
    let job = jobs::fetch_job(&client, id)?;
    if job.array.is_some() {
        return Err(
            CliError::usage(format!("{id} is an array")).hint(format!("name one of its jobs, for example `{id}.0`"))
        );
    }
    if args.follow {
        return follow_logs(&client, &args, job, tail);
    }
    let attempt = args.attempt.unwrap_or(job.summary.attempts);
    if attempt == 0 {
        let message = format!("{id} has not started yet");
        return Err(CliError::new(Exit::Conflict, message).hint(format!("`muster why {id}`, or follow with `-f`")));
    }
    tail.print_available(&client, &args.selection(id, attempt, &job)?)?;
    Ok(ExitStatus::SUCCESS)
}

/// Waits until the job has an attempt, then follows its output.
fn follow_logs(client: &Client, args: &Args, job: Job, mut tail: LogTail) -> CommandResult {
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
    match tail.follow(client, &args.selection(id, attempt, &job)?, &mut waiter)? {
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

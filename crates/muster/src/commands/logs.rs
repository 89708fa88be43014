//! The output of a job.

use muster_protocol::job::Job;

use super::{Code, Ending};
use crate::client::Client;
use crate::error::{CliError, Exit};
use crate::follow::{Came, INTERRUPTED, Patience};
use crate::jobs::{self, JobRef};
use crate::options::Options;
use crate::output;
use crate::tail::{Tail, Wanted};

/// `muster logs`.
#[derive(Debug, clap::Args)]
#[command(before_help = "Examples:\n  muster logs job-42 -f\n  muster logs job-42 --rank all --attempt 1")]
pub struct Args {
    /// Which job; `-` is your newest
    job: JobRef,
    /// Go on until the job ends; Ctrl-C stops looking, not the job
    #[arg(short, long)]
    follow: bool,
    /// Of which task: a number, or `all`
    #[arg(long, value_name = "RANK", default_value = "0")]
    rank: Rank,
    /// Of which attempt [default: the newest]
    #[arg(long, value_name = "N")]
    attempt: Option<u32>,
}

/// One task, or all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rank {
    /// This one.
    One(u32),
    /// All.
    All,
}

impl std::str::FromStr for Rank {
    type Err = String;

    fn from_str(text: &str) -> Result<Rank, String> {
        match text {
            "all" => Ok(Rank::All),
            _ => text.parse().map(Rank::One).map_err(|_| format!("`{text}` is neither a number nor `all`")),
        }
    }
}

/// Print the output; standard error of the job goes to standard error.
pub fn run(args: Args, options: &Options) -> Ending {
    let client = options.client()?;
    let id = args.job.resolve(&client)?;
    let job = jobs::fetch(&client, id)?;
    if job.array.is_some() {
        return Err(
            CliError::usage(format!("{id} is an array")).hint(format!("name one task, for example `{id}.0`"))
        );
    }
    if args.follow {
        return follow(&client, &args, job);
    }
    let attempt = args.attempt.unwrap_or(job.summary.attempts);
    if attempt == 0 {
        let what = format!("{id} has not started yet");
        return Err(
            CliError::new(Exit::Conflict, what).hint(format!("`muster why {id}`, or follow with `-f`"))
        );
    }
    let wanted = Wanted { job: id, attempt, ranks: ranks(args.rank, &job)? };
    Tail::default().print_now(&client, &wanted)?;
    Ok(Code::DONE)
}

/// Wait until it has an attempt, then print what comes.
fn follow(client: &Client, args: &Args, job: Job) -> Ending {
    let mut patience = Patience::new(client, None)?;
    let id = jobs::id_of(&job.summary.id)?;
    let started = |job: &Job| job.summary.attempts > 0 || jobs::has_ended(job);
    let Came::This(job) = patience.job(id, |_| {}, started)? else { return Ok(Code(INTERRUPTED)) };
    let attempt = args.attempt.unwrap_or(job.summary.attempts);
    if attempt == 0 {
        output::talk(&jobs::ending(&job));
        return Ok(Code::DONE);
    }
    let wanted = Wanted { job: id, attempt, ranks: ranks(args.rank, &job)? };
    match Tail::default().follow(client, &wanted, &mut patience)? {
        Came::This(()) => Ok(Code::DONE),
        Came::Interrupt | Came::Deadline => Ok(Code(INTERRUPTED)),
    }
}

/// The tasks that are meant.
fn ranks(rank: Rank, job: &Job) -> Result<Vec<u32>, CliError> {
    let all = all_ranks(job);
    match rank {
        Rank::All => Ok(all),
        Rank::One(rank) if all.contains(&rank) => Ok(vec![rank]),
        Rank::One(rank) => {
            let last = all.len().saturating_sub(1);
            Err(CliError::usage(format!("{} has no rank {rank}: they go from 0 to {last}", job.summary.id)))
        }
    }
}

/// Every task that the gang may have; those it does not have say nothing.
pub fn all_ranks(job: &Job) -> Vec<u32> {
    (0..job.tasks.iter().map(|task| task.max_count.unwrap_or(task.count)).sum()).collect()
}

//! What `cancel`, `hold`, `release` and `requeue` share: many jobs, one question, one line for each.

use muster_core::JobId;
use muster_protocol::submit::Acknowledgement;

use super::{ExitStatus, CommandResult};
use crate::client::Client;
use crate::confirm::{self, Consent};
use crate::error::CliError;
use crate::jobs::{self, JobRef};
use crate::options::Options;
use crate::output;

/// The jobs to steer, and whether to ask.
#[derive(Debug, clap::Args)]
pub struct JobSelection {
    /// Which jobs; `-` is your newest, an array's number reaches all its tasks
    #[arg(required = true, value_name = "JOB")]
    jobs: Vec<JobRef>,
    /// Do not ask, also for many jobs or a whole array
    #[arg(short, long)]
    yes: bool,
}

impl JobSelection {
    /// The jobs as they were named.
    pub fn jobs(&self) -> &[JobRef] {
        &self.jobs
    }
}

/// Do `act` to each of them. All are tried; the first failure decides the exit code.
pub fn for_each_job(
    which: &JobSelection,
    verb: &str,
    options: &Options,
    act: impl Fn(&Client, JobId) -> Result<Acknowledgement, CliError>,
) -> CommandResult {
    let client = options.client()?;
    let ids = which.jobs.iter().map(|job| job.resolve(&client)).collect::<Result<Vec<_>, _>>()?;
    if let Some(deed) = bulk_action_text(&client, verb, &ids)? {
        confirm::require_confirmation(Consent::from(which.yes), &deed)?;
    }
    let mut first_failure = None;
    for id in ids {
        match act(&client, id) {
            Ok(done) => output::print_stderr(&done.message),
            Err(error) => keep_first_error(&mut first_failure, error),
        }
    }
    first_failure.map_or(Ok(ExitStatus::SUCCESS), Err)
}

/// What is to be done, where it touches many jobs.
fn bulk_action_text(client: &Client, verb: &str, ids: &[JobId]) -> Result<Option<String>, CliError> {
    match ids {
        [id] => Ok(jobs::array_task_count(client, *id)?.map(|tasks| format!("{verb} all {tasks} tasks of {id}"))),
        _ => Ok(Some(format!("{verb} {} jobs", ids.len()))),
    }
}

fn keep_first_error(first: &mut Option<CliError>, error: CliError) {
    match first {
        None => *first = Some(error),
        Some(_) => output::print_stderr(error.report().1.trim_end()),
    }
}

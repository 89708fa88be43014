//! What `cancel`, `hold`, `release` and `requeue` share: one confirmation for many jobs, one request and line per job.

use muster_core::JobId;
use muster_protocol::submit::Acknowledgement;

use super::{CommandResult, ExitStatus};
use crate::client::Client;
use crate::confirm::{self, Consent};
use crate::error::CliError;
use crate::jobs::{self, JobRef};
use crate::options::Options;
use crate::output;

/// The selected jobs, and whether to ask for confirmation.
#[derive(Debug, clap::Args)]
pub struct JobSelection {
    /// Job ids; `-` is your newest job, an array id selects all its jobs
    #[arg(required = true, value_name = "JOB")]
    jobs: Vec<JobRef>,
    /// Do not ask for confirmation, not even for many jobs or a whole array
    #[arg(short, long)]
    yes: bool,
}

impl JobSelection {
    pub fn jobs(&self) -> &[JobRef] {
        &self.jobs
    }
}

/// Calls `act` for each job, also after a failure; the first failure determines the exit code.
pub fn for_each_job(
    selection: &JobSelection,
    verb: &str,
    options: &Options,
    act: impl Fn(&Client, JobId) -> Result<Acknowledgement, CliError>,
) -> CommandResult {
    let client = options.client()?;
    let ids = selection.jobs.iter().map(|job| job.resolve(&client)).collect::<Result<Vec<_>, _>>()?;
    if let Some(action) = bulk_action_text(&client, verb, &ids)? {
        confirm::require_confirmation(Consent::from(selection.yes), &action)?;
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

/// The action to confirm; `None` if it affects a single job.
fn bulk_action_text(client: &Client, verb: &str, ids: &[JobId]) -> Result<Option<String>, CliError> {
    match ids {
        [id] => {
            let jobs = jobs::array_task_count(client, *id)?;
            Ok(jobs.map(|jobs| format!("{verb} all {jobs} jobs of array {id}")))
        }
        _ => Ok(Some(format!("{verb} {} jobs", ids.len()))),
    }
}

fn keep_first_error(first: &mut Option<CliError>, error: CliError) {
    match first {
        None => *first = Some(error),
        Some(_) => output::print_stderr(error.report().1.trim_end()),
    }
}

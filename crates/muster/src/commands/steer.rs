//! What `cancel`, `hold`, `release` and `requeue` share: many jobs, one question, one line for each.

use muster_core::JobId;
use muster_protocol::submit::Done;

use super::{Code, Ending};
use crate::client::Client;
use crate::confirm::{self, Consent};
use crate::error::CliError;
use crate::jobs::{self, JobRef};
use crate::options::Options;
use crate::output;

/// The jobs to steer, and whether to ask.
#[derive(Debug, clap::Args)]
pub struct Which {
    /// Which jobs; `-` is your newest, an array's number reaches all its tasks
    #[arg(required = true, value_name = "JOB")]
    jobs: Vec<JobRef>,
    /// Do not ask, also for many jobs or a whole array
    #[arg(short, long)]
    yes: bool,
}

impl Which {
    /// The jobs as they were named.
    pub fn jobs(&self) -> &[JobRef] {
        &self.jobs
    }
}

/// Do `act` to each of them. All are tried; the first failure decides the exit code.
pub fn each(
    which: &Which,
    verb: &str,
    options: &Options,
    act: impl Fn(&Client, JobId) -> Result<Done, CliError>,
) -> Ending {
    let client = options.client()?;
    let ids = which.jobs.iter().map(|job| job.resolve(&client)).collect::<Result<Vec<_>, _>>()?;
    if let Some(deed) = large_deed(&client, verb, &ids)? {
        confirm::ask(Consent::from(which.yes), &deed)?;
    }
    let mut first_failure = None;
    for id in ids {
        match act(&client, id) {
            Ok(done) => output::talk(&done.message),
            Err(error) => keep_first(&mut first_failure, error),
        }
    }
    first_failure.map_or(Ok(Code::DONE), Err)
}

/// What is to be done, where it touches many jobs.
fn large_deed(client: &Client, verb: &str, ids: &[JobId]) -> Result<Option<String>, CliError> {
    match ids {
        [id] => Ok(jobs::tasks_of(client, *id)?.map(|tasks| format!("{verb} all {tasks} tasks of {id}"))),
        _ => Ok(Some(format!("{verb} {} jobs", ids.len()))),
    }
}

fn keep_first(first: &mut Option<CliError>, error: CliError) {
    match first {
        None => *first = Some(error),
        Some(_) => output::talk(error.report().1.trim_end()),
    }
}

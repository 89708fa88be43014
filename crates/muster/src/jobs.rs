//! Jobs as the commands handle them: which one is meant, and what became of it.

use std::str::FromStr;

use muster_core::JobId;
use muster_protocol::job::{Job, JobList, JobState, JobSummary};

use crate::client::{Client, Target};
use crate::commands::Code;
use crate::error::{CliError, Exit};

/// A job as a person names it: `job-42`, `42`, `job-42.3`, or `-` for the caller's newest one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobRef {
    /// By its id.
    Id(JobId),
    /// The caller's job that was accepted last.
    Newest,
}

impl FromStr for JobRef {
    type Err = muster_core::ids::NotAJobId;

    fn from_str(text: &str) -> Result<JobRef, Self::Err> {
        if text == "-" { Ok(JobRef::Newest) } else { text.parse().map(JobRef::Id) }
    }
}

impl JobRef {
    /// The id, asking the server where that is needed.
    pub fn resolve(self, client: &Client) -> Result<JobId, CliError> {
        match self {
            JobRef::Id(id) => Ok(id),
            JobRef::Newest => newest(client),
        }
    }
}

fn newest(client: &Client) -> Result<JobId, CliError> {
    let page: JobList = client.get(Target::new("jobs").with("limit", 1).with("mine", true))?;
    let none = || {
        CliError::new(Exit::NotFound, "`-` means your newest job, and you have none yet")
            .hint("`muster submit -- sleep 60`, or name a job by its id")
    };
    let task: JobId = id_of(&page.jobs.first().ok_or_else(none)?.id)?;
    // Of an array, the whole: its last task alone is never what is meant.
    Ok(JobId::single(task.number))
}

/// An id as the server writes it.
pub fn id_of(text: &str) -> Result<JobId, CliError> {
    text.parse().map_err(|error: muster_core::ids::NotAJobId| CliError::failed(error.to_string()))
}

/// The address of a job.
pub fn target(job: JobId) -> Target {
    Target::new("jobs").at(&job.to_string())
}

/// All about a job.
pub fn fetch(client: &Client, job: JobId) -> Result<Job, CliError> {
    client.get(target(job))
}

/// How many tasks an id means, where it means a whole array.
pub fn tasks_of(client: &Client, job: JobId) -> Result<Option<u64>, CliError> {
    if job.index.is_some() {
        return Ok(None);
    }
    Ok(fetch(client, job)?.array.map(|counts| counts.values().sum()))
}

/// Whether nothing more will become of it, or of any task of it.
pub fn has_ended(job: &Job) -> bool {
    match &job.array {
        Some(counts) => {
            counts.keys().all(|state| matches!(state.as_str(), "completed" | "failed" | "cancelled"))
        }
        None => is_terminal(job.summary.state),
    }
}

/// Whether a job in this state stays in it.
pub fn is_terminal(state: JobState) -> bool {
    matches!(state, JobState::Completed | JobState::Failed | JobState::Cancelled)
}

/// What `run` and `wait` return for a job that has ended: its own code, 128 + signal, or 1 when it has none of
/// its own. A job that did not end well never gives 0; an array gives 0 when all of its tasks ended well.
pub fn code_of(job: &Job) -> Code {
    let Some(counts) = &job.array else { return own_code(&job.summary) };
    if counts.keys().all(|state| state == "completed") { Code::DONE } else { Code(Exit::Failed as u8) }
}

fn own_code(job: &JobSummary) -> Code {
    let own = match (job.exit_code, job.signal) {
        (_, Some(signal)) => 128_i32.saturating_add(signal),
        (Some(code), None) => code,
        (None, None) => 0,
    };
    match (job.state, u8::try_from(own & 0xff).unwrap_or(1)) {
        (JobState::Completed, _) => Code::DONE,
        (_, 0) => Code(Exit::Failed as u8),
        (_, code) => Code(code),
    }
}

/// How it ended, in a few words.
pub fn ending(job: &Job) -> String {
    let Some(counts) = &job.array else { return own_ending(&job.summary) };
    let counts: Vec<String> = counts.iter().map(|(state, count)| format!("{count} {state}")).collect();
    format!("{} {}", job.summary.id, counts.join(", "))
}

fn own_ending(job: &JobSummary) -> String {
    let because = if job.message.is_empty() { String::new() } else { format!(": {}", job.message) };
    format!("{} {}{because}", job.id, job.phase.to_lowercase())
}

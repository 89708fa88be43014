//! Jobs as the commands handle them: resolving the id a user gives, fetching a job, its outcome and exit status.

use std::str::FromStr;

use muster_core::JobId;
use muster_protocol::job::{Job, JobList, JobState, JobSummary};

use crate::client::{Client, RequestTarget};
use crate::error::{CliError, Exit, ExitStatus};

/// A job as the user names it: `job-42`, `42`, `job-42.3`, or `-` for the user's newest job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobRef {
    Id(JobId),
    /// The job of the caller that was submitted last.
    Newest,
}

impl FromStr for JobRef {
    type Err = muster_core::ids::NotAJobId;

    fn from_str(text: &str) -> Result<JobRef, Self::Err> {
        if text == "-" { Ok(JobRef::Newest) } else { text.parse().map(JobRef::Id) }
    }
}

impl JobRef {
    /// The id; asks the server for the newest job.
    pub fn resolve(self, client: &Client) -> Result<JobId, CliError> {
        match self {
            JobRef::Id(id) => Ok(id),
            JobRef::Newest => newest_job(client),
        }
    }
}

fn newest_job(client: &Client) -> Result<JobId, CliError> {
    let page: JobList = client.get(RequestTarget::new("jobs").query("limit", 1).query("mine", true))?;
    let none = || {
        CliError::new(Exit::NotFound, "`-` means your newest job, and you have none yet")
            .hint("`muster submit -- sleep 60`, or name a job by its id")
    };
    let task: JobId = parse_job_id(&page.jobs.first().ok_or_else(none)?.id)?;
    // For an array `-` means the whole array, not its last task.
    Ok(JobId::single(task.number))
}

/// Parses an id from a response of the server.
pub fn parse_job_id(text: &str) -> Result<JobId, CliError> {
    text.parse().map_err(|error: muster_core::ids::NotAJobId| CliError::failed(error.to_string()))
}

pub fn job_target(job: JobId) -> RequestTarget {
    RequestTarget::new("jobs").segment(&job.to_string())
}

pub fn fetch_job(client: &Client, job: JobId) -> Result<Job, CliError> {
    client.get(job_target(job))
}

/// The number of jobs in the array; `None` if the id is not that of a whole array.
pub fn array_task_count(client: &Client, job: JobId) -> Result<Option<u64>, CliError> {
    if job.index.is_some() {
        return Ok(None);
    }
    Ok(fetch_job(client, job)?.array.map(|counts| counts.values().sum()))
}

/// Whether the job, or every job of the array, has ended.
pub fn has_ended(job: &Job) -> bool {
    match &job.array {
        Some(counts) => counts.keys().all(|state| matches!(state.as_str(), "completed" | "failed" | "cancelled")),
        None => is_terminal(job.summary.state),
    }
}

/// Whether the state is final.
pub fn is_terminal(state: JobState) -> bool {
    matches!(state, JobState::Completed | JobState::Failed | JobState::Cancelled)
}

/// The exit status of `run` and `wait` for a job that has ended: its exit code, 128 + signal, or 1 if it has neither.
/// A job that did not complete never gives 0; an array gives 0 only if all of its jobs completed.
pub fn exit_status_of(job: &Job) -> ExitStatus {
    let Some(counts) = &job.array else { return own_exit_status(&job.summary) };
    if counts.keys().all(|state| state == "completed") { ExitStatus::SUCCESS } else { ExitStatus(Exit::Failed as u8) }
}

fn own_exit_status(job: &JobSummary) -> ExitStatus {
    let own = match (job.exit_code, job.signal) {
        (_, Some(signal)) => 128_i32.saturating_add(signal),
        (Some(code), None) => code,
        (None, None) => 0,
    };
    match (job.state, u8::try_from(own & 0xff).unwrap_or(1)) {
        (JobState::Completed, _) => ExitStatus::SUCCESS,
        (_, 0) => ExitStatus(Exit::Failed as u8),
        (_, code) => ExitStatus(code),
    }
}

/// How the job ended, in one line.
pub fn outcome_text(job: &Job) -> String {
    let Some(counts) = &job.array else { return own_outcome_text(&job.summary) };
    let counts: Vec<String> = counts.iter().map(|(state, count)| format!("{count} {state}")).collect();
    format!("{} {}", job.summary.id, counts.join(", "))
}

fn own_outcome_text(job: &JobSummary) -> String {
    let because = if job.message.is_empty() { String::new() } else { format!(": {}", job.message) };
    format!("{} {}{because}", job.id, job.phase.to_lowercase())
}

/// The name of a state in the API.
pub fn state_name(state: JobState) -> &'static str {
    match state {
        JobState::Pending => "pending",
        JobState::Running => "running",
        JobState::Completed => "completed",
        JobState::Failed => "failed",
        JobState::Preempted => "preempted",
        JobState::Cancelled => "cancelled",
    }
}

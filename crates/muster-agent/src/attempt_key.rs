//! The key of an attempt on a node: the job id and the number of the attempt.

use crate::logs::{self, NotAJobId};

/// Identifies an attempt. The job id is well-formed, so no key can lead outside the data directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AttemptKey {
    job: String,
    attempt: u32,
}

impl AttemptKey {
    /// Refuses a job id that does not look like `job-42`.
    pub fn new(job: &str, attempt: u32) -> Result<AttemptKey, NotAJobId> {
        logs::check_job_id(job)?;
        Ok(AttemptKey { job: job.to_string(), attempt })
    }

    /// The job id, for example `job-42`.
    pub fn job(&self) -> &str {
        &self.job
    }

    pub fn attempt(&self) -> u32 {
        self.attempt
    }
}

//! The name of an attempt on a node: its job and its number.

use crate::logs::{self, NotAJobId};

/// Which attempt of which job. Its job is well-formed, so no key can lead outside the data folder.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AttemptKey {
    job: String,
    attempt: u32,
}

impl AttemptKey {
    /// An attempt of the job `job-42`.
    pub fn new(job: &str, attempt: u32) -> Result<AttemptKey, NotAJobId> {
        logs::check_job_id(job)?;
        Ok(AttemptKey { job: job.to_string(), attempt })
    }

    /// The job, `job-42`.
    pub fn job(&self) -> &str {
        &self.job
    }

    /// The attempt's number.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }
}

//! Remaining time of a job and its SRPT index: what the objective `fast` orders jobs by.
//!
//! The size of a job is its remaining GPU time. A job with a time limit is expected to use the part of its limit that
//! its user's jobs usually use, less what it has run. A job without a limit is estimated from the history of its class
//! ([`gittins`]). The SRPT index is the rate at which jobs of that size would complete on the GPUs of the job.
//!
//! [`gittins`]: crate::estimate::gittins

use crate::estimate::gittins::RemainingTime;

/// Remaining time of a user's jobs of one class at a moment.
pub(crate) struct RemainingModel<'a> {
    pub(super) by_class: RemainingTime<'a>,
    /// The part of their time limits that the user's jobs usually use, in thousandths.
    pub(super) limit_used_milli: Option<i64>,
    /// The median runtime of the user's jobs.
    pub(super) median_ms: Option<i64>,
    pub(super) gpu_milli: u64,
}

impl RemainingModel<'_> {
    /// Remaining time of a job that has run for `ran_ms`. `number` is its position among the submissions of its class;
    /// `None` for the next submission.
    pub fn remaining_ms(&self, limit_ms: Option<i64>, number: Option<u64>, ran_ms: i64) -> i64 {
        let Some(limit_ms) = limit_ms else { return self.by_class.remaining_ms(number, ran_ms) };
        let expected_ms = match (self.limit_used_milli, self.median_ms) {
            (Some(used), _) => (limit_ms / 1_000).saturating_mul(used),
            (None, Some(median)) => median.min(limit_ms),
            (None, None) => limit_ms,
        };
        // A job that overruns its estimate is expected to overrun by as much again; an estimate is never exact.
        expected_ms.saturating_sub(ran_ms).abs().max(expected_ms / 64).max(1)
    }

    /// The same in GPUs × milliseconds.
    pub fn size_gpu_ms(&self, limit_ms: Option<i64>, number: Option<u64>, ran_ms: i64) -> u64 {
        gpu_ms(self.remaining_ms(limit_ms, number, ran_ms), self.gpu_milli)
    }
}

pub(crate) fn gpu_ms(ms: i64, gpu_milli: u64) -> u64 {
    (ms.max(0) as u64).saturating_mul(gpu_milli) / 1_000
}

/// The rate at which jobs of a size complete on `gpu_milli` thousandths of GPUs, in units of 2^-40 per millisecond.
pub(crate) fn srpt_index(size_gpu_ms: u64, gpu_milli: u64) -> u64 {
    (gpu_milli << 40) / size_gpu_ms.max(1)
}

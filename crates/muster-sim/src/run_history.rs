//! The run history of a log under one policy: every interval in which a job held its GPUs, and how the interval
//! ended. All figures and plots are computed from it.

use crate::decision_digest::DecisionDigest;

/// The run intervals of all jobs under one policy.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RunHistory {
    /// The number of GPUs of the cluster.
    pub gpus: u32,
    /// Every interval, in the order of their ends.
    pub intervals: Vec<RunInterval>,
    /// The log indexes of jobs that were refused or never started, and why.
    pub refused: Vec<(usize, String)>,
    pub idle: IdleGpuTime,
    /// The number of planning rounds or selections.
    pub rounds: u64,
    /// The decisions of the planner; empty for other policies.
    pub digest: DecisionDigest,
}

/// An interval in which a job held its GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunInterval {
    pub log_index: usize,
    pub from_ms: i64,
    pub to_ms: i64,
    /// Thousandths of GPUs that were held.
    pub gpu_milli: u64,
    /// The sum of the power limits of these GPUs; 0 if unknown.
    pub milliwatts: u64,
    /// The part of the time whose work was not lost.
    pub useful_ms: i64,
    pub end: IntervalEnd,
}

impl RunInterval {
    pub fn duration_ms(&self) -> i64 {
        self.to_ms - self.from_ms
    }

    /// The held GPU time, in thousandths of GPUs × milliseconds.
    pub fn gpu_milli_ms(&self) -> u128 {
        u128::from(self.gpu_milli) * u128::from(self.duration_ms().unsigned_abs())
    }
}

/// How an interval ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IntervalEnd {
    Done,
    /// The time limit ended the job.
    TimeLimit,
    /// The job was preempted and waits again.
    Preempted,
}

/// GPU time that was idle while jobs waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IdleGpuTime {
    pub while_waiting_gpu_ms: u128,
    /// The part on nodes with fewer free GPUs than the smallest task of any waiting job needs. `None` if the policy
    /// does not place jobs on nodes.
    pub fragmented_gpu_ms: Option<u128>,
}

/// Accumulates idle GPU time between two records.
#[derive(Debug, Clone, Default)]
pub(crate) struct IdleGpuAccumulator {
    since_ms: i64,
    free_gpus: u64,
    fragmented_gpus: u64,
    while_waiting_gpu_ms: u128,
    fragmented_gpu_ms: u128,
    /// A record had no placement, so the fragmentation of the whole history is unknown.
    is_placement_unknown: bool,
}

impl IdleGpuAccumulator {
    /// From `now_ms` on, `free` GPUs are idle while jobs wait, `fragments` of them fragmented; both are 0 if no job
    /// waits.
    pub fn record(&mut self, now_ms: i64, free: u64, fragments: Option<u64>) {
        let ms = u128::from((now_ms - self.since_ms).max(0).unsigned_abs());
        self.while_waiting_gpu_ms += u128::from(self.free_gpus) * ms;
        self.fragmented_gpu_ms += u128::from(self.fragmented_gpus) * ms;
        self.is_placement_unknown |= fragments.is_none();
        (self.since_ms, self.free_gpus, self.fragmented_gpus) = (now_ms, free, fragments.unwrap_or(0));
    }

    pub fn total(&self) -> IdleGpuTime {
        IdleGpuTime {
            while_waiting_gpu_ms: self.while_waiting_gpu_ms,
            fragmented_gpu_ms: (!self.is_placement_unknown).then_some(self.fragmented_gpu_ms),
        }
    }
}

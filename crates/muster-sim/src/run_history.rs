//! What became of the jobs of a log under one policy: every stretch of time in which a job held its GPUs, and how each
//! stretch ended. All figures and plots are made of this.

use crate::decision_digest::DecisionDigest;

/// What became of the jobs.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RunHistory {
    /// GPUs of the cluster.
    pub gpus: u32,
    /// Every stretch, in the order in which they ended.
    pub intervals: Vec<RunInterval>,
    /// Jobs, by their place in the log, that the cluster refused or that never started, and why.
    pub refused: Vec<(usize, String)>,
    /// GPUs that stood free.
    pub idle: IdleGpuTime,
    /// How often it was asked who should run.
    pub rounds: u64,
    /// The decisions of the product; empty for other policies.
    pub digest: DecisionDigest,
}

/// A stretch of time in which a job held its GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunInterval {
    /// Its place in the log.
    pub log_index: usize,
    /// From when.
    pub from_ms: i64,
    /// Until when.
    pub to_ms: i64,
    /// How much of GPUs it held, in thousandths.
    pub gpu_milli: u64,
    /// The power limits of these GPUs together; 0 where they are not known.
    pub milliwatts: u64,
    /// How much of that time brought its work forward.
    pub useful_ms: i64,
    /// How it ended.
    pub end: IntervalEnd,
}

impl RunInterval {
    /// How long it was.
    pub fn duration_ms(&self) -> i64 {
        self.to_ms - self.from_ms
    }

    /// Thousandths of GPUs × milliseconds.
    pub fn gpu_milli_ms(&self) -> u128 {
        u128::from(self.gpu_milli) * u128::from(self.duration_ms().unsigned_abs())
    }
}

/// How a stretch ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IntervalEnd {
    /// The work is done.
    Done,
    /// The time limit came first.
    TimeLimit,
    /// Another job took the place; this one comes back.
    Preempted,
}

/// GPU-time that stood free while jobs waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IdleGpuTime {
    /// GPUs × milliseconds that were free while someone waited.
    pub while_waiting_gpu_ms: u128,
    /// Of these, on nodes with fewer free GPUs than the smallest task of anyone who waited needed. Nothing where the
    /// policy does not say where jobs sit.
    pub fragmented_gpu_ms: Option<u128>,
}

/// Adds up what stands free, from one moment to the next.
#[derive(Debug, Clone, Default)]
pub(crate) struct IdleGpuAccumulator {
    since_ms: i64,
    free_gpus: u64,
    fragmented_gpus: u64,
    while_waiting_gpu_ms: u128,
    fragmented_gpu_ms: u128,
    /// Once it was not known where jobs sit, the sum is not known either.
    is_placement_unknown: bool,
}

impl IdleGpuAccumulator {
    /// From a moment on so many GPUs are free while someone waits, and so many of them of no use; zero when nobody does.
    pub fn record(&mut self, now_ms: i64, free: u64, fragments: Option<u64>) {
        let ms = u128::from((now_ms - self.since_ms).max(0).unsigned_abs());
        self.while_waiting_gpu_ms += u128::from(self.free_gpus) * ms;
        self.fragmented_gpu_ms += u128::from(self.fragmented_gpus) * ms;
        self.is_placement_unknown |= fragments.is_none();
        (self.since_ms, self.free_gpus, self.fragmented_gpus) = (now_ms, free, fragments.unwrap_or(0));
    }

    /// The sums until now.
    pub fn total(&self) -> IdleGpuTime {
        IdleGpuTime {
            while_waiting_gpu_ms: self.while_waiting_gpu_ms,
            fragmented_gpu_ms: (!self.is_placement_unknown).then_some(self.fragmented_gpu_ms),
        }
    }
}

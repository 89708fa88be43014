//! What became of the jobs of a log under one policy: every stretch of time in which a job held its GPUs, and how each
//! stretch ended. All figures and plots are made of this.

use crate::digest::Digest;

/// What became of the jobs.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct History {
    /// GPUs of the cluster.
    pub gpus: u32,
    /// Every stretch, in the order in which they ended.
    pub stretches: Vec<Stretch>,
    /// Jobs, by their place in the log, that the cluster refused or that never started, and why.
    pub refused: Vec<(usize, String)>,
    /// GPUs that stood free.
    pub free: Free,
    /// How often it was asked who should run.
    pub rounds: u64,
    /// The decisions of the product; empty for other policies.
    pub digest: Digest,
}

/// A stretch of time in which a job held its GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stretch {
    /// Its place in the log.
    pub job: usize,
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
    pub end: End,
}

impl Stretch {
    /// How long it was.
    pub fn ms(&self) -> i64 {
        self.to_ms - self.from_ms
    }

    /// Thousandths of GPUs × milliseconds.
    pub fn gpu_milli_ms(&self) -> u128 {
        u128::from(self.gpu_milli) * u128::from(self.ms().unsigned_abs())
    }
}

/// How a stretch ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The work is done.
    Done,
    /// The time limit came first.
    TimeLimit,
    /// Another job took the place; this one comes back.
    Displaced,
}

/// GPU-time that stood free while jobs waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Free {
    /// GPUs × milliseconds that were free while someone waited.
    pub while_waiting_gpu_ms: u128,
    /// Of these, on nodes with fewer free GPUs than the smallest task of anyone who waited needed. Nothing where the
    /// policy does not say where jobs sit.
    pub fragments_gpu_ms: Option<u128>,
}

/// Adds up what stands free, from one moment to the next.
#[derive(Debug, Clone, Default)]
pub(crate) struct FreeSum {
    since_ms: i64,
    free: u64,
    fragments: u64,
    while_waiting_gpu_ms: u128,
    fragments_gpu_ms: u128,
    /// Once it was not known where jobs sit, the sum is not known either.
    seats_unknown: bool,
}

impl FreeSum {
    /// From a moment on so many GPUs are free while someone waits, and so many of them of no use; zero when nobody does.
    pub fn set(&mut self, now_ms: i64, free: u64, fragments: Option<u64>) {
        let ms = u128::from((now_ms - self.since_ms).max(0).unsigned_abs());
        self.while_waiting_gpu_ms += u128::from(self.free) * ms;
        self.fragments_gpu_ms += u128::from(self.fragments) * ms;
        self.seats_unknown |= fragments.is_none();
        (self.since_ms, self.free, self.fragments) = (now_ms, free, fragments.unwrap_or(0));
    }

    /// The sums until now.
    pub fn sum(&self) -> Free {
        Free {
            while_waiting_gpu_ms: self.while_waiting_gpu_ms,
            fragments_gpu_ms: (!self.seats_unknown).then_some(self.fragments_gpu_ms),
        }
    }
}

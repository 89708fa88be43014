//! Statistics of the planner's rounds for the metrics: durations, proposals, and the parts of plans that adoption
//! rejected.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muster_core::facts::plan::{RejectedPart, Rejection};

/// Upper bounds of the buckets of the histogram of durations, in microseconds.
pub const ROUND_BUCKETS_US: [u64; 10] =
    [100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000];

/// Statistics of all rounds since the start.
#[derive(Default)]
pub struct RoundStats(Mutex<RoundTotals>);

/// Sums over all rounds since the start.
#[derive(Debug, Clone, Default)]
pub struct RoundTotals {
    pub rounds: u64,
    pub total_time: Duration,
    pub last_round: Duration,
    /// Rounds per bucket of [`ROUND_BUCKETS_US`]; longer rounds count in `rounds` only.
    pub bucket_counts: [u64; ROUND_BUCKETS_US.len()],
    /// Proposed starts of gangs.
    pub starts: u64,
    /// Proposed evictions.
    pub evictions: u64,
    /// Parts of plans that adoption rejected, by reason.
    pub rejections: BTreeMap<Rejection, u64>,
}

impl RoundStats {
    /// Count one round.
    pub fn record(&self, took: Duration, starts: usize, evictions: usize) {
        let mut totals = self.lock();
        totals.rounds += 1;
        totals.total_time += took;
        totals.last_round = took;
        totals.starts += starts as u64;
        totals.evictions += evictions as u64;
        let micros = took.as_micros() as u64;
        if let Some(bucket) = ROUND_BUCKETS_US.iter().position(|bound| micros <= *bound) {
            totals.bucket_counts[bucket] += 1;
        }
    }

    /// Count the parts of one plan that adoption rejected.
    pub fn record_rejections(&self, rejected: &[RejectedPart]) {
        let mut totals = self.lock();
        for part in rejected {
            *totals.rejections.entry(part.reason).or_default() += 1;
        }
    }

    pub fn totals(&self) -> RoundTotals {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, RoundTotals> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

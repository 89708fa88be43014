//! What planning rounds cost, for the metrics and for anyone who asks whether the planner keeps up.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Upper bounds of the histogram's buckets, in microseconds.
pub const BUCKETS_US: [u64; 10] =
    [100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000];

/// The cost of all rounds so far.
#[derive(Default)]
pub struct Rounds(Mutex<Tally>);

/// Sums over all rounds.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// Rounds.
    pub rounds: u64,
    /// Time spent.
    pub total: Duration,
    /// The newest round.
    pub last: Duration,
    /// Rounds within each bound of `BUCKETS_US`; longer ones only count in `rounds`.
    pub within: [u64; BUCKETS_US.len()],
    /// Gangs proposed to start.
    pub starts: u64,
    /// Gangs proposed to make room for.
    pub claims: u64,
}

impl Rounds {
    /// Count one round.
    pub fn note(&self, took: Duration, starts: usize, claims: usize) {
        let mut tally = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tally.rounds += 1;
        tally.total += took;
        tally.last = took;
        tally.starts += starts as u64;
        tally.claims += claims as u64;
        let micros = took.as_micros() as u64;
        if let Some(bucket) = BUCKETS_US.iter().position(|bound| micros <= *bound) {
            tally.within[bucket] += 1;
        }
    }

    /// The sums so far.
    pub fn tally(&self) -> Tally {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

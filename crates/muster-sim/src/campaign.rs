//! Many stories at once, on all cores.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::fault_schedule::FaultSchedule;
use crate::sim_cluster::{RunFailure, RunSummary, run_schedule};

/// What came of many stories.
#[derive(Debug, Clone, Default)]
pub struct Campaign {
    /// How many were told to their end.
    pub schedules_passed: u64,
    /// What happened in all of them together.
    pub totals: RunSummary,
    /// The lowest seed whose story broke a law, and which.
    pub failure: Option<(u64, RunFailure)>,
}

/// Tell the stories of these seeds on so many threads. The first that ends badly ends the campaign.
pub fn run(first: u64, seeds: u64, steps: u64, threads: usize) -> Campaign {
    let (next, stop) = (AtomicU64::new(first), AtomicBool::new(false));
    let sum = Mutex::new(Campaign::default());
    let end = first.saturating_add(seeds);
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        return;
                    }
                    let judged = run_schedule(&FaultSchedule::from_seed(seed, steps));
                    stop.fetch_or(judged.is_err(), Ordering::Relaxed);
                    sum.lock().unwrap_or_else(PoisonError::into_inner).add_run(seed, judged);
                }
            });
        }
    });
    sum.into_inner().unwrap_or_else(PoisonError::into_inner)
}

impl Campaign {
    fn add_run(&mut self, seed: u64, judged: Result<RunSummary, RunFailure>) {
        match judged {
            Ok(told) => {
                self.schedules_passed += 1;
                self.totals.steps += told.steps;
                self.totals.entries += told.entries;
                self.totals.jobs += told.jobs;
                self.totals.simulated_ms += told.simulated_ms;
                self.totals.leaderships += told.leaderships;
                add_event_counts(&mut self.totals.events, told.events);
            }
            Err(failure) if self.failure.as_ref().is_none_or(|(known, _)| seed < *known) => {
                self.failure = Some((seed, failure));
            }
            Err(_) => {}
        }
    }
}

fn add_event_counts(sum: &mut BTreeMap<&'static str, u64>, more: BTreeMap<&'static str, u64>) {
    for (kind, count) in more {
        *sum.entry(kind).or_default() += count;
    }
}

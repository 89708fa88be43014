//! A campaign: runs the fault schedules of many seeds on all cores.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::fault_schedule::FaultSchedule;
use crate::sim_cluster::{RunFailure, RunSummary, run_schedule};

/// The result of many runs.
#[derive(Debug, Clone, Default)]
pub struct Campaign {
    /// Runs that broke no law.
    pub schedules_passed: u64,
    /// The sums over all runs.
    pub totals: RunSummary,
    /// The lowest seed that broke a law, and the failure.
    pub failure: Option<(u64, RunFailure)>,
}

/// Runs the schedules of `seeds` seeds from `first` on. The first failure ends the campaign.
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
                    let result = run_schedule(&FaultSchedule::from_seed(seed, steps));
                    stop.fetch_or(result.is_err(), Ordering::Relaxed);
                    sum.lock().unwrap_or_else(PoisonError::into_inner).add_run(seed, result);
                }
            });
        }
    });
    sum.into_inner().unwrap_or_else(PoisonError::into_inner)
}

impl Campaign {
    fn add_run(&mut self, seed: u64, result: Result<RunSummary, RunFailure>) {
        match result {
            Ok(summary) => {
                self.schedules_passed += 1;
                self.totals.steps += summary.steps;
                self.totals.entries += summary.entries;
                self.totals.jobs += summary.jobs;
                self.totals.simulated_ms += summary.simulated_ms;
                self.totals.leaderships += summary.leaderships;
                add_event_counts(&mut self.totals.events, summary.events);
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

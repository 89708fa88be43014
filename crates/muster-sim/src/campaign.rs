//! Many stories at once, on all cores.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::story::Story;
use crate::world::{Failure, Told, tell};

/// What came of many stories.
#[derive(Debug, Clone, Default)]
pub struct Campaign {
    /// How many were told to their end.
    pub stories: u64,
    /// What happened in all of them together.
    pub told: Told,
    /// The lowest seed whose story broke a law, and which.
    pub failure: Option<(u64, Failure)>,
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
                    let judged = tell(&Story::of_seed(seed, steps));
                    stop.fetch_or(judged.is_err(), Ordering::Relaxed);
                    sum.lock().unwrap_or_else(PoisonError::into_inner).add(seed, judged);
                }
            });
        }
    });
    sum.into_inner().unwrap_or_else(PoisonError::into_inner)
}

impl Campaign {
    fn add(&mut self, seed: u64, judged: Result<Told, Failure>) {
        match judged {
            Ok(told) => {
                self.stories += 1;
                self.told.steps += told.steps;
                self.told.entries += told.entries;
                self.told.jobs += told.jobs;
                self.told.ms += told.ms;
                self.told.leaders += told.leaders;
                add_all(&mut self.told.events, told.events);
            }
            Err(failure) if self.failure.as_ref().is_none_or(|(known, _)| seed < *known) => {
                self.failure = Some((seed, failure));
            }
            Err(_) => {}
        }
    }
}

fn add_all(sum: &mut BTreeMap<&'static str, u64>, more: BTreeMap<&'static str, u64>) {
    for (kind, count) in more {
        *sum.entry(kind).or_default() += count;
    }
}

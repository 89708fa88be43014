//! Counters of events since the start.

use std::sync::{Mutex, OnceLock, PoisonError};

use muster_core::Event;
use muster_core::facts::event::NextPhase;
use muster_core::objects::job::{Outcome, StopCause};
use tokio::sync::broadcast::error::RecvError;

use crate::cluster::{Batch, Cluster};

/// Upper bounds of the buckets of the histogram of waits, in seconds: up to a day.
pub const WAIT_BOUNDS_S: [u64; 10] = [1, 5, 15, 60, 300, 900, 3_600, 14_400, 43_200, 86_400];

/// Counts events as they become durable.
#[derive(Default)]
pub struct EventCounters {
    counts: Mutex<EventCounts>,
    subscribed: OnceLock<()>,
}

#[derive(Debug, Clone, Default)]
pub struct EventCounts {
    /// Accepted jobs; every job of an array counts.
    pub submitted: u64,
    /// Placements of gangs.
    pub placed: u64,
    /// Preempted attempts.
    pub preempted: u64,
    /// Jobs that completed, failed, and were cancelled.
    pub ended: [u64; 3],
    /// Changes of GPU health.
    pub health_changes: u64,
    /// First placements per bucket of their wait; longer waits count in `waits` only.
    pub waits_within: [u64; WAIT_BOUNDS_S.len()],
    /// First placements.
    pub waits: u64,
    /// Sum of the waits until the first placement.
    pub waited_ms: u64,
    /// Batches that were not counted, because this subscriber lagged.
    pub missed_batches: u64,
}

impl EventCounters {
    /// Count the events of the cluster from now on. Only the first call has an effect. Must be called inside the async
    /// runtime.
    pub fn subscribe_once(self: &std::sync::Arc<EventCounters>, cluster: &Cluster) {
        if self.subscribed.set(()).is_err() {
            return;
        }
        let (counters, cluster) = (self.clone(), cluster.clone());
        let mut batches = cluster.subscribe();
        tokio::spawn(async move {
            loop {
                match batches.recv().await {
                    Ok(batch) => counters.count_batch(&cluster, &batch),
                    Err(RecvError::Lagged(missed)) => counters.lock().missed_batches += missed,
                    Err(RecvError::Closed) => return,
                }
            }
        });
    }

    pub fn counts(&self) -> EventCounts {
        self.lock().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, EventCounts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count_batch(&self, cluster: &Cluster, batch: &Batch) {
        for event in batch.events() {
            let wait_ms = first_wait_ms(cluster, event);
            let mut counts = self.lock();
            counts.count_event(event);
            if let Some(ms) = wait_ms {
                counts.count_wait(ms);
            }
        }
    }
}

/// The wait of a job, if the event is its first placement and the job is still in the state.
fn first_wait_ms(cluster: &Cluster, event: &Event) -> Option<u64> {
    let Event::JobPlaced { job, attempt: 1, at, .. } = event else { return None };
    cluster.read(|state| state.jobs.get(job).map(|job| at.since(job.submitted_at) as u64))
}

impl EventCounts {
    fn count_event(&mut self, event: &Event) {
        match event {
            Event::JobSubmitted { array, .. } => {
                self.submitted += array.as_ref().map_or(1, |array| array.indexes.len() as u64);
            }
            Event::JobPlaced { .. } => self.placed += 1,
            Event::AttemptStopping { cause: StopCause::Preempted { .. }, .. } => self.preempted += 1,
            Event::JobEnded { outcome, .. } | Event::AttemptEnded { next: NextPhase::Ended { outcome, .. }, .. } => {
                self.count_outcome(*outcome)
            }
            Event::GpuHealthChanged { .. } => self.health_changes += 1,
            _ => {}
        }
    }

    fn count_outcome(&mut self, outcome: Outcome) {
        let index = match outcome {
            Outcome::Done => 0,
            Outcome::Failed => 1,
            Outcome::Cancelled => 2,
        };
        self.ended[index] += 1;
    }

    fn count_wait(&mut self, ms: u64) {
        self.waits += 1;
        self.waited_ms += ms;
        if let Some(bucket) = WAIT_BOUNDS_S.iter().position(|bound| ms <= bound * 1_000) {
            self.waits_within[bucket] += 1;
        }
    }
}

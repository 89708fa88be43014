//! What happened since the start, counted from the events.

use std::sync::{Mutex, OnceLock, PoisonError};

use muster_core::Event;
use muster_core::event::Next;
use muster_core::job::{Outcome, StopCause};
use tokio::sync::broadcast::error::RecvError;

use crate::cluster::{Batch, Cluster};

/// Upper bounds of the waits that are told apart, in seconds: from an instant to a day.
pub const WAIT_BOUNDS_S: [u64; 10] = [1, 5, 15, 60, 300, 900, 3_600, 14_400, 43_200, 86_400];

/// Counts events as they become durable.
#[derive(Default)]
pub struct Seen {
    counts: Mutex<Counts>,
    follows: OnceLock<()>,
}

/// The counts so far.
#[derive(Debug, Clone, Default)]
pub struct Counts {
    /// Jobs accepted; tasks of arrays count each.
    pub submitted: u64,
    /// Gangs that got their slots.
    pub placed: u64,
    /// Attempts told to make room.
    pub preempted: u64,
    /// Jobs that ended well, failed, and were cancelled.
    pub ended: [u64; 3],
    /// Health of GPUs that changed.
    pub health_changes: u64,
    /// First placements with a wait within each bound; longer ones only count in `waits`.
    pub waits_within: [u64; WAIT_BOUNDS_S.len()],
    /// First placements.
    pub waits: u64,
    /// Their waits together.
    pub waited_ms: u64,
    /// Batches that went by unseen.
    pub missed: u64,
}

impl Seen {
    /// Follow the cluster from now on. The first call does; must be called inside the async runtime.
    pub fn follow(self: &std::sync::Arc<Seen>, cluster: &Cluster) {
        if self.follows.set(()).is_err() {
            return;
        }
        let (seen, cluster) = (self.clone(), cluster.clone());
        let mut batches = cluster.listen();
        tokio::spawn(async move {
            loop {
                match batches.recv().await {
                    Ok(batch) => seen.count(&cluster, &batch),
                    Err(RecvError::Lagged(missed)) => seen.lock().missed += missed,
                    Err(RecvError::Closed) => return,
                }
            }
        });
    }

    /// The counts so far.
    pub fn counts(&self) -> Counts {
        self.lock().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, cluster: &Cluster, batch: &Batch) {
        for event in batch.events() {
            let wait_ms = first_wait_ms(cluster, event);
            let mut counts = self.lock();
            counts.count(event);
            if let Some(ms) = wait_ms {
                counts.wait(ms);
            }
        }
    }
}

/// How long a job waited, if this is its first placement and it still lives.
fn first_wait_ms(cluster: &Cluster, event: &Event) -> Option<u64> {
    let Event::JobPlaced { job, attempt: 1, at, .. } = event else { return None };
    cluster.read(|state| state.jobs.get(job).map(|job| at.since(job.submitted_at) as u64))
}

impl Counts {
    fn count(&mut self, event: &Event) {
        match event {
            Event::JobSubmitted { array, .. } => {
                self.submitted += array.as_ref().map_or(1, |array| array.indexes.len() as u64);
            }
            Event::JobPlaced { .. } => self.placed += 1,
            Event::AttemptStopping { cause: StopCause::Preempted { .. }, .. } => self.preempted += 1,
            Event::JobEnded { outcome, .. }
            | Event::AttemptEnded { next: Next::Ended { outcome, .. }, .. } => self.end(*outcome),
            Event::GpuHealthChanged { .. } => self.health_changes += 1,
            _ => {}
        }
    }

    fn end(&mut self, outcome: Outcome) {
        let place = match outcome {
            Outcome::Done => 0,
            Outcome::Failed => 1,
            Outcome::Cancelled => 2,
        };
        self.ended[place] += 1;
    }

    fn wait(&mut self, ms: u64) {
        self.waits += 1;
        self.waited_ms += ms;
        if let Some(place) = WAIT_BOUNDS_S.iter().position(|bound| ms <= bound * 1_000) {
            self.waits_within[place] += 1;
        }
    }
}

//! What the server tells about itself while it runs: log lines to stderr, and one trace per job to a collector.
//!
//! A trace is made from the events after they are durable, so tracing costs the engine nothing and cannot be
//! wrong about what happened. Its number follows from the job and its submission: a restarted server goes on
//! with the same trace, and whoever knows the job can find it.

mod journey;
mod log;
mod otlp;

use std::sync::Arc;

use muster_core::Timestamp;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;

pub use journey::trace_id;
pub use log::{LogError, start_logging};
pub use otlp::TraceError;

use crate::clock::{Clock, SystemClock};
use crate::cluster::{Batch, Cluster};
use crate::config::Telemetry;
use journey::{Journeys, Span};
use otlp::Exporter;

/// Spans that may wait for a slow collector; above this they are dropped, and that is logged.
const WAITING_MAX: usize = 16_384;

/// Send one trace per job to the collector until `stopping` is ready. Ends at once when none is configured.
pub async fn trace_jobs(
    cluster: Cluster,
    telemetry: Telemetry,
    environment: String,
    stopping: impl Future<Output = ()>,
) -> Result<(), TraceError> {
    let Some(endpoint) = telemetry.otlp_endpoint else { return Ok(()) };
    let exporter = Exporter::new(&endpoint, &environment)?;
    let batches = cluster.listen();
    let jobs = || cluster.read(Journeys::of);
    follow(batches, jobs, stopping, exporter).await;
    Ok(())
}

/// Turn batches into spans and ship them, both at their own pace.
async fn follow(
    batches: Receiver<Arc<Batch>>,
    jobs: impl Fn() -> Journeys,
    stopping: impl Future<Output = ()>,
    exporter: Exporter,
) {
    let (waiting, spans) = mpsc::channel(WAITING_MAX);
    let follower = Follower { journeys: jobs(), waiting, dropped: 0 };
    tokio::join!(follower.run(batches, jobs, stopping), exporter.ship(spans));
}

struct Follower {
    journeys: Journeys,
    waiting: mpsc::Sender<Span>,
    dropped: u64,
}

impl Follower {
    /// When it ends it lets go of its end of the channel, and the exporter ends after the last span.
    async fn run(
        mut self,
        mut batches: Receiver<Arc<Batch>>,
        jobs: impl Fn() -> Journeys,
        stopping: impl Future<Output = ()>,
    ) {
        let mut stopping = std::pin::pin!(stopping);
        loop {
            let received = tokio::select! {
                received = batches.recv() => received,
                () = &mut stopping => return,
            };
            match received {
                Ok(batch) => self.take(&batch),
                Err(RecvError::Lagged(missed)) => {
                    tracing::warn!(missed, "tracing fell behind: some traces have gaps");
                    self.journeys = jobs();
                }
                Err(RecvError::Closed) => return,
            }
        }
    }

    fn take(&mut self, batch: &Batch) {
        let seen_at = now();
        for event in batch.events() {
            for span in self.journeys.take(event, seen_at) {
                self.hand_on(span);
            }
        }
    }

    /// Never waits: a collector that is slow must not make us miss what happens next.
    fn hand_on(&mut self, span: Span) {
        if self.waiting.try_send(span).is_ok() {
            return;
        }
        self.dropped += 1;
        if self.dropped.is_power_of_two() {
            tracing::warn!(dropped = self.dropped, "the trace collector is too slow: spans are dropped");
        }
    }
}

fn now() -> Timestamp {
    SystemClock.now()
}

#[cfg(test)]
mod tests;

//! Telemetry of the server: log lines to stderr, and one trace per job to an OpenTelemetry collector.
//!
//! Traces are built from events after they are durable, so tracing costs the engine nothing and shows what really
//! happened. The trace id follows from the job and its time of submission: a restarted server continues the same trace,
//! and the trace can be found from the job.

mod job_trace;
mod log;
mod otlp;

use std::sync::Arc;

use muster_core::Timestamp;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;

pub use job_trace::trace_id;
pub use log::{LoggingError, start_logging};
pub use otlp::TraceError;

use crate::clock::{Clock, SystemClock};
use crate::cluster::{Batch, Cluster};
use crate::config::TelemetryConfig;
use job_trace::{JobTraces, Span};
use otlp::Exporter;

/// Spans that may wait for a slow collector; beyond that they are dropped, and the log says so.
const QUEUED_SPANS_MAX: usize = 16_384;

/// Send one trace per job to the collector until `stopping` is ready. Ends at once if no collector is configured.
pub async fn trace_jobs(
    cluster: Cluster,
    telemetry: TelemetryConfig,
    environment: String,
    stopping: impl Future<Output = ()>,
) -> Result<(), TraceError> {
    let Some(endpoint) = telemetry.otlp_endpoint else { return Ok(()) };
    let exporter = Exporter::new(&endpoint, &environment)?;
    let batches = cluster.subscribe();
    let jobs = || cluster.read(JobTraces::from_state);
    trace_batches(batches, jobs, stopping, exporter).await;
    Ok(())
}

/// Turn batches into spans and export them, each at its own pace.
async fn trace_batches(
    batches: Receiver<Arc<Batch>>,
    jobs: impl Fn() -> JobTraces,
    stopping: impl Future<Output = ()>,
    exporter: Exporter,
) {
    let (span_queue, spans) = mpsc::channel(QUEUED_SPANS_MAX);
    let producer = SpanProducer { traces: jobs(), span_queue, dropped: 0 };
    tokio::join!(producer.run(batches, jobs, stopping), exporter.export_all(spans));
}

struct SpanProducer {
    traces: JobTraces,
    span_queue: mpsc::Sender<Span>,
    dropped: u64,
}

impl SpanProducer {
    /// Produce spans until the server stops. The end closes the queue, and the exporter ends after the last span.
    async fn run(
        mut self,
        mut batches: Receiver<Arc<Batch>>,
        jobs: impl Fn() -> JobTraces,
        stopping: impl Future<Output = ()>,
    ) {
        let mut stopping = std::pin::pin!(stopping);
        loop {
            let received = tokio::select! {
                received = batches.recv() => received,
                () = &mut stopping => return,
            };
            match received {
                Ok(batch) => self.process_batch(&batch),
                Err(RecvError::Lagged(missed)) => {
                    tracing::warn!(missed, "tracing lagged behind the journal; some traces are incomplete");
                    self.traces = jobs();
                }
                Err(RecvError::Closed) => return,
            }
        }
    }

    fn process_batch(&mut self, batch: &Batch) {
        let seen_at = now();
        for event in batch.events() {
            for span in self.traces.spans_completed_by(event, seen_at) {
                self.enqueue_span(span);
            }
        }
    }

    /// Never blocks: a slow collector must not delay the next batch.
    fn enqueue_span(&mut self, span: Span) {
        if self.span_queue.try_send(span).is_ok() {
            return;
        }
        self.dropped += 1;
        if self.dropped.is_power_of_two() {
            tracing::warn!(dropped = self.dropped, "the trace collector is too slow; spans are dropped");
        }
    }
}

fn now() -> Timestamp {
    SystemClock.now()
}

#[cfg(test)]
mod tests;

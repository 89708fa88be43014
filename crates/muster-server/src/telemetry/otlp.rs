//! Spans to a collector, by OTLP over HTTP.
//!
//! We hand finished spans to the exporter ourselves. The tracer of the SDK would choose its own numbers and
//! times, and its batching threads; ours come from the journal.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use muster_core::Timestamp;
use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_otlp::{ExporterBuildError, SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanExporter as _, SpanLinks};
use tokio::sync::mpsc;

use super::journey::{About, Span};

/// What one request to the collector carries at most.
const SPANS_PER_REQUEST: usize = 512;
/// A collector on the same network answers in milliseconds.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why there are no traces.
#[derive(Debug, thiserror::Error)]
#[error("cannot send traces to `{endpoint}`: {source}")]
pub struct TraceError {
    endpoint: String,
    source: ExporterBuildError,
}

/// The way to the collector.
pub(super) struct Exporter {
    inner: SpanExporter,
    /// Spans lost since the collector last answered.
    lost: usize,
}

impl Exporter {
    pub fn new(endpoint: &str, environment: &str) -> Result<Exporter, TraceError> {
        let built = SpanExporter::builder()
            .with_http()
            .with_endpoint(traces_url(endpoint))
            .with_timeout(PATIENCE)
            .build();
        let mut inner = built.map_err(|source| TraceError { endpoint: endpoint.to_string(), source })?;
        inner.set_resource(&resource(environment));
        Ok(Exporter { inner, lost: 0 })
    }

    /// Send what comes until nothing more can come. While one request is under way others gather for the next.
    pub async fn ship(mut self, mut spans: mpsc::Receiver<Span>) {
        let mut gathered = Vec::new();
        while spans.recv_many(&mut gathered, SPANS_PER_REQUEST).await > 0 {
            let count = gathered.len();
            let sent = self.inner.export(gathered.drain(..).map(data).collect()).await;
            self.note(count, sent.map_err(|error| error.to_string()));
        }
        // The connection ends with the exporter; there is nothing left to flush.
        let _ = self.inner.shutdown();
    }

    /// Say once that the collector is away, and once that it is back.
    fn note(&mut self, count: usize, sent: Result<(), String>) {
        match sent {
            Ok(()) if self.lost > 0 => {
                tracing::info!(lost = self.lost, "the trace collector answers again");
                self.lost = 0;
            }
            Ok(()) => {}
            Err(error) => {
                if self.lost == 0 {
                    tracing::warn!(
                        error,
                        "the trace collector does not answer: traces are lost until it does"
                    );
                }
                self.lost += count;
            }
        }
    }
}

/// The standard names the base address; the path is ours to add.
fn traces_url(endpoint: &str) -> String {
    if endpoint.ends_with("/v1/traces") { endpoint.to_string() } else { format!("{endpoint}/v1/traces") }
}

fn resource(environment: &str) -> Resource {
    let about = [
        KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
        KeyValue::new("deployment.environment.name", environment.to_string()),
    ];
    Resource::builder().with_service_name("muster").with_attributes(about).build()
}

fn data(span: Span) -> SpanData {
    let trace = TraceId::from_bytes(span.trace);
    let context =
        |id| SpanContext::new(trace, SpanId::from_bytes(id), TraceFlags::SAMPLED, false, TraceState::NONE);
    SpanData {
        span_context: context(span.id),
        parent_span_id: span.parent.map_or(SpanId::INVALID, SpanId::from_bytes),
        parent_span_is_remote: false,
        span_kind: SpanKind::Internal,
        name: span.name.into(),
        start_time: moment(span.from),
        end_time: moment(span.until),
        attributes: span.about.into_iter().map(attribute).collect(),
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status: span.failure.map_or(Status::Unset, Status::error),
        instrumentation_scope: InstrumentationScope::builder("muster").build(),
    }
}

fn attribute((name, value): (&'static str, About)) -> KeyValue {
    match value {
        About::Text(text) => KeyValue::new(name, text),
        About::Number(number) => KeyValue::new(name, number),
    }
}

fn moment(at: Timestamp) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(u64::try_from(at.0).unwrap_or(0))
}

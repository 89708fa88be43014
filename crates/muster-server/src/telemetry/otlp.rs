//! Export of spans to a collector, by OTLP over HTTP.
//!
//! Finished spans are passed to the exporter directly. The tracer of the SDK would choose ids, times and batching threads
//! of its own; here they come from the journal.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use muster_core::Timestamp;
use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_otlp::{ExporterBuildError, SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanExporter as _, SpanLinks};
use tokio::sync::mpsc;

use super::job_trace::{AttributeValue, Span};

/// Most spans in one request to the collector.
const SPANS_PER_REQUEST: usize = 512;
/// A collector on the same network answers in milliseconds.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// Why traces cannot be exported.
#[derive(Debug, thiserror::Error)]
#[error("cannot send traces to `{endpoint}`: {source}")]
pub struct TraceError {
    endpoint: String,
    source: ExporterBuildError,
}

/// Exports spans to the collector.
pub(super) struct Exporter {
    inner: SpanExporter,
    /// Spans lost since the collector last answered.
    lost_spans: usize,
}

impl Exporter {
    pub fn new(endpoint: &str, environment: &str) -> Result<Exporter, TraceError> {
        let built = SpanExporter::builder()
            .with_http()
            .with_endpoint(traces_url(endpoint))
            .with_timeout(EXPORT_TIMEOUT)
            .build();
        let mut inner = built.map_err(|source| TraceError { endpoint: endpoint.to_string(), source })?;
        inner.set_resource(&resource(environment));
        Ok(Exporter { inner, lost_spans: 0 })
    }

    /// Export spans until the queue is closed and empty. During one request, further spans wait for the next.
    pub async fn export_all(mut self, mut spans: mpsc::Receiver<Span>) {
        let mut batch = Vec::new();
        while spans.recv_many(&mut batch, SPANS_PER_REQUEST).await > 0 {
            let count = batch.len();
            let sent = self.inner.export(batch.drain(..).map(span_data).collect()).await;
            self.log_export_result(count, sent.map_err(|error| error.to_string()));
        }
        // Nothing is left to flush, so an error has no effect.
        let _ = self.inner.shutdown();
    }

    /// Log once when the collector stops answering, and once when it answers again.
    fn log_export_result(&mut self, count: usize, sent: Result<(), String>) {
        match sent {
            Ok(()) if self.lost_spans > 0 => {
                tracing::info!(lost = self.lost_spans, "the trace collector answers again");
                self.lost_spans = 0;
            }
            Ok(()) => {}
            Err(error) => {
                if self.lost_spans == 0 {
                    tracing::warn!(error, "the trace collector does not answer; spans are lost until it does");
                }
                self.lost_spans += count;
            }
        }
    }
}

/// The configured endpoint is the base address, as OTLP specifies; the path is added here.
fn traces_url(endpoint: &str) -> String {
    if endpoint.ends_with("/v1/traces") { endpoint.to_string() } else { format!("{endpoint}/v1/traces") }
}

fn resource(environment: &str) -> Resource {
    let attributes = [
        KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
        KeyValue::new("deployment.environment.name", environment.to_string()),
    ];
    Resource::builder().with_service_name("muster").with_attributes(attributes).build()
}

fn span_data(span: Span) -> SpanData {
    let trace = TraceId::from_bytes(span.trace_id);
    let context = |id| SpanContext::new(trace, SpanId::from_bytes(id), TraceFlags::SAMPLED, false, TraceState::NONE);
    SpanData {
        span_context: context(span.span_id),
        parent_span_id: span.parent_span_id.map_or(SpanId::INVALID, SpanId::from_bytes),
        parent_span_is_remote: false,
        span_kind: SpanKind::Internal,
        name: span.name.into(),
        start_time: system_time(span.start),
        end_time: system_time(span.end),
        attributes: span.attributes.into_iter().map(attribute).collect(),
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status: span.failure.map_or(Status::Unset, Status::error),
        instrumentation_scope: InstrumentationScope::builder("muster").build(),
    }
}

fn attribute((name, value): (&'static str, AttributeValue)) -> KeyValue {
    match value {
        AttributeValue::Text(text) => KeyValue::new(name, text),
        AttributeValue::Number(number) => KeyValue::new(name, number),
    }
}

fn system_time(at: Timestamp) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(u64::try_from(at.0).unwrap_or(0))
}

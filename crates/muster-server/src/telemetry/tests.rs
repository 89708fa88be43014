//! The format of log lines, and the trace of a job as a collector receives it.

use std::io::Write;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use muster_core::facts::event::{NextPhase, RequeueCause};
use muster_core::objects::charge::Charge;
use muster_core::objects::job::{Exit, Outcome, PlacedTask};
use muster_core::{Event, JobId, JobSpec};
use muster_store::Entry;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span as Received;
use prost::Message;
use tokio::net::TcpListener;
use tokio::sync::broadcast;
use tracing_subscriber::fmt::MakeWriter;

use super::job_trace::{Span, trace_id};
use super::*;
use crate::config::{LogConfig, LogFormat};

#[derive(Clone, Default)]
struct LogBuffer(Arc<Mutex<Vec<u8>>>);

struct LogBufferWriter<'a>(MutexGuard<'a, Vec<u8>>);

impl Write for LogBufferWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LogBuffer {
    type Writer = LogBufferWriter<'a>;

    fn make_writer(&'a self) -> LogBufferWriter<'a> {
        LogBufferWriter(self.0.lock().unwrap())
    }
}

/// The output after three log lines: one at info, one at debug, one at debug of a dependency.
fn logged(format: LogFormat, level: &str, rust_log: Option<&str>) -> String {
    let buffer = LogBuffer::default();
    let log = LogConfig { format, level: level.to_string() };
    let subscriber = log::subscriber(&log, rust_log, false, buffer.clone()).unwrap();
    tracing::subscriber::with_default(subscriber, || {
        tracing::info!(job = "job-1", "placed");
        tracing::debug!("considered");
        tracing::debug!(target: "hyper", "chatter");
    });
    let bytes = buffer.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn log_lines_are_console_text_or_json() {
    let console = logged(LogFormat::Console, "info", None);
    assert!(console.ends_with("placed job=\"job-1\"\n") && console.contains(" INFO "), "{console}");
    #[derive(serde::Deserialize)]
    struct JsonLogLine {
        level: String,
        message: String,
        job: String,
    }
    let line: JsonLogLine = muster_json::from_str(logged(LogFormat::Json, "info", None).trim()).unwrap();
    assert_eq!((line.level.as_str(), line.message.as_str(), line.job.as_str()), ("INFO", "placed", "job-1"));
}

#[test]
fn rust_log_takes_precedence_over_the_configured_level() {
    for (level, rust_log, lines) in [
        ("warn", None, 0),
        ("info", None, 1),
        ("debug", None, 2),
        ("info", Some(""), 1),
        ("error", Some("debug"), 3),
        ("debug", Some("off"), 0),
    ] {
        assert_eq!(logged(LogFormat::Console, level, rust_log).lines().count(), lines, "{level} {rust_log:?}");
    }
    let log = LogConfig { format: LogFormat::Console, level: "info".to_string() };
    let error = log::subscriber(&log, Some("a=b=c"), false, std::io::sink).map(|_| ()).unwrap_err();
    assert!(error.to_string().starts_with("RUST_LOG is `a=b=c`: "), "{error}");
}

const JOB: JobId = JobId::single(7);

fn spec() -> Arc<JobSpec> {
    muster_json::from_str(r#"{"name":"train","tenant":"red","user":"mia","priority":100,"tasks":[],"run":{}}"#)
        .map(Arc::new)
        .unwrap()
}

fn submitted(job: JobId, indexes: &[u32], at: i64) -> Event {
    let array = muster_core::facts::command::ArraySpec { indexes: indexes.to_vec(), running_max: None };
    Event::JobSubmitted {
        job,
        spec: spec(),
        array: (!indexes.is_empty()).then_some(array),
        held_by: None,
        key: None,
        open_dependencies: Default::default(),
        at: Timestamp(at),
    }
}

fn placed(job: JobId, attempt: u32, at: i64) -> Event {
    let task =
        |rank, node: &str| PlacedTask { rank, group: 0, node: node.parse().unwrap(), gpus: vec![0, 1], share: None };
    let tasks = vec![task(0, "n1"), task(1, "n2")];
    Event::JobPlaced {
        job,
        attempt,
        epoch: 1,
        tasks,
        effective_priority: None,
        expected_ms: None,
        revocable: false,
        score: None,
        held: None,
        self_fence: None,
        master_port: None,
        start_bound_ms: None,
        at: Timestamp(at),
    }
}

fn started(job: JobId, attempt: u32, whole: bool, at: i64) -> Event {
    Event::AttemptStarted { job, attempt, node: "n1".parse().unwrap(), whole, at: Timestamp(at) }
}

fn attempt_ended(job: JobId, attempt: u32, exit: Exit, next: NextPhase, at: i64) -> Event {
    Event::AttemptEnded {
        job,
        attempt,
        exit,
        next,
        charge: Charge::default(),
        receipt: None,
        charged_until: None,
        held: None,
        at: Timestamp(at),
    }
}

fn done() -> NextPhase {
    NextPhase::Ended { outcome: Outcome::Done, why: "exit code 0".to_string() }
}

/// Every span as `NAME START-END ATTEMPT FAILURE`.
fn span_lines(events: &[Event]) -> Vec<String> {
    let mut traces = JobTraces::default();
    let spans = events.iter().flat_map(|event| traces.spans_completed_by(event, Timestamp(1_003)));
    spans.map(|span| span_line(&span)).collect()
}

fn span_line(span: &Span) -> String {
    let attempt = span.attributes.iter().find(|(name, _)| *name == "muster.attempt").map(|(_, value)| value);
    let Some(job_trace::AttributeValue::Number(attempt)) = attempt else { panic!("no attempt in {span:?}") };
    let failure = span.failure.as_deref().unwrap_or("-");
    format!("{} {}-{} {attempt} {failure}", span.name, span.start.0, span.end.0)
}

#[test]
fn a_job_is_traced_from_its_submission_to_its_start() {
    let events = [
        submitted(JOB, &[], 1_000),
        placed(JOB, 1, 5_000),
        started(JOB, 1, false, 5_500),
        started(JOB, 1, true, 6_000),
        attempt_ended(JOB, 1, Exit::Code { code: 0 }, done(), 9_000),
        placed(JOB, 1, 9_500), // No spans after the end of the job.
    ];
    let expected = ["submit 1000-1003 0 -", "queued 1000-5000 1 -", "start 5000-6000 1 -", "job 1000-6000 1 -"];
    assert_eq!(span_lines(&events), expected);
}

#[test]
fn a_requeued_job_continues_its_trace() {
    let back = NextPhase::Queued { cause: RequeueCause::Requeued, wakes_at: None };
    let not_started = Exit::NotStarted { why: "no image".to_string() };
    let preempted = NextPhase::Queued { cause: RequeueCause::Preempted, wakes_at: None };
    let events = [
        submitted(JOB, &[], 1_000),
        placed(JOB, 1, 2_000),
        attempt_ended(JOB, 1, not_started, back, 3_000),
        placed(JOB, 2, 4_000),
        started(JOB, 2, true, 5_000),
        attempt_ended(JOB, 2, Exit::Signal { signal: 15 }, preempted, 6_000),
        placed(JOB, 3, 7_000),
        started(JOB, 3, true, 8_000),
    ];
    let expected = [
        "submit 1000-1003 0 -",
        "queued 1000-2000 1 -",
        "start 2000-3000 1 no image",
        "queued 3000-4000 2 -",
        "start 4000-5000 2 -",
        "job 1000-5000 2 -",
        "queued 6000-7000 3 -",
        "start 7000-8000 3 -",
    ];
    assert_eq!(span_lines(&events), expected);
    let mut traces = JobTraces::default();
    let spans: Vec<Span> = events.iter().flat_map(|event| traces.spans_completed_by(event, Timestamp(0))).collect();
    let ids: std::collections::BTreeSet<_> = spans.iter().map(|span| span.span_id).collect();
    assert_eq!(ids.len(), spans.len(), "every span has its own id");
    assert!(spans.iter().all(|span| span.trace_id == trace_id(JOB, Timestamp(1_000))));
}

#[test]
fn a_job_cancelled_in_the_queue_is_traced() {
    let cancelled =
        Event::JobEnded { job: JOB, outcome: Outcome::Cancelled, why: "cancelled by mia".into(), at: Timestamp(4_000) };
    let expected = ["submit 1000-1003 0 -", "queued 1000-4000 1 cancelled by mia", "job 1000-4000 1 cancelled by mia"];
    assert_eq!(span_lines(&[submitted(JOB, &[], 1_000), cancelled]), expected);
}

#[test]
fn every_task_of_an_array_has_its_own_trace() {
    let task = JobId::of_array(7, 3);
    let events = [submitted(JOB, &[0, 3], 1_000), placed(task, 1, 2_000), started(task, 1, true, 3_000)];
    let expected = [
        "submit 1000-1003 0 -",
        "submit 1000-1003 0 -",
        "queued 1000-2000 1 -",
        "start 2000-3000 1 -",
        "job 1000-3000 1 -",
    ];
    assert_eq!(span_lines(&events), expected);
    assert_ne!(trace_id(task, Timestamp(1_000)), trace_id(JobId::of_array(7, 0), Timestamp(1_000)));
    assert_ne!(trace_id(JOB, Timestamp(1_000)), trace_id(JOB, Timestamp(1_001)), "another journal");
}

#[test]
fn a_restarted_server_continues_the_trace() {
    let mut state = muster_core::State::default();
    let config = muster_json::from_str(r#"{"name":"red"}"#).unwrap();
    let id = "red".parse().unwrap();
    state.apply(&Event::TenantCreated { id, config: Box::new(config), at: Timestamp(1) });
    state.next_job = JOB.number;
    state.apply(&submitted(JOB, &[], 1_000));
    let mut traces = JobTraces::from_state(&state);
    let spans = traces.spans_completed_by(&placed(JOB, 1, 5_000), Timestamp(0));
    assert_eq!(spans.iter().map(span_line).collect::<Vec<_>>(), ["queued 1000-5000 1 -"]);
    assert_eq!(spans[0].trace_id, trace_id(JOB, Timestamp(1_000)));
}

/// A collector that keeps the spans it receives.
async fn collector() -> (String, Arc<Mutex<Vec<Received>>>) {
    let kept = Arc::new(Mutex::new(Vec::new()));
    let into = kept.clone();
    let receive = move |body: Bytes| {
        let request = ExportTraceServiceRequest::decode(body).unwrap();
        let resource = request.resource_spans[0].resource.clone().unwrap();
        let has = |text: &str| {
            let value = Some(Value::StringValue(text.to_string()));
            resource.attributes.iter().any(|pair| pair.value.as_ref().is_some_and(|any| any.value == value))
        };
        assert!(has("muster") && has("test-site"), "{resource:?}");
        let scopes = request.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
        into.lock().unwrap().extend(scopes.flat_map(|scope| scope.spans));
        async {}
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = Router::new().route("/v1/traces", post(receive));
    let connections = crate::tls::Connections::new(crate::tls::ConnectionLimits { total_max: 8, per_address_max: 8 });
    tokio::spawn(crate::tls::serve((listener, connections), None, router, std::future::pending()));
    (format!("http://{address}"), kept)
}

fn batch(events: Vec<Event>) -> Arc<Batch> {
    let entry = |event| Entry { seq: 1, epoch: 1, at: Timestamp(0), event };
    Arc::new(Batch { entries: events.into_iter().map(entry).collect() })
}

#[tokio::test]
async fn a_collector_receives_the_trace_of_a_job() {
    let (endpoint, kept) = collector().await;
    let exporter = Exporter::new(&endpoint, "test-site").unwrap();
    let (events, batches) = broadcast::channel(16);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let stopping = async move { stopped.await.unwrap_or_default() };
    let following = tokio::spawn(trace_batches(batches, JobTraces::default, stopping, exporter));
    events.send(batch(vec![submitted(JOB, &[], 1_000)])).unwrap();
    events.send(batch(vec![placed(JOB, 1, 5_000), started(JOB, 1, true, 6_000)])).unwrap();
    while kept.lock().unwrap().len() < 4 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    stop.send(()).unwrap();
    following.await.unwrap();
    let spans = kept.lock().unwrap().clone();
    let find = |name: &str| spans.iter().find(|span| span.name == name).unwrap();
    let root = find("job");
    assert_eq!((root.start_time_unix_nano, root.end_time_unix_nano), (1_000_000_000, 6_000_000_000));
    assert_eq!(root.parent_span_id, Vec::<u8>::new());
    for name in ["submit", "queued", "start"] {
        assert_eq!(find(name).parent_span_id, root.span_id, "{name}");
        assert_eq!(find(name).trace_id, trace_id(JOB, Timestamp(1_000)));
    }
    let queued = find("queued");
    let attribute = |key: &str| {
        let pair = queued.attributes.iter().find(|pair| pair.key == key).unwrap();
        pair.value.clone().unwrap().value.unwrap()
    };
    assert_eq!(attribute("muster.job"), Value::StringValue("job-7".to_string()));
    assert_eq!(attribute("muster.tenant"), Value::StringValue("red".to_string()));
    assert_eq!(attribute("muster.nodes"), Value::StringValue("n1,n2".to_string()));
    assert_eq!(attribute("muster.gpus"), Value::IntValue(4));
}

#[tokio::test]
async fn queued_spans_are_sent_at_shutdown_and_an_unreachable_collector_is_harmless() {
    let (endpoint, kept) = collector().await;
    for (endpoint, expected) in [(endpoint, 1), ("http://127.0.0.1:9".to_string(), 1)] {
        let exporter = Exporter::new(&endpoint, "test-site").unwrap();
        let (events, batches) = broadcast::channel(16);
        events.send(batch(vec![submitted(JOB, &[], 1_000)])).unwrap();
        drop(events);
        trace_batches(batches, JobTraces::default, std::future::pending(), exporter).await;
        assert_eq!(kept.lock().unwrap().len(), expected);
    }
}

#[tokio::test]
async fn a_lagging_tracer_starts_over_from_the_state() {
    let (endpoint, kept) = collector().await;
    let exporter = Exporter::new(&endpoint, "test-site").unwrap();
    let (events, batches) = broadcast::channel(1);
    events.send(batch(vec![submitted(JobId::single(1), &[], 1_000)])).unwrap();
    events.send(batch(vec![submitted(JobId::single(2), &[], 1_000)])).unwrap();
    drop(events);
    trace_batches(batches, JobTraces::default, std::future::pending(), exporter).await;
    assert_eq!(kept.lock().unwrap().len(), 1);
}

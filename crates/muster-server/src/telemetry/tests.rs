//! Log lines as they look, and the trace of a job as a collector receives it.

use std::io::Write;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use muster_core::event::{Back, Next};
use muster_core::job::{Exit, Outcome, PlacedTask};
use muster_core::ledger::Charge;
use muster_core::{Event, JobId, JobSpec};
use muster_store::Entry;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span as Received;
use prost::Message;
use tokio::net::TcpListener;
use tokio::sync::broadcast;
use tracing_subscriber::fmt::MakeWriter;

use super::journey::{Span, trace_id};
use super::*;
use crate::config::{Log, LogFormat};

#[derive(Clone, Default)]
struct Paper(Arc<Mutex<Vec<u8>>>);

struct Pen<'a>(MutexGuard<'a, Vec<u8>>);

impl Write for Pen<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Paper {
    type Writer = Pen<'a>;

    fn make_writer(&'a self) -> Pen<'a> {
        Pen(self.0.lock().unwrap())
    }
}

/// What is on the paper after some lines were logged.
fn logged(format: LogFormat, level: &str, rust_log: Option<&str>) -> String {
    let paper = Paper::default();
    let log = Log { format, level: level.to_string() };
    let subscriber = log::subscriber(&log, rust_log, false, paper.clone()).unwrap();
    tracing::subscriber::with_default(subscriber, || {
        tracing::info!(job = "job-1", "placed");
        tracing::debug!("considered");
        tracing::debug!(target: "hyper", "chatter");
    });
    let bytes = paper.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn log_lines_are_for_eyes_or_for_machines() {
    let console = logged(LogFormat::Console, "info", None);
    assert!(console.ends_with("placed job=\"job-1\"\n") && console.contains(" INFO "), "{console}");
    #[derive(serde::Deserialize)]
    struct Line {
        level: String,
        message: String,
        job: String,
    }
    let line: Line = muster_json::from_str(logged(LogFormat::Json, "info", None).trim()).unwrap();
    assert_eq!((line.level.as_str(), line.message.as_str(), line.job.as_str()), ("INFO", "placed", "job-1"));
}

#[test]
fn the_level_decides_and_rust_log_refines() {
    for (level, rust_log, lines) in [
        ("warn", None, 0),
        ("info", None, 1),
        ("debug", None, 2),
        ("info", Some(""), 1),
        ("error", Some("debug"), 3),
        ("debug", Some("off"), 0),
    ] {
        assert_eq!(
            logged(LogFormat::Console, level, rust_log).lines().count(),
            lines,
            "{level} {rust_log:?}"
        );
    }
    let log = Log { format: LogFormat::Console, level: "info".to_string() };
    let error = log::subscriber(&log, Some("a=b=c"), false, std::io::sink).map(|_| ()).unwrap_err();
    assert!(error.to_string().starts_with("RUST_LOG is `a=b=c`: "), "{error}");
}

const JOB: JobId = JobId::single(7);

fn spec() -> Arc<JobSpec> {
    muster_json::from_str(
        r#"{"name":"train","tenant":"red","user":"mia","priority":100,"tasks":[],"run":{}}"#,
    )
    .map(Arc::new)
    .unwrap()
}

fn submitted(job: JobId, indexes: &[u32], at: i64) -> Event {
    let array = muster_core::command::ArrayAsk { indexes: indexes.to_vec(), running_max: None };
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
    let task = |rank, node: &str| PlacedTask {
        rank,
        group: 0,
        node: node.parse().unwrap(),
        gpus: vec![0, 1],
        share: None,
    };
    let tasks = vec![task(0, "n1"), task(1, "n2")];
    Event::JobPlaced {
        job,
        attempt,
        epoch: 1,
        tasks,
        effective: None,
        expected_ms: None,
        lent: false,
        score: None,
        held: None,
        at: Timestamp(at),
    }
}

fn started(job: JobId, attempt: u32, whole: bool, at: i64) -> Event {
    Event::AttemptStarted { job, attempt, node: "n1".parse().unwrap(), whole, at: Timestamp(at) }
}

fn attempt_ended(job: JobId, attempt: u32, exit: Exit, next: Next, at: i64) -> Event {
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

fn done() -> Next {
    Next::Ended { outcome: Outcome::Done, why: "exit code 0".to_string() }
}

/// Every span as `name from-until attempt failure`.
fn told(events: &[Event]) -> Vec<String> {
    let mut journeys = Journeys::default();
    let spans = events.iter().flat_map(|event| journeys.take(event, Timestamp(1_003)));
    spans.map(|span| line(&span)).collect()
}

fn line(span: &Span) -> String {
    let attempt = span.about.iter().find(|(name, _)| *name == "muster.attempt").map(|(_, about)| about);
    let Some(journey::About::Number(attempt)) = attempt else { panic!("no attempt in {span:?}") };
    let failure = span.failure.as_deref().unwrap_or("-");
    format!("{} {}-{} {attempt} {failure}", span.name, span.from.0, span.until.0)
}

#[test]
fn a_job_is_told_from_its_submission_to_its_start() {
    let events = [
        submitted(JOB, &[], 1_000),
        placed(JOB, 1, 5_000),
        started(JOB, 1, false, 5_500),
        started(JOB, 1, true, 6_000),
        attempt_ended(JOB, 1, Exit::Code { code: 0 }, done(), 9_000),
        placed(JOB, 1, 9_500), // After its end nothing is told.
    ];
    let expected =
        ["submit 1000-1003 0 -", "queued 1000-5000 1 -", "start 5000-6000 1 -", "job 1000-6000 1 -"];
    assert_eq!(told(&events), expected);
}

#[test]
fn a_job_that_comes_back_goes_on_in_the_same_trace() {
    let back = Next::Queued { because: Back::Requeued, wakes_at: None };
    let not_started = Exit::NotStarted { why: "no image".to_string() };
    let preempted = Next::Queued { because: Back::Preempted, wakes_at: None };
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
    assert_eq!(told(&events), expected);
    let mut journeys = Journeys::default();
    let spans: Vec<Span> = events.iter().flat_map(|event| journeys.take(event, Timestamp(0))).collect();
    let ids: std::collections::BTreeSet<_> = spans.iter().map(|span| span.id).collect();
    assert_eq!(ids.len(), spans.len(), "every span has its own number");
    assert!(spans.iter().all(|span| span.trace == trace_id(JOB, Timestamp(1_000))));
}

#[test]
fn a_job_that_is_given_up_is_told_as_well() {
    let cancelled = Event::JobEnded {
        job: JOB,
        outcome: Outcome::Cancelled,
        why: "cancelled by mia".into(),
        at: Timestamp(4_000),
    };
    let expected =
        ["submit 1000-1003 0 -", "queued 1000-4000 1 cancelled by mia", "job 1000-4000 1 cancelled by mia"];
    assert_eq!(told(&[submitted(JOB, &[], 1_000), cancelled]), expected);
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
    assert_eq!(told(&events), expected);
    assert_ne!(trace_id(task, Timestamp(1_000)), trace_id(JobId::of_array(7, 0), Timestamp(1_000)));
    assert_ne!(trace_id(JOB, Timestamp(1_000)), trace_id(JOB, Timestamp(1_001)), "another journal");
}

#[test]
fn a_restarted_server_goes_on_with_the_trace() {
    let mut state = muster_core::State::default();
    let config = muster_json::from_str(r#"{"name":"red"}"#).unwrap();
    let id = "red".parse().unwrap();
    state.apply(&Event::TenantCreated { id, config: Box::new(config), at: Timestamp(1) });
    state.next_job = JOB.number;
    state.apply(&submitted(JOB, &[], 1_000));
    let mut journeys = Journeys::of(&state);
    let spans = journeys.take(&placed(JOB, 1, 5_000), Timestamp(0));
    assert_eq!(spans.iter().map(line).collect::<Vec<_>>(), ["queued 1000-5000 1 -"]);
    assert_eq!(spans[0].trace, trace_id(JOB, Timestamp(1_000)));
}

/// A collector that keeps what it receives.
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
    let places = crate::tls::Connections::new(crate::tls::Bounds { all: 8, per_address: 8 });
    tokio::spawn(crate::tls::serve((listener, places), None, router, std::future::pending()));
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
    let following = tokio::spawn(follow(batches, Journeys::default, stopping, exporter));
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
    let about = |key: &str| {
        let pair = queued.attributes.iter().find(|pair| pair.key == key).unwrap();
        pair.value.clone().unwrap().value.unwrap()
    };
    assert_eq!(about("muster.job"), Value::StringValue("job-7".to_string()));
    assert_eq!(about("muster.tenant"), Value::StringValue("red".to_string()));
    assert_eq!(about("muster.nodes"), Value::StringValue("n1,n2".to_string()));
    assert_eq!(about("muster.gpus"), Value::IntValue(4));
}

#[tokio::test]
async fn spans_under_way_are_sent_before_the_end_and_a_dead_collector_does_no_harm() {
    let (endpoint, kept) = collector().await;
    for (endpoint, expected) in [(endpoint, 1), ("http://127.0.0.1:9".to_string(), 1)] {
        let exporter = Exporter::new(&endpoint, "test-site").unwrap();
        let (events, batches) = broadcast::channel(16);
        events.send(batch(vec![submitted(JOB, &[], 1_000)])).unwrap();
        drop(events);
        follow(batches, Journeys::default, std::future::pending(), exporter).await;
        assert_eq!(kept.lock().unwrap().len(), expected);
    }
}

#[tokio::test]
async fn who_falls_behind_starts_over_from_the_state() {
    let (endpoint, kept) = collector().await;
    let exporter = Exporter::new(&endpoint, "test-site").unwrap();
    let (events, batches) = broadcast::channel(1);
    events.send(batch(vec![submitted(JobId::single(1), &[], 1_000)])).unwrap();
    events.send(batch(vec![submitted(JobId::single(2), &[], 1_000)])).unwrap();
    drop(events);
    follow(batches, Journeys::default, std::future::pending(), exporter).await;
    assert_eq!(kept.lock().unwrap().len(), 1);
}

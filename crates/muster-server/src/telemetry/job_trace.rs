//! The trace of a job from its submission to its start, as spans with the times of the events.
//!
//! ```text
//! job     ├──────────────────────────────────────┤   from submission to the first start
//! submit  ├─┤                                        until the submission is durable
//! queued  ├──────────────────────────────┤           until the placement
//! start                                  ├───────┤   until the whole gang runs
//! ```
//! A requeued job gets another `queued` and `start` in the same trace.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_core::facts::command::ArraySpec;
use muster_core::facts::event::NextPhase;
use muster_core::objects::job::{Exit, Job, Outcome, Phase, PlacedTask};
use muster_core::{Event, JobId, JobSpec, State, Timestamp};
use sha2::{Digest, Sha256};

/// Most jobs that are traced at once, about 100 bytes each; jobs submitted beyond that have no trace.
const TRACED_JOBS_MAX: usize = 200_000;

/// One span of a job's trace.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Span {
    pub trace_id: [u8; 16],
    pub span_id: [u8; 8],
    pub parent_span_id: Option<[u8; 8]>,
    pub name: &'static str,
    pub start: Timestamp,
    pub end: Timestamp,
    pub attributes: Vec<(&'static str, AttributeValue)>,
    /// Error message of a failed span.
    pub failure: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum AttributeValue {
    Text(String),
    Number(i64),
}

/// The open traces of all jobs.
#[derive(Debug, Default)]
pub(super) struct JobTraces {
    open: BTreeMap<JobId, JobTrace>,
}

#[derive(Debug)]
struct JobTrace {
    spec: Arc<JobSpec>,
    submitted_at: Timestamp,
    queued_since: Timestamp,
    /// The attempt that is placed and does not run yet.
    starting: Option<StartingAttempt>,
    attempts: u32,
    /// Whether the root span was sent: at the first start, or at an end before that.
    root_span_sent: bool,
}

#[derive(Debug, Clone, Copy)]
struct StartingAttempt {
    attempt: u32,
    at: Timestamp,
}

/// The trace id of a job: always the same for one job, and different for every other job.
pub fn trace_id(job: JobId, submitted_at: Timestamp) -> [u8; 16] {
    digest(&format!("muster {job} {}", submitted_at.0))
}

fn digest<const N: usize>(text: &str) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&Sha256::digest(text.as_bytes())[..N]);
    bytes
}

impl JobTraces {
    /// The open traces of the jobs of a state.
    pub fn from_state(state: &State) -> JobTraces {
        let jobs = state.jobs.values().take(TRACED_JOBS_MAX);
        JobTraces { open: jobs.map(|job| (job.id, JobTrace::from_job(job))).collect() }
    }

    /// The spans that an event completes. `seen_at` is the time at which the event was known to be durable.
    pub fn spans_completed_by(&mut self, event: &Event, seen_at: Timestamp) -> Vec<Span> {
        match event {
            Event::JobSubmitted { job, spec, array, at, .. } => {
                job_ids(*job, array.as_ref()).filter_map(|id| self.submitted(id, spec, *at, seen_at)).collect()
            }
            Event::JobPlaced { job, attempt, tasks, at, .. } => {
                let placed = StartingAttempt { attempt: *attempt, at: *at };
                self.with_trace(*job, |job, trace| vec![trace.placed(job, placed, tasks)])
            }
            Event::AttemptStarted { job, whole: true, at, .. } => {
                self.with_trace(*job, |job, trace| trace.started(job, *at))
            }
            Event::AttemptEnded { job, exit, next, at, .. } => {
                let spans = self.with_trace(*job, |job, trace| trace.attempt_ended(job, exit, next, *at));
                if matches!(next, NextPhase::Ended { .. }) {
                    self.open.remove(job);
                }
                spans
            }
            Event::JobEnded { job, outcome, why, at } => {
                let spans = self.with_trace(*job, |job, trace| trace.ended_in_queue(job, *outcome, why, *at));
                self.open.remove(job);
                spans
            }
            _ => Vec::new(),
        }
    }

    fn submitted(&mut self, id: JobId, spec: &Arc<JobSpec>, at: Timestamp, seen_at: Timestamp) -> Option<Span> {
        if self.open.len() >= TRACED_JOBS_MAX {
            return None;
        }
        let trace = JobTrace {
            spec: spec.clone(),
            submitted_at: at,
            queued_since: at,
            starting: None,
            attempts: 0,
            root_span_sent: false,
        };
        let span = trace.span(id, "submit", at, seen_at);
        self.open.insert(id, trace);
        Some(span)
    }

    /// The spans of a job; none if the job is not traced.
    fn with_trace(&mut self, id: JobId, spans: impl FnOnce(JobId, &mut JobTrace) -> Vec<Span>) -> Vec<Span> {
        self.open.get_mut(&id).map(|trace| spans(id, trace)).unwrap_or_default()
    }
}

fn job_ids(job: JobId, array: Option<&ArraySpec>) -> impl Iterator<Item = JobId> {
    let single = array.is_none().then_some(job);
    let tasks = array.into_iter().flat_map(|array| &array.indexes);
    single.into_iter().chain(tasks.map(move |index| JobId::of_array(job.number, *index)))
}

impl JobTrace {
    fn from_job(job: &Job) -> JobTrace {
        let attempt = job.attempt();
        let running = attempt.is_some_and(|attempt| attempt.started_at.is_some());
        let starting = attempt.filter(|attempt| attempt.started_at.is_none());
        let queued_since = match &job.phase {
            Phase::Queued { since, .. } | Phase::Held { since, .. } => *since,
            Phase::Active(attempt) => attempt.placed_at,
        };
        JobTrace {
            spec: job.spec.clone(),
            submitted_at: job.submitted_at,
            queued_since,
            starting: starting.map(|attempt| StartingAttempt { attempt: attempt.number, at: attempt.placed_at }),
            attempts: job.attempts,
            root_span_sent: running || job.preemptions + job.restarts > 0,
        }
    }

    fn placed(&mut self, job: JobId, placed: StartingAttempt, tasks: &[PlacedTask]) -> Span {
        self.starting = Some(placed);
        self.attempts = placed.attempt;
        let nodes: BTreeSet<_> = tasks.iter().map(|task| &task.node).collect();
        let gpus: usize = tasks.iter().map(|task| task.gpus.len()).sum();
        let names: Vec<&str> = nodes.iter().map(|node| node.as_str()).collect();
        let mut span = self.span(job, "queued", self.queued_since, placed.at);
        span.attributes.push(("muster.nodes", AttributeValue::Text(names.join(","))));
        span.attributes.push(("muster.gpus", AttributeValue::Number(i64::try_from(gpus).unwrap_or(i64::MAX))));
        span
    }

    fn started(&mut self, job: JobId, at: Timestamp) -> Vec<Span> {
        let start = self.starting.take().map(|placed| self.span(job, "start", placed.at, at));
        start.into_iter().chain(self.root_span(job, at, None)).collect()
    }

    fn attempt_ended(&mut self, job: JobId, exit: &Exit, next: &NextPhase, at: Timestamp) -> Vec<Span> {
        let mut spans = Vec::new();
        if let Some(placed) = self.starting.take() {
            let failure = (!exit.is_success()).then(|| exit_text(exit));
            spans.push(Span { failure, ..self.span(job, "start", placed.at, at) });
        }
        self.queued_since = at;
        if let NextPhase::Ended { outcome, why } = next {
            spans.extend(self.root_span(job, at, Some((*outcome, why))));
        }
        spans
    }

    /// The job ended while it waited.
    fn ended_in_queue(&mut self, job: JobId, outcome: Outcome, why: &str, at: Timestamp) -> Vec<Span> {
        self.attempts += 1; // The span of the wait carries the number of the attempt that never started.
        let failure = Some(why.to_string());
        let queued = Span { failure, ..self.span(job, "queued", self.queued_since, at) };
        std::iter::once(queued).chain(self.root_span(job, at, Some((outcome, why)))).collect()
    }

    /// The span around the others, once: at the first start, or at an end before that.
    fn root_span(&mut self, job: JobId, at: Timestamp, ended: Option<(Outcome, &str)>) -> Option<Span> {
        if std::mem::replace(&mut self.root_span_sent, true) {
            return None;
        }
        let mut span = self.span(job, "job", self.submitted_at, at);
        if let Some((outcome, why)) = ended {
            span.attributes.push(("muster.outcome", AttributeValue::Text(outcome.as_str().to_string())));
            span.failure = (outcome != Outcome::Done).then(|| why.to_string());
        }
        Some(span)
    }

    fn span(&self, job: JobId, name: &'static str, start: Timestamp, end: Timestamp) -> Span {
        let trace_id = trace_id(job, self.submitted_at);
        let id = |name: &str, attempt: u32| digest(&format!("{trace_id:?} {name} {attempt}"));
        let (span_id, parent_span_id) = match name {
            "job" => (id("job", 0), None),
            "submit" => (id("submit", 0), Some(id("job", 0))),
            name => (id(name, self.attempts), Some(id("job", 0))),
        };
        let attributes = vec![
            ("muster.job", AttributeValue::Text(job.to_string())),
            ("muster.job.name", AttributeValue::Text(self.spec.name.clone())),
            ("muster.tenant", AttributeValue::Text(self.spec.tenant.to_string())),
            ("muster.attempt", AttributeValue::Number(self.attempts.into())),
        ];
        Span { trace_id, span_id, parent_span_id, name, start, end: end.max(start), attributes, failure: None }
    }
}

fn exit_text(exit: &Exit) -> String {
    match exit {
        Exit::Code { code } => format!("exit code {code}"),
        Exit::Signal { signal } => format!("signal {signal}"),
        Exit::OutOfMemory { limit_mib } => format!("out of memory (limit {limit_mib} MiB)"),
        Exit::NotStarted { why } | Exit::InvalidJob { why } | Exit::Unknown { why } => why.clone(),
    }
}

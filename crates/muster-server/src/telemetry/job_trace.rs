//! The way of each job from its submission to its start, as spans with the times of the events.
//!
//! ```text
//! job     ├──────────────────────────────────────┤   from submission to the first start
//! submit  ├─┤                                        until it was durable
//! queued  ├──────────────────────────────┤           until it got its slots
//! start                                  ├───────┤   until the whole gang ran
//! ```
//! A job that comes back into the queue gets another `queued` and `start` in the same trace.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_core::facts::command::ArraySpec;
use muster_core::facts::event::NextPhase;
use muster_core::objects::job::{Exit, Job, Outcome, Phase, PlacedTask};
use muster_core::{Event, JobId, JobSpec, State, Timestamp};
use sha2::{Digest, Sha256};

/// Jobs that are followed at once, about 100 bytes each; those submitted above it have no trace.
const TRACED_JOBS_MAX: usize = 200_000;

/// A stretch of time in the life of a job.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Span {
    pub trace_id: [u8; 16],
    pub span_id: [u8; 8],
    pub parent_span_id: Option<[u8; 8]>,
    pub name: &'static str,
    pub start: Timestamp,
    pub end: Timestamp,
    pub attributes: Vec<(&'static str, AttributeValue)>,
    /// Why it ended badly.
    pub failure: Option<String>,
}

/// What is told about a span.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum AttributeValue {
    Text(String),
    Number(i64),
}

/// The jobs whose traces are not complete.
#[derive(Debug, Default)]
pub(super) struct JobTraces {
    open: BTreeMap<JobId, JobTrace>,
}

#[derive(Debug)]
struct JobTrace {
    spec: Arc<JobSpec>,
    submitted_at: Timestamp,
    queued_since: Timestamp,
    /// Its attempt that does not run yet.
    starting: Option<StartingAttempt>,
    attempts: u32,
    /// Its first start, or its end before that, was told.
    root_span_sent: bool,
}

#[derive(Debug, Clone, Copy)]
struct StartingAttempt {
    attempt: u32,
    at: Timestamp,
}

/// The number of a job's trace. The same job always has the same; no other job has it.
pub fn trace_id(job: JobId, submitted_at: Timestamp) -> [u8; 16] {
    digest(&format!("muster {job} {}", submitted_at.0))
}

fn digest<const N: usize>(text: &str) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&Sha256::digest(text.as_bytes())[..N]);
    bytes
}

impl JobTraces {
    /// Where the jobs of a state stand.
    pub fn from_state(state: &State) -> JobTraces {
        let jobs = state.jobs.values().take(TRACED_JOBS_MAX);
        JobTraces { open: jobs.map(|job| (job.id, JobTrace::from_job(job))).collect() }
    }

    /// The spans that this event completes. `seen_at` is when it was known to be durable.
    pub fn spans_completed_by(&mut self, event: &Event, seen_at: Timestamp) -> Vec<Span> {
        match event {
            Event::JobSubmitted { job, spec, array, at, .. } => {
                job_ids(*job, array.as_ref()).filter_map(|id| self.submitted(id, spec, *at, seen_at)).collect()
            }
            Event::JobPlaced { job, attempt, tasks, at, .. } => {
                let placed = StartingAttempt { attempt: *attempt, at: *at };
                self.with_trace(*job, |job, journey| vec![journey.placed(job, placed, tasks)])
            }
            Event::AttemptStarted { job, whole: true, at, .. } => {
                self.with_trace(*job, |job, journey| journey.started(job, *at))
            }
            Event::AttemptEnded { job, exit, next, at, .. } => {
                let spans = self.with_trace(*job, |job, journey| journey.attempt_ended(job, exit, next, *at));
                if matches!(next, NextPhase::Ended { .. }) {
                    self.open.remove(job);
                }
                spans
            }
            Event::JobEnded { job, outcome, why, at } => {
                let spans = self.with_trace(*job, |job, journey| journey.ended_in_queue(job, *outcome, why, *at));
                self.open.remove(job);
                spans
            }
            _ => Vec::new(),
        }
    }

    fn submitted(
        &mut self,
        id: JobId,
        spec: &Arc<JobSpec>,
        at: Timestamp,
        seen_at: Timestamp,
    ) -> Option<Span> {
        if self.open.len() >= TRACED_JOBS_MAX {
            return None;
        }
        let journey = JobTrace {
            spec: spec.clone(),
            submitted_at: at,
            queued_since: at,
            starting: None,
            attempts: 0,
            root_span_sent: false,
        };
        let span = journey.span(id, "submit", at, seen_at);
        self.open.insert(id, journey);
        Some(span)
    }

    /// A job we do not follow has no spans.
    fn with_trace(&mut self, id: JobId, tell: impl FnOnce(JobId, &mut JobTrace) -> Vec<Span>) -> Vec<Span> {
        self.open.get_mut(&id).map(|journey| tell(id, journey)).unwrap_or_default()
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
        let waits_since = match &job.phase {
            Phase::Queued { since, .. } | Phase::Held { since, .. } => *since,
            Phase::Active(attempt) => attempt.placed_at,
        };
        JobTrace {
            spec: job.spec.clone(),
            submitted_at: job.submitted_at,
            queued_since: waits_since,
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

    /// It ended while it waited.
    fn ended_in_queue(&mut self, job: JobId, outcome: Outcome, why: &str, at: Timestamp) -> Vec<Span> {
        self.attempts += 1; // The wait for an attempt that never came.
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

    fn span(&self, job: JobId, name: &'static str, from: Timestamp, until: Timestamp) -> Span {
        let trace = trace_id(job, self.submitted_at);
        let id = |name: &str, attempt: u32| digest(&format!("{trace:?} {name} {attempt}"));
        let (own, parent) = match name {
            "job" => (id("job", 0), None),
            "submit" => (id("submit", 0), Some(id("job", 0))),
            name => (id(name, self.attempts), Some(id("job", 0))),
        };
        let about = vec![
            ("muster.job", AttributeValue::Text(job.to_string())),
            ("muster.job.name", AttributeValue::Text(self.spec.name.clone())),
            ("muster.tenant", AttributeValue::Text(self.spec.tenant.to_string())),
            ("muster.attempt", AttributeValue::Number(self.attempts.into())),
        ];
        Span { trace_id: trace, span_id: own, parent_span_id: parent, name, start: from, end: until.max(from), attributes: about, failure: None }
    }
}

fn exit_text(exit: &Exit) -> String {
    match exit {
        Exit::Code { code } => format!("exit code {code}"),
        Exit::Signal { signal } => format!("signal {signal}"),
        Exit::NotStarted { why } | Exit::Unknown { why } => why.clone(),
    }
}

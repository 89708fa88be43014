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

use muster_core::command::ArrayAsk;
use muster_core::event::Next;
use muster_core::job::{Exit, Job, Outcome, Phase, PlacedTask};
use muster_core::{Event, JobId, JobSpec, State, Timestamp};
use sha2::{Digest, Sha256};

/// Jobs that are followed at once, about 100 bytes each; those submitted above it have no trace.
const JOBS_MAX: usize = 200_000;

/// A stretch of time in the life of a job.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Span {
    pub trace: [u8; 16],
    pub id: [u8; 8],
    pub parent: Option<[u8; 8]>,
    pub name: &'static str,
    pub from: Timestamp,
    pub until: Timestamp,
    pub about: Vec<(&'static str, About)>,
    /// Why it ended badly.
    pub failure: Option<String>,
}

/// What is told about a span.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum About {
    Text(String),
    Number(i64),
}

/// The jobs whose traces are not complete.
#[derive(Debug, Default)]
pub(super) struct Journeys {
    live: BTreeMap<JobId, Journey>,
}

#[derive(Debug)]
struct Journey {
    spec: Arc<JobSpec>,
    submitted_at: Timestamp,
    waits_since: Timestamp,
    /// Its attempt that does not run yet.
    placed: Option<Placed>,
    attempts: u32,
    /// Its first start, or its end before that, was told.
    told: bool,
}

#[derive(Debug, Clone, Copy)]
struct Placed {
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

impl Journeys {
    /// Where the jobs of a state stand.
    pub fn of(state: &State) -> Journeys {
        let jobs = state.jobs.values().take(JOBS_MAX);
        Journeys { live: jobs.map(|job| (job.id, Journey::of(job))).collect() }
    }

    /// The spans that this event completes. `seen_at` is when it was known to be durable.
    pub fn take(&mut self, event: &Event, seen_at: Timestamp) -> Vec<Span> {
        match event {
            Event::JobSubmitted { job, spec, array, at, .. } => {
                ids(*job, array.as_ref()).filter_map(|id| self.submitted(id, spec, *at, seen_at)).collect()
            }
            Event::JobPlaced { job, attempt, tasks, at, .. } => {
                let placed = Placed { attempt: *attempt, at: *at };
                self.with(*job, |job, journey| vec![journey.placed(job, placed, tasks)])
            }
            Event::AttemptStarted { job, whole: true, at, .. } => {
                self.with(*job, |job, journey| journey.started(job, *at))
            }
            Event::AttemptEnded { job, exit, next, at, .. } => {
                let spans = self.with(*job, |job, journey| journey.attempt_ended(job, exit, next, *at));
                if matches!(next, Next::Ended { .. }) {
                    self.live.remove(job);
                }
                spans
            }
            Event::JobEnded { job, outcome, why, at } => {
                let spans = self.with(*job, |job, journey| journey.gave_up(job, *outcome, why, *at));
                self.live.remove(job);
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
        if self.live.len() >= JOBS_MAX {
            return None;
        }
        let journey = Journey {
            spec: spec.clone(),
            submitted_at: at,
            waits_since: at,
            placed: None,
            attempts: 0,
            told: false,
        };
        let span = journey.span(id, "submit", at, seen_at);
        self.live.insert(id, journey);
        Some(span)
    }

    /// A job we do not follow has no spans.
    fn with(&mut self, id: JobId, tell: impl FnOnce(JobId, &mut Journey) -> Vec<Span>) -> Vec<Span> {
        self.live.get_mut(&id).map(|journey| tell(id, journey)).unwrap_or_default()
    }
}

fn ids(job: JobId, array: Option<&ArrayAsk>) -> impl Iterator<Item = JobId> {
    let single = array.is_none().then_some(job);
    let tasks = array.into_iter().flat_map(|array| &array.indexes);
    single.into_iter().chain(tasks.map(move |index| JobId::of_array(job.number, *index)))
}

impl Journey {
    fn of(job: &Job) -> Journey {
        let attempt = job.attempt();
        let running = attempt.is_some_and(|attempt| attempt.started_at.is_some());
        let starting = attempt.filter(|attempt| attempt.started_at.is_none());
        let waits_since = match &job.phase {
            Phase::Queued { since, .. } | Phase::Held { since, .. } => *since,
            Phase::Active(attempt) => attempt.placed_at,
        };
        Journey {
            spec: job.spec.clone(),
            submitted_at: job.submitted_at,
            waits_since,
            placed: starting.map(|attempt| Placed { attempt: attempt.number, at: attempt.placed_at }),
            attempts: job.attempts,
            told: running || job.preemptions + job.restarts > 0,
        }
    }

    fn placed(&mut self, job: JobId, placed: Placed, tasks: &[PlacedTask]) -> Span {
        self.placed = Some(placed);
        self.attempts = placed.attempt;
        let nodes: BTreeSet<_> = tasks.iter().map(|task| &task.node).collect();
        let gpus: usize = tasks.iter().map(|task| task.gpus.len()).sum();
        let names: Vec<&str> = nodes.iter().map(|node| node.as_str()).collect();
        let mut span = self.span(job, "queued", self.waits_since, placed.at);
        span.about.push(("muster.nodes", About::Text(names.join(","))));
        span.about.push(("muster.gpus", About::Number(i64::try_from(gpus).unwrap_or(i64::MAX))));
        span
    }

    fn started(&mut self, job: JobId, at: Timestamp) -> Vec<Span> {
        let start = self.placed.take().map(|placed| self.span(job, "start", placed.at, at));
        start.into_iter().chain(self.whole(job, at, None)).collect()
    }

    fn attempt_ended(&mut self, job: JobId, exit: &Exit, next: &Next, at: Timestamp) -> Vec<Span> {
        let mut spans = Vec::new();
        if let Some(placed) = self.placed.take() {
            let failure = (!exit.is_success()).then(|| words(exit));
            spans.push(Span { failure, ..self.span(job, "start", placed.at, at) });
        }
        self.waits_since = at;
        if let Next::Ended { outcome, why } = next {
            spans.extend(self.whole(job, at, Some((*outcome, why))));
        }
        spans
    }

    /// It ended while it waited.
    fn gave_up(&mut self, job: JobId, outcome: Outcome, why: &str, at: Timestamp) -> Vec<Span> {
        self.attempts += 1; // The wait for an attempt that never came.
        let failure = Some(why.to_string());
        let queued = Span { failure, ..self.span(job, "queued", self.waits_since, at) };
        std::iter::once(queued).chain(self.whole(job, at, Some((outcome, why)))).collect()
    }

    /// The span around the others, once: at the first start, or at an end before that.
    fn whole(&mut self, job: JobId, at: Timestamp, ended: Option<(Outcome, &str)>) -> Option<Span> {
        if std::mem::replace(&mut self.told, true) {
            return None;
        }
        let mut span = self.span(job, "job", self.submitted_at, at);
        if let Some((outcome, why)) = ended {
            span.about.push(("muster.outcome", About::Text(outcome.word().to_string())));
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
            ("muster.job", About::Text(job.to_string())),
            ("muster.job.name", About::Text(self.spec.name.clone())),
            ("muster.tenant", About::Text(self.spec.tenant.to_string())),
            ("muster.attempt", About::Number(self.attempts.into())),
        ];
        Span { trace, id: own, parent, name, from, until: until.max(from), about, failure: None }
    }
}

fn words(exit: &Exit) -> String {
    match exit {
        Exit::Code { code } => format!("exit code {code}"),
        Exit::Signal { signal } => format!("signal {signal}"),
        Exit::NotStarted { why } | Exit::Unknown { why } => why.clone(),
    }
}

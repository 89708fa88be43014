//! A state as a savepoint keeps it: in pieces, without what is derived, and with each spec written once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::budget::budgeted;
use crate::capacity::Capacity;
use crate::foresight::Foresight;
use crate::ids::{JobId, TenantId};
use crate::job::{Job, JobSpec};
use crate::lasting::{Lasted, planned_end};
use crate::ledger::Ledger;
use crate::mix::Mix;
use crate::node::Node;
use crate::policy::{Answered, Failure, Limited, Policies, Version};
use crate::settings::Settings;
use crate::state::apply::deadline;
use crate::state::policies::pools_of;
use crate::state::{Array, Claim, Ended, KeyUse, State};
use crate::tenant::Tenant;
use crate::time::Timestamp;
use crate::token::Token;
use crate::window::Window;

/// Jobs in one piece: enough to share its cost, few enough to need no memory worth speaking of.
const JOBS_PER_PIECE: usize = 256;

/// A part of a state. Pieces are written and read back one after the other, in order, so that what they are parsed
/// into never holds more than one of them beside the state itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Piece {
    /// What does not grow with the jobs. The first piece.
    Frame(Box<Frame>),
    /// Specs of the jobs that follow, numbered through all pieces. Tasks of an array share one.
    Specs(Vec<Arc<JobSpec>>),
    /// Live jobs.
    Jobs(Vec<SavedJob>),
    /// Jobs that ended lately.
    Ended(Vec<(JobId, Ended)>),
    /// Idempotency keys.
    Keys(Vec<(TenantId, String, KeyUse)>),
}

/// What does not grow with the jobs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Frame {
    seq: u64,
    clock: Timestamp,
    next_job: u64,
    settings: Settings,
    tenants: Vec<Tenant>,
    nodes: Vec<Node>,
    arrays: Vec<(u64, Array)>,
    forgotten_before: Timestamp,
    #[serde(default)]
    trimmed_before: Timestamp,
    claims: Vec<(JobId, Claim)>,
    #[serde(default)]
    windows: Vec<Window>,
    tokens: Vec<Token>,
    ledger: Ledger,
    #[serde(default)]
    foresight: Foresight,
    #[serde(default)]
    lasted: Lasted,
    #[serde(default)]
    mix: Mix,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    policies: Vec<Version>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    answers: Vec<Answered>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    limits: Vec<Limited>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    failures: Vec<(JobId, Failure)>,
}

/// A job, with its spec by place.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SavedJob {
    /// Number of its spec.
    spec: usize,
    #[serde(flatten)]
    job: JobWithoutSpec,
}

/// Everything of a job but its spec.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct JobWithoutSpec {
    id: JobId,
    submitted_at: Timestamp,
    phase: crate::job::Phase,
    attempts: u32,
    #[serde(default)]
    restarts: u32,
    #[serde(default)]
    preemptions: u32,
    #[serde(default)]
    requeues: u32,
    #[serde(default)]
    ran_ms: i64,
    #[serde(default)]
    number: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wakes_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "std::collections::BTreeSet::is_empty")]
    open_dependencies: std::collections::BTreeSet<crate::job::Dependency>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    foreseen: Option<Box<crate::plan::Range>>,
}

impl State {
    /// Hand out what a savepoint keeps of this state, piece by piece.
    pub fn save(&self, mut write: impl FnMut(Piece)) {
        write(Piece::Frame(Box::new(self.frame())));
        let mut specs = Specs::default();
        for jobs in chunks(self.jobs.values()) {
            let jobs = jobs.into_iter().map(|job| specs.save(job)).collect();
            write(Piece::Specs(std::mem::take(&mut specs.new)));
            write(Piece::Jobs(jobs));
        }
        for ended in chunks(self.ended.iter()) {
            write(Piece::Ended(ended.into_iter().map(|(id, ended)| (*id, *ended)).collect()));
        }
        let keys = self
            .keys
            .iter()
            .flat_map(|(tenant, keys)| keys.iter().map(move |(key, used)| (tenant, key, used)));
        for keys in chunks(keys) {
            let owned = |(tenant, key, used): (&TenantId, &String, &KeyUse)| {
                (tenant.clone(), key.clone(), used.clone())
            };
            write(Piece::Keys(keys.into_iter().map(owned).collect()));
        }
    }

    /// A copy to look ahead from, with everyone who runs and the first of those who wait, as many of each bucket; in
    /// a large cluster the others would cost much and change little.
    pub fn excerpt(&self, waiting_max: usize) -> State {
        if self.queue.len() <= waiting_max as u64 {
            return self.clone();
        }
        let buckets = self.queue.buckets().count().max(1);
        let first =
            self.queue.buckets().flat_map(|(_, places)| places.iter().take(waiting_max / buckets + 1));
        let first: BTreeSet<JobId> = first.map(|(_, job)| *job).collect();
        let kept = self.jobs.iter().filter(|(id, job)| job.attempt().is_some() || first.contains(id));
        let jobs = kept.map(|(id, job)| (*id, job.clone())).collect();
        let frame = self.frame();
        let answers = frame.answers.clone();
        let mut excerpt = State { jobs, ..frame.restore() };
        excerpt.derive();
        excerpt.restore_answers(&answers);
        excerpt
    }

    fn frame(&self) -> Frame {
        Frame {
            seq: self.seq,
            clock: self.clock,
            next_job: self.next_job,
            settings: self.settings.clone(),
            tenants: self.tenants.values().cloned().collect(),
            nodes: self.nodes.values().cloned().collect(),
            arrays: self.arrays.iter().map(|(number, array)| (*number, array.clone())).collect(),
            forgotten_before: self.forgotten_before,
            trimmed_before: self.trimmed_before,
            claims: self.claims.iter().map(|(id, claim)| (*id, claim.clone())).collect(),
            windows: self.windows.values().cloned().collect(),
            tokens: self.tokens.values().cloned().collect(),
            ledger: self.ledger.clone(),
            foresight: self.foresight.clone(),
            lasted: self.lasted,
            mix: self.mix.clone(),
            policies: self.policies.saved(),
            answers: self.answered(),
            limits: self.policies.limits.values().cloned().collect(),
            failures: self.policies.failures.iter().map(|(job, one)| (*job, one.clone())).collect(),
        }
    }

    /// Build what is derived from the jobs and nodes.
    pub(super) fn derive(&mut self) {
        self.policies.exact_limits = Arc::new(budgeted(self));
        self.queue = Default::default();
        self.dependents.clear();
        self.deadlines.clear();
        self.ends.clear();
        self.derive_leases();
        for job in self.jobs.values() {
            if job.is_queued() {
                let limited = job.id.index.is_some()
                    && self.arrays.get(&job.id.number).is_some_and(|array| array.running_max.is_some());
                self.queue.add(job, limited, &self.policies);
            }
            for dependency in &job.open_dependencies {
                self.dependents.entry(dependency.job).or_default().insert(job.id);
            }
            self.deadlines.extend(deadline(job).map(|deadline| (deadline, job.id)));
            self.ends.extend(job.attempt().map(|attempt| (planned_end(job, attempt), job.id)));
        }
        self.capacity = Capacity::going_by(self.mix.lesson());
        for node in self.nodes.values_mut() {
            node.pools = pools_of(node, &self.policies);
            self.capacity.file(node);
        }
    }
}

impl State {
    /// Who holds which device, and since when, told by the jobs.
    fn derive_leases(&mut self) {
        self.tenants.values_mut().for_each(|tenant| tenant.placed_gpu_milli_ms = 0);
        for node in self.nodes.values_mut() {
            node.holders = vec![Vec::new(); node.facts.gpus.len()];
        }
        for (job, attempt) in self.jobs.values().filter_map(|job| Some((job, job.attempt()?))) {
            if let Some(tenant) = self.tenants.get_mut(&job.spec.tenant) {
                let placed_at = i128::from(attempt.placed_at.0);
                tenant.placed_gpu_milli_ms += i128::from(attempt.gpu_milli()) * placed_at;
            }
            for task in &attempt.tasks {
                let Some(node) = self.nodes.get_mut(&task.node) else { continue };
                node.take_leases(job.id, task);
            }
        }
    }
}

/// A state that is being read back.
#[derive(Debug, Default)]
pub struct Restoring {
    state: State,
    specs: Vec<Arc<JobSpec>>,
    /// Put into the state at the end, all at once: a map that grows one by one in order stays half empty.
    jobs: Vec<(JobId, Job)>,
    answers: Vec<Answered>,
}

/// Pieces that do not belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a job names a spec that no piece before it holds")]
pub struct MissingSpec;

impl Restoring {
    /// Take the next piece.
    pub fn add(&mut self, piece: Piece) -> Result<(), MissingSpec> {
        match piece {
            Piece::Frame(frame) => {
                self.answers = frame.answers.clone();
                self.state = frame.restore();
            }
            Piece::Specs(specs) => self.specs.extend(specs),
            Piece::Jobs(jobs) => {
                for job in jobs {
                    let job = job.restore(&self.specs)?;
                    self.jobs.push((job.id, job));
                }
            }
            Piece::Ended(ended) => self.state.ended.extend(ended),
            Piece::Keys(keys) => {
                for (tenant, key, used) in keys {
                    self.state.keys.entry(tenant).or_default().insert(key, used);
                }
            }
        }
        Ok(())
    }

    /// The state, after the last piece.
    pub fn finish(mut self) -> State {
        self.state.jobs = self.jobs.into_iter().collect();
        self.state.derive();
        self.state.restore_answers(&self.answers);
        self.state
    }
}

impl Frame {
    fn restore(self) -> State {
        State {
            seq: self.seq,
            clock: self.clock,
            next_job: self.next_job,
            settings: self.settings,
            tenants: self.tenants.into_iter().map(|tenant| (tenant.id.clone(), tenant)).collect(),
            nodes: self.nodes.into_iter().map(|node| (node.id.clone(), node)).collect(),
            arrays: self.arrays.into_iter().collect(),
            forgotten_before: self.forgotten_before,
            trimmed_before: self.trimmed_before,
            claims: self.claims.into_iter().collect(),
            windows: self.windows.into_iter().map(|window| (window.name.clone(), window)).collect(),
            tokens: self.tokens.into_iter().map(|token| (token.id.clone(), token)).collect(),
            ledger: self.ledger,
            foresight: self.foresight,
            lasted: self.lasted,
            mix: self.mix,
            policies: Policies::restored(self.policies, self.failures, self.limits),
            ..State::default()
        }
    }
}

/// The items of an iterator, a piece's worth at a time.
fn chunks<T>(mut items: impl Iterator<Item = T>) -> impl Iterator<Item = Vec<T>> {
    std::iter::from_fn(move || {
        let chunk: Vec<T> = items.by_ref().take(JOBS_PER_PIECE).collect();
        (!chunk.is_empty()).then_some(chunk)
    })
}

/// Specs written once each. Two jobs share one when they share the memory.
#[derive(Default)]
struct Specs {
    /// Not written yet.
    new: Vec<Arc<JobSpec>>,
    /// Number of each, by its address.
    numbers: BTreeMap<usize, usize>,
}

impl Specs {
    fn save(&mut self, job: &Job) -> SavedJob {
        let address = Arc::as_ptr(&job.spec) as usize;
        let next = self.numbers.len();
        let spec = *self.numbers.entry(address).or_insert_with(|| {
            self.new.push(job.spec.clone());
            next
        });
        let job = JobWithoutSpec {
            id: job.id,
            submitted_at: job.submitted_at,
            phase: job.phase.clone(),
            attempts: job.attempts,
            restarts: job.restarts,
            preemptions: job.preemptions,
            requeues: job.requeues,
            ran_ms: job.ran_ms,
            number: job.number,
            wakes_at: job.wakes_at,
            open_dependencies: job.open_dependencies.clone(),
            foreseen: job.foreseen.clone(),
        };
        SavedJob { spec, job }
    }
}

impl SavedJob {
    fn restore(self, specs: &[Arc<JobSpec>]) -> Result<Job, MissingSpec> {
        let job = self.job;
        Ok(Job {
            id: job.id,
            spec: specs.get(self.spec).ok_or(MissingSpec)?.clone(),
            submitted_at: job.submitted_at,
            phase: job.phase,
            attempts: job.attempts,
            restarts: job.restarts,
            preemptions: job.preemptions,
            requeues: job.requeues,
            ran_ms: job.ran_ms,
            number: job.number,
            wakes_at: job.wakes_at,
            open_dependencies: job.open_dependencies,
            foreseen: job.foreseen,
        })
    }
}

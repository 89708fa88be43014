//! Savepoint of a state: written in pieces, without derived indexes, and with each job spec once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::accounting::ledger::Ledger;
use crate::accounting::tenant::Tenant;
use crate::estimate::calibration::ForecastCalibration;
use crate::estimate::expected_end::planned_end;
use crate::estimate::recent::RecentRuntimes;
use crate::estimate::workload_mix::WorkloadMix;
use crate::facts::command::IdempotencyRecord;
use crate::ids::{JobId, NodeId, TenantId};
use crate::objects::enrolment::{Enrolment, JoinToken};
use crate::objects::job::{Job, JobSpec};
use crate::objects::node::Node;
use crate::objects::policy::{BundleVersion, FailedAttempt, JobAnswer, TenantLimit};
use crate::objects::secret::Secret;
use crate::objects::settings::Settings;
use crate::objects::token::Token;
use crate::objects::window::Window;
use crate::policy::Policies;
use crate::resources::ResourceIndex;
use crate::state::apply::deadline;
use crate::state::gang::hold_port;
use crate::state::policies::pools_of;
use crate::state::usage::budgets::budgeted;
use crate::state::{ArrayState, Claim, EndedJob, State};
use crate::time::Timestamp;

/// Jobs per piece: enough to amortise its overhead, few enough to need little memory.
const JOBS_PER_PIECE: usize = 256;

/// A part of a savepoint. Pieces are written and read in order, one at a time, so that memory holds at most one parsed
/// piece beside the state itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum SavepointPiece {
    /// Everything that does not grow with the number of jobs. The first piece.
    Frame(Box<SavedFrame>),
    /// Specs of the jobs that follow, numbered across all pieces. Tasks of an array share one spec.
    Specs(Vec<Arc<JobSpec>>),
    Jobs(Vec<SavedJob>),
    /// Recently ended jobs.
    Ended(Vec<(JobId, EndedJob)>),
    Keys(Vec<(TenantId, String, IdempotencyRecord)>),
}

/// Everything that does not grow with the number of jobs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SavedFrame {
    seq: u64,
    clock: Timestamp,
    next_job: u64,
    settings: Settings,
    tenants: Vec<Tenant>,
    nodes: Vec<Node>,
    arrays: Vec<(u64, ArrayState)>,
    forgotten_before: Timestamp,
    #[serde(default)]
    trimmed_before: Timestamp,
    claims: Vec<(JobId, Claim)>,
    #[serde(default)]
    windows: Vec<Window>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    secrets: Vec<Secret>,
    tokens: Vec<Token>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    join_tokens: Vec<JoinToken>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    enrolments: Vec<(NodeId, Enrolment)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cluster_ca: Option<String>,
    ledger: Ledger,
    #[serde(default)]
    calibration: ForecastCalibration,
    #[serde(default)]
    recent_runtimes: RecentRuntimes,
    #[serde(default)]
    workload_mix: WorkloadMix,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    policies: Vec<BundleVersion>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    answers: Vec<JobAnswer>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    limits: Vec<TenantLimit>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    failures: Vec<(JobId, FailedAttempt)>,
}

/// A job, with its spec by number.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SavedJob {
    spec: usize,
    #[serde(flatten)]
    job: JobWithoutSpec,
}

/// Everything of a job but its spec.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct JobWithoutSpec {
    id: JobId,
    submitted_at: Timestamp,
    phase: crate::objects::job::Phase,
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
    class_number: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wakes_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "std::collections::BTreeSet::is_empty")]
    open_dependencies: std::collections::BTreeSet<crate::objects::job::Dependency>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    first_forecast: Option<Box<crate::objects::start_range::StartRange>>,
}

impl State {
    /// Write a savepoint of this state, piece by piece.
    pub fn save(&self, mut write: impl FnMut(SavepointPiece)) {
        write(SavepointPiece::Frame(Box::new(self.frame())));
        let mut specs = Specs::default();
        for jobs in chunks(self.jobs.values()) {
            let jobs = jobs.into_iter().map(|job| specs.save(job)).collect();
            write(SavepointPiece::Specs(std::mem::take(&mut specs.new)));
            write(SavepointPiece::Jobs(jobs));
        }
        for ended in chunks(self.ended.iter()) {
            write(SavepointPiece::Ended(ended.into_iter().map(|(id, ended)| (*id, *ended)).collect()));
        }
        let keys = self.keys.iter().flat_map(|(tenant, keys)| keys.iter().map(move |(key, used)| (tenant, key, used)));
        for keys in chunks(keys) {
            let owned = |(tenant, key, used): (&TenantId, &String, &IdempotencyRecord)| {
                (tenant.clone(), key.clone(), used.clone())
            };
            write(SavepointPiece::Keys(keys.into_iter().map(owned).collect()));
        }
    }

    /// A copy for forecasts and shadow evaluation: all running jobs and the first waiting jobs, up to the same number
    /// of each bucket. In a large cluster the others would cost much and change little.
    pub fn excerpt(&self, waiting_max: usize) -> State {
        if self.queue.len() <= waiting_max as u64 {
            return self.clone();
        }
        let buckets = self.queue.buckets().count().max(1);
        let first = self.queue.buckets().flat_map(|(_, keys)| keys.iter().take(waiting_max / buckets + 1));
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

    fn frame(&self) -> SavedFrame {
        SavedFrame {
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
            secrets: self.secrets.values().cloned().collect(),
            tokens: self.tokens.values().cloned().collect(),
            join_tokens: self.join_tokens.values().cloned().collect(),
            enrolments: self.enrolments.iter().map(|(node, enrolment)| (node.clone(), enrolment.clone())).collect(),
            cluster_ca: self.cluster_ca.clone(),
            ledger: self.ledger.clone(),
            calibration: self.calibration.clone(),
            recent_runtimes: self.recent_runtimes,
            workload_mix: self.workload_mix.clone(),
            policies: self.policies.saved(),
            answers: self.answered(),
            limits: self.policies.limits.values().cloned().collect(),
            failures: self.policies.failures.iter().map(|(job, failure)| (*job, failure.clone())).collect(),
        }
    }

    /// Rebuild the indexes that are derived from jobs and nodes.
    pub(super) fn derive(&mut self) {
        self.policies.bucket_criteria.exact_limits = Arc::new(budgeted(self));
        self.queue = Default::default();
        self.dependents.clear();
        self.deadlines.clear();
        self.master_ports.clear();
        self.ends.clear();
        self.derive_leases();
        for job in self.jobs.values() {
            if job.is_queued() {
                let limited = job.id.index.is_some()
                    && self.arrays.get(&job.id.number).is_some_and(|array| array.running_max.is_some());
                self.queue.add(job, limited, &self.policies.bucket_criteria);
            }
            for dependency in &job.open_dependencies {
                self.dependents.entry(dependency.job).or_default().insert(job.id);
            }
            if let Some(attempt) = job.attempt() {
                hold_port(&mut self.master_ports, attempt);
            }
            self.deadlines.extend(deadline(job).map(|deadline| (deadline, job.id)));
            self.ends.extend(job.attempt().map(|attempt| (planned_end(job, attempt), job.id)));
        }
        self.resources = ResourceIndex::with_mix(self.workload_mix.snapshot());
        for node in self.nodes.values_mut() {
            node.pools = pools_of(node, &self.policies);
            self.resources.insert(node);
        }
    }
}

impl State {
    /// Rebuild the leases of devices and their placement times from the attempts.
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

/// Restores a state from the pieces of a savepoint.
#[derive(Debug, Default)]
pub struct StateRestorer {
    state: State,
    specs: Vec<Arc<JobSpec>>,
    /// Collected into the state's map at the end: a B-tree that grows by ascending inserts stays half empty.
    jobs: Vec<(JobId, Job)>,
    answers: Vec<JobAnswer>,
}

/// The pieces do not belong to one savepoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a job names a spec that no piece before it holds")]
pub struct MissingSpec;

impl StateRestorer {
    /// Add the next piece.
    pub fn add(&mut self, piece: SavepointPiece) -> Result<(), MissingSpec> {
        match piece {
            SavepointPiece::Frame(frame) => {
                self.answers = frame.answers.clone();
                self.state = frame.restore();
            }
            SavepointPiece::Specs(specs) => self.specs.extend(specs),
            SavepointPiece::Jobs(jobs) => {
                for job in jobs {
                    let job = job.restore(&self.specs)?;
                    self.jobs.push((job.id, job));
                }
            }
            SavepointPiece::Ended(ended) => self.state.ended.extend(ended),
            SavepointPiece::Keys(keys) => {
                for (tenant, key, used) in keys {
                    self.state.keys.entry(tenant).or_default().insert(key, used);
                }
            }
        }
        Ok(())
    }

    /// The restored state, after the last piece.
    pub fn finish(mut self) -> State {
        self.state.jobs = self.jobs.into_iter().collect();
        self.state.derive();
        self.state.restore_answers(&self.answers);
        self.state
    }
}

impl SavedFrame {
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
            secrets: self.secrets.into_iter().map(|secret| (secret.id.clone(), secret)).collect(),
            tokens: self.tokens.into_iter().map(|token| (token.id.clone(), token)).collect(),
            join_tokens: self.join_tokens.into_iter().map(|token| (token.id.clone(), token)).collect(),
            enrolments: self.enrolments.into_iter().collect(),
            cluster_ca: self.cluster_ca,
            ledger: self.ledger,
            calibration: self.calibration,
            recent_runtimes: self.recent_runtimes,
            workload_mix: self.workload_mix,
            policies: Policies::restored(self.policies, self.failures, self.limits),
            ..State::default()
        }
    }
}

/// The items of an iterator in groups of one piece.
fn chunks<T>(mut items: impl Iterator<Item = T>) -> impl Iterator<Item = Vec<T>> {
    std::iter::from_fn(move || {
        let chunk: Vec<T> = items.by_ref().take(JOBS_PER_PIECE).collect();
        (!chunk.is_empty()).then_some(chunk)
    })
}

/// Specs of saved jobs, each written once. Jobs share a spec if they share its allocation.
#[derive(Default)]
struct Specs {
    new: Vec<Arc<JobSpec>>,
    /// Number of each spec by its address.
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
            class_number: job.class_number,
            wakes_at: job.wakes_at,
            open_dependencies: job.open_dependencies.clone(),
            first_forecast: job.first_forecast.clone(),
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
            class_number: job.class_number,
            wakes_at: job.wakes_at,
            open_dependencies: job.open_dependencies,
            first_forecast: job.first_forecast,
        })
    }
}

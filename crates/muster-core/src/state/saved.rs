//! A state as a savepoint keeps it: without what is derived, and with each spec written once.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::{JobId, TenantId};
use crate::job::{Job, JobSpec};
use crate::ledger::Ledger;
use crate::node::Node;
use crate::settings::Settings;
use crate::state::apply::deadline;
use crate::state::{Array, Claim, Ended, KeyUse, State};
use crate::tenant::Tenant;
use crate::time::Timestamp;
use crate::token::Token;

/// A state, ready to be written.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Saved {
    seq: u64,
    clock: Timestamp,
    next_job: u64,
    settings: Settings,
    tenants: Vec<Tenant>,
    nodes: Vec<Node>,
    /// Tasks of an array share one entry.
    specs: Vec<Arc<JobSpec>>,
    jobs: Vec<SavedJob>,
    arrays: Vec<(u64, Array)>,
    ended: Vec<(JobId, Ended)>,
    #[serde(default)]
    forgotten_before: Timestamp,
    keys: BTreeMap<TenantId, BTreeMap<String, KeyUse>>,
    claims: Vec<(JobId, Claim)>,
    tokens: Vec<Token>,
    ledger: Ledger,
}

/// A job, with its spec by place.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct SavedJob {
    /// Index into `specs`.
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wakes_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "std::collections::BTreeSet::is_empty")]
    open_dependencies: std::collections::BTreeSet<crate::job::Dependency>,
}

impl State {
    /// What a savepoint keeps of this state.
    pub fn save(&self) -> Saved {
        let mut specs = Specs::default();
        Saved {
            seq: self.seq,
            clock: self.clock,
            next_job: self.next_job,
            settings: self.settings.clone(),
            tenants: self.tenants.values().cloned().collect(),
            nodes: self.nodes.values().cloned().collect(),
            jobs: self.jobs.values().map(|job| specs.save(job)).collect(),
            specs: specs.list,
            arrays: self.arrays.iter().map(|(number, array)| (*number, array.clone())).collect(),
            ended: self.ended.iter().map(|(id, ended)| (*id, *ended)).collect(),
            forgotten_before: self.forgotten_before,
            keys: self.keys.clone(),
            claims: self.claims.iter().map(|(id, claim)| (*id, claim.clone())).collect(),
            tokens: self.tokens.values().cloned().collect(),
            ledger: self.ledger.clone(),
        }
    }

    /// The state a savepoint was made from.
    pub fn restore(saved: Saved) -> State {
        let specs = saved.specs;
        let mut state = State {
            seq: saved.seq,
            clock: saved.clock,
            next_job: saved.next_job,
            settings: saved.settings,
            tenants: saved.tenants.into_iter().map(|tenant| (tenant.id.clone(), tenant)).collect(),
            nodes: saved.nodes.into_iter().map(|node| (node.id.clone(), node)).collect(),
            jobs: saved.jobs.into_iter().map(|job| job.restore(&specs)).map(|job| (job.id, job)).collect(),
            arrays: saved.arrays.into_iter().collect(),
            ended: saved.ended.into_iter().collect(),
            forgotten_before: saved.forgotten_before,
            keys: saved.keys,
            claims: saved.claims.into_iter().collect(),
            tokens: saved.tokens.into_iter().map(|token| (token.id.clone(), token)).collect(),
            ledger: saved.ledger,
            ..State::default()
        };
        state.derive();
        state
    }

    /// Build what is derived from the jobs and nodes.
    pub(super) fn derive(&mut self) {
        self.queue = Default::default();
        self.dependents.clear();
        self.deadlines.clear();
        for job in self.jobs.values() {
            if job.is_queued() {
                let limited = job.id.index.is_some()
                    && self.arrays.get(&job.id.number).is_some_and(|array| array.running_max.is_some());
                self.queue.add(job, limited);
            }
            for dependency in &job.open_dependencies {
                self.dependents.entry(dependency.job).or_default().insert(job.id);
            }
            self.deadlines.extend(deadline(job).map(|deadline| (deadline, job.id)));
        }
        self.capacity = Default::default();
        for node in self.nodes.values() {
            self.capacity.file(node);
        }
    }
}

/// Specs written once each. Two jobs share one when they share the memory.
#[derive(Default)]
struct Specs {
    list: Vec<Arc<JobSpec>>,
    places: BTreeMap<usize, usize>,
}

impl Specs {
    fn save(&mut self, job: &Job) -> SavedJob {
        let address = Arc::as_ptr(&job.spec) as usize;
        let spec = *self.places.entry(address).or_insert_with(|| {
            self.list.push(job.spec.clone());
            self.list.len() - 1
        });
        let job = JobWithoutSpec {
            id: job.id,
            submitted_at: job.submitted_at,
            phase: job.phase.clone(),
            attempts: job.attempts,
            restarts: job.restarts,
            preemptions: job.preemptions,
            requeues: job.requeues,
            wakes_at: job.wakes_at,
            open_dependencies: job.open_dependencies.clone(),
        };
        SavedJob { spec, job }
    }
}

impl SavedJob {
    fn restore(self, specs: &[Arc<JobSpec>]) -> Job {
        let job = self.job;
        Job {
            id: job.id,
            spec: specs[self.spec].clone(),
            submitted_at: job.submitted_at,
            phase: job.phase,
            attempts: job.attempts,
            restarts: job.restarts,
            preemptions: job.preemptions,
            requeues: job.requeues,
            wakes_at: job.wakes_at,
            open_dependencies: job.open_dependencies,
        }
    }
}

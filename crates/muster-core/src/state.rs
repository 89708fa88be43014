//! The state of the cluster and its three operations: `decide` checks a command (step 4), `apply` applies an event
//! (step 6), and `check` reports violated invariants.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::accounting::ledger::Ledger;
use crate::accounting::tenant::Tenant;
use crate::estimate::calibration::ForecastCalibration;
use crate::estimate::recent::RecentRuntimes;
use crate::estimate::workload_mix::WorkloadMix;
use crate::facts::command::IdempotencyRecord;
use crate::facts::refusal::Refusal;
use crate::gpu::device::GpuFacts;
use crate::ids::{JobId, NodeId, TenantId};
use crate::objects::enrolment::{Enrolment, JoinToken};
use crate::objects::job::{Job, Outcome, PlacedTask};
use crate::objects::node::Node;
use crate::objects::secret::{Secret, SecretId};
use crate::objects::settings::Settings;
use crate::objects::token::Token;
use crate::objects::window::Window;
use crate::policy::Policies;
use crate::queue::{Bucket, Queue, bucket_of};
use crate::resources::ResourceIndex;
use crate::time::Timestamp;

mod adopt;
mod apply;
mod check;
mod claims;
mod decide;
mod decision;
mod device_identity;
mod drain;
mod enrolment;
mod gang;
mod job_control;
mod node_state;
mod nodes;
mod policies;
pub(crate) mod policy_answers;
mod power;
pub(crate) mod preemption;
mod report;
mod rights;
mod runtime_estimates;
mod saved;
mod secrets;
mod submit;
mod tenants;
mod tick;
pub(crate) mod usage;
mod windows;

pub use check::Violation;
pub use decision::Decision;
pub use enrolment::JOIN_TOKEN_MS_MAX;
pub use saved::{MissingSpec, SavepointPiece, StateRestorer};
pub use secrets::SECRET_BYTES_MAX;

/// The state of the cluster. It holds live jobs; ended jobs are read from the tables.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct State {
    /// Number of applied events.
    pub seq: u64,
    /// The latest time of any event.
    pub clock: Timestamp,
    /// Number of the next job.
    pub next_job: u64,
    pub settings: Settings,
    pub tenants: BTreeMap<TenantId, Tenant>,
    pub nodes: BTreeMap<NodeId, Node>,
    pub jobs: BTreeMap<JobId, Job>,
    /// Arrays with live tasks, by job number.
    pub arrays: BTreeMap<u64, ArrayState>,
    /// Outcomes of ended jobs, for a day; the outcome of a whole array is under its number without an index.
    pub ended: BTreeMap<JobId, EndedJob>,
    /// Outcomes and keys from before this time have expired.
    pub forgotten_before: Timestamp,
    /// Outcomes and keys from before this time are only in the tables: there were too many.
    pub trimmed_before: Timestamp,
    /// Idempotency keys of submissions, for a day.
    pub keys: BTreeMap<TenantId, BTreeMap<String, IdempotencyRecord>>,
    /// Claims by preemptor.
    pub claims: BTreeMap<JobId, Claim>,
    /// Windows by name.
    pub windows: BTreeMap<String, Window>,
    /// Secrets of jobs, without their values.
    pub secrets: BTreeMap<SecretId, Secret>,
    /// Tokens that are not revoked, by id.
    pub tokens: BTreeMap<String, Token>,
    /// Join tokens that are neither used nor expired, by id.
    pub join_tokens: BTreeMap<String, JoinToken>,
    /// Nodes whose agents have a certificate. Agents within the server have none.
    pub enrolments: BTreeMap<NodeId, Enrolment>,
    /// SHA-256 fingerprint of the CA that signs the certificates of agents.
    pub cluster_ca: Option<String>,
    pub ledger: Ledger,
    /// How accurate the forecasts of starts were.
    pub calibration: ForecastCalibration,
    /// Runtimes of the last jobs of the cluster.
    pub recent_runtimes: RecentRuntimes,
    /// Task sizes of recent submissions.
    pub workload_mix: WorkloadMix,
    /// Active policies and their answers.
    pub policies: Policies,

    pub queue: Queue,
    /// Free resources by node. Derived.
    pub resources: ResourceIndex,
    /// The jobs that depend on each job. Derived.
    pub(crate) dependents: BTreeMap<JobId, BTreeSet<JobId>>,
    /// The ports that live gangs hold on the nodes of their rank 0. Derived.
    pub(crate) master_ports: BTreeMap<NodeId, BTreeSet<u16>>,
    /// When the time limits and start bounds of live attempts expire. Derived.
    pub(crate) deadlines: BTreeSet<(Timestamp, JobId)>,
    /// Planned ends of running attempts. Derived.
    pub(crate) ends: BTreeSet<(Timestamp, JobId)>,
}

/// An array with live tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrayState {
    /// Most tasks that run at once.
    #[serde(default)]
    pub running_max: Option<u32>,
    /// Tasks that have not ended.
    pub live: u32,
    /// Tasks with an attempt.
    pub active: u32,
    /// True if every ended task succeeded.
    pub all_done: bool,
}

/// The outcome of a job and when it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedJob {
    pub outcome: Outcome,
    pub at: Timestamp,
}

/// A claim: space held for a preemptor while its victims stop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Placement of the preemptor's tasks. Empty in claims recorded before gangs could span nodes: these hold nothing
    /// and expire.
    #[serde(default)]
    pub tasks: Vec<PlacedTask>,
    pub victims: Vec<JobId>,
    /// When the claim expires.
    pub until: Timestamp,
}

impl Claim {
    /// True if the claim holds a device.
    pub fn holds(&self, node: &NodeId, gpu: u8) -> bool {
        self.tasks.iter().any(|task| task.node == *node && task.gpus.contains(&gpu))
    }

    /// True if the claim holds space on a node.
    pub fn is_on(&self, node: &NodeId) -> bool {
        self.tasks.iter().any(|task| task.node == *node)
    }
}

impl State {
    /// The state before the first event. The first job will be `job-1`.
    pub fn empty() -> State {
        State { next_job: 1, ..State::default() }
    }

    pub fn job(&self, id: JobId) -> Result<&Job, Refusal> {
        self.jobs.get(&id).ok_or(Refusal::UnknownJob { job: id })
    }

    pub fn tenant(&self, id: &TenantId) -> Result<&Tenant, Refusal> {
        self.tenants.get(id).ok_or_else(|| Refusal::UnknownTenant { tenant: id.clone() })
    }

    pub fn node(&self, id: &NodeId) -> Result<&Node, Refusal> {
        self.nodes.get(id).ok_or_else(|| Refusal::UnknownNode { node: id.clone() })
    }

    /// The live jobs that an id refers to: the job itself, or every live task of an array.
    pub fn live_jobs_of(&self, id: JobId) -> Vec<JobId> {
        if self.jobs.contains_key(&id) {
            return vec![id];
        }
        match id.index {
            Some(_) => Vec::new(),
            None => {
                let all = JobId::of_array(id.number, 0)..=JobId::of_array(id.number, u32::MAX);
                self.jobs.range(all).map(|(id, _)| *id).collect()
            }
        }
    }

    /// True if a job belongs to an array that limits how many of its tasks run at once.
    pub fn has_array_limit(&self, id: JobId) -> bool {
        id.index.is_some() && self.arrays.get(&id.number).is_some_and(|array| array.running_max.is_some())
    }

    /// The bucket of a live job once it is ready.
    pub fn bucket(&self, job: &Job) -> Bucket {
        bucket_of(job, self.has_array_limit(job.id), &self.policies.bucket_criteria)
    }

    /// A tenant and its ancestors; the tenant first, the root last.
    pub fn lineage<'a>(&'a self, tenant: &TenantId) -> impl Iterator<Item = &'a Tenant> {
        let parent = |tenant: &&'a Tenant| tenant.config.parent.as_ref().and_then(|id| self.tenants.get(id));
        std::iter::successors(self.tenants.get(tenant), parent)
    }

    /// Sum of the known power limits of the devices of some tasks; a shared device counts in part.
    pub fn milliwatts_of(&self, tasks: &[PlacedTask]) -> u64 {
        if self.resources.milliwatts() == 0 {
            return 0;
        }
        let facts = |(node, gpu): (&NodeId, u8)| self.nodes.get(node)?.facts.gpus.get(usize::from(gpu));
        let of_task = |task: &PlacedTask| {
            let devices: u64 = task.devices().filter_map(facts).map(GpuFacts::milliwatts).sum();
            devices * task.milli_each() / 1_000
        };
        tasks.iter().map(of_task).sum()
    }

    /// Jobs with an attempt that has tasks on a node and has not ended.
    pub fn attempts_on<'a>(&'a self, node: &NodeId) -> impl Iterator<Item = &'a Job> + 'a {
        self.nodes.get(node).into_iter().flat_map(|node| &node.jobs).filter_map(|id| self.jobs.get(id))
    }
}

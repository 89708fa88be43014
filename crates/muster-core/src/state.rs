//! What is true of the cluster now, and the three things one can do with it: ask (`decide`), make true
//! (`apply`), and look for a broken law (`check`).

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
use crate::objects::job::{Job, Outcome, PlacedTask};
use crate::objects::node::Node;
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
mod job_control;
mod nodes;
mod policies;
pub(crate) mod policy_answers;
pub(crate) mod preemption;
mod report;
mod rights;
mod runtime_estimates;
mod saved;
mod submit;
mod tenants;
mod tick;
pub(crate) mod usage;
mod windows;

pub use check::Violation;
pub use decide::Decision;
pub use saved::{MissingSpec, SavepointPiece, StateRestorer};

/// The cluster. Memory holds what is alive; ended jobs are read from the tables.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct State {
    /// How many events made it.
    pub seq: u64,
    /// The newest moment any event speaks of.
    pub clock: Timestamp,
    /// The number of the next job.
    pub next_job: u64,
    /// The rules that decisions follow.
    pub settings: Settings,
    pub tenants: BTreeMap<TenantId, Tenant>,
    pub nodes: BTreeMap<NodeId, Node>,
    pub jobs: BTreeMap<JobId, Job>,
    /// Every array with a live task.
    pub arrays: BTreeMap<u64, ArrayState>,
    /// How jobs ended, for a day; whole arrays under their number without index.
    pub ended: BTreeMap<JobId, EndedJob>,
    /// Ends and keys from before this moment are forgotten.
    pub forgotten_before: Timestamp,
    /// Ends and keys from before this moment are in the tables only: there were too many.
    pub trimmed_before: Timestamp,
    /// Keys of submissions, for a day.
    pub keys: BTreeMap<TenantId, BTreeMap<String, IdempotencyRecord>>,
    /// Space held for jobs that others were displaced for.
    pub claims: BTreeMap<JobId, Claim>,
    /// Nodes that are booked for a time, by name.
    pub windows: BTreeMap<String, Window>,
    /// Every token that was not revoked.
    pub tokens: BTreeMap<String, Token>,
    pub ledger: Ledger,
    /// How right the planner was about when jobs start.
    pub calibration: ForecastCalibration,
    /// How long the last jobs of the cluster ran.
    pub recent_runtimes: RecentRuntimes,
    /// What has been asked for of late.
    pub workload_mix: WorkloadMix,
    /// Which policies are in force, and what they answered.
    pub policies: Policies,

    pub queue: Queue,
    /// What is free where. Derived.
    pub resources: ResourceIndex,
    /// Which jobs wait for the end of this one. Derived.
    pub(crate) dependents: BTreeMap<JobId, BTreeSet<JobId>>,
    /// When time limits run out. Derived.
    pub(crate) deadlines: BTreeSet<(Timestamp, JobId)>,
    /// When running attempts are on their way out, as far as can be told. Derived.
    pub(crate) ends: BTreeSet<(Timestamp, JobId)>,
}

/// An array with live tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrayState {
    /// Most tasks running at once.
    #[serde(default)]
    pub running_max: Option<u32>,
    /// Tasks that have not ended.
    pub live: u32,
    /// Tasks with an attempt.
    pub active: u32,
    /// Whether every ended task is done.
    pub all_done: bool,
}

/// How a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedJob {
    pub outcome: Outcome,
    pub at: Timestamp,
}

/// Space held for a job that others were displaced for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Which task will sit where. Claims written before gangs could sit on several nodes have none: they hold
    /// nothing, and run out.
    #[serde(default)]
    pub tasks: Vec<PlacedTask>,
    pub victims: Vec<JobId>,
    /// Until when, at the latest.
    pub until: Timestamp,
}

impl Claim {
    /// Whether it holds a device.
    pub fn holds(&self, node: &NodeId, gpu: u8) -> bool {
        self.tasks.iter().any(|task| task.node == *node && task.gpus.contains(&gpu))
    }

    /// Whether it holds anything on a node.
    pub fn is_on(&self, node: &NodeId) -> bool {
        self.tasks.iter().any(|task| task.node == *node)
    }
}

impl State {
    /// A cluster in which nothing has happened yet. The first job will be `job-1`.
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

    /// The live jobs an id means: the job itself, or every live task of an array.
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

    /// Whether a job belongs to an array that limits how many of its tasks run at once.
    pub fn has_array_limit(&self, id: JobId) -> bool {
        id.index.is_some() && self.arrays.get(&id.number).is_some_and(|array| array.running_max.is_some())
    }

    /// The bucket a live job stands in when it is ready.
    pub fn bucket(&self, job: &Job) -> Bucket {
        bucket_of(job, self.has_array_limit(job.id), &self.policies.bucket_criteria)
    }

    /// A tenant and all above it, itself first.
    pub fn lineage<'a>(&'a self, tenant: &TenantId) -> impl Iterator<Item = &'a Tenant> {
        let above = |tenant: &&'a Tenant| tenant.config.parent.as_ref().and_then(|id| self.tenants.get(id));
        std::iter::successors(self.tenants.get(tenant), above)
    }

    /// The power limits of all devices of some tasks together, as far as they are known; of a shared device their part.
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

    /// The attempts that have a part on a node and have not ended.
    pub fn attempts_on<'a>(&'a self, node: &NodeId) -> impl Iterator<Item = &'a Job> + 'a {
        self.nodes.get(node).into_iter().flat_map(|node| &node.jobs).filter_map(|id| self.jobs.get(id))
    }
}

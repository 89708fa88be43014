//! What is true of the cluster now, and the three things one can do with it: ask (`decide`), make true
//! (`apply`), and look for a broken law (`check`).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::capacity::Capacity;
use crate::foresight::Foresight;
use crate::ids::{JobId, NodeId, TenantId};
use crate::job::{Job, Outcome, PlacedTask};
use crate::lasting::Lasted;
use crate::ledger::Ledger;
use crate::mix::Mix;
use crate::node::{GpuFacts, Node};
use crate::policy::Policies;
use crate::queue::{Bucket, Queue, bucket_of};
use crate::refusal::Refusal;
use crate::settings::Settings;
use crate::tenant::Tenant;
use crate::time::Timestamp;
use crate::token::Token;
use crate::window::Window;

mod adopt;
mod apply;
mod check;
mod decide;
mod nodes;
mod policies;
mod report;
mod rights;
mod saved;
mod steer;
mod submit;
mod tally;
mod tenants;
mod tick;
mod windows;

pub use check::Violation;
pub use decide::Decision;
pub use rights::{Ceiling, CeilingSource};
pub use saved::{MissingSpec, Piece, Restoring};

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
    /// Every tenant.
    pub tenants: BTreeMap<TenantId, Tenant>,
    /// Every node.
    pub nodes: BTreeMap<NodeId, Node>,
    /// Every live job.
    pub jobs: BTreeMap<JobId, Job>,
    /// Every array with a live task.
    pub arrays: BTreeMap<u64, Array>,
    /// How jobs ended, for a day; whole arrays under their number without index.
    pub ended: BTreeMap<JobId, Ended>,
    /// Ends and keys from before this moment are forgotten.
    pub forgotten_before: Timestamp,
    /// Ends and keys from before this moment are in the tables only: there were too many.
    pub trimmed_before: Timestamp,
    /// Keys of submissions, for a day.
    pub keys: BTreeMap<TenantId, BTreeMap<String, KeyUse>>,
    /// Space held for jobs that others were displaced for.
    pub claims: BTreeMap<JobId, Claim>,
    /// Nodes that are booked for a time, by name.
    pub windows: BTreeMap<String, Window>,
    /// Every token that was not revoked.
    pub tokens: BTreeMap<String, Token>,
    /// Who used what.
    pub ledger: Ledger,
    /// How right the planner was about when jobs start.
    pub foresight: Foresight,
    /// How long the last jobs of the cluster ran.
    pub lasted: Lasted,
    /// What has been asked for of late.
    pub mix: Mix,
    /// Which policies are in force, and what they answered.
    pub policies: Policies,

    /// Who waits. Derived.
    pub queue: Queue,
    /// What is free where. Derived.
    pub capacity: Capacity,
    /// Which jobs wait for the end of this one. Derived.
    pub(crate) dependents: BTreeMap<JobId, BTreeSet<JobId>>,
    /// When time limits run out. Derived.
    pub(crate) deadlines: BTreeSet<(Timestamp, JobId)>,
    /// When running attempts are on their way out, as far as can be told. Derived.
    pub(crate) ends: BTreeSet<(Timestamp, JobId)>,
}

/// An array with live tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Array {
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
pub struct Ended {
    /// How.
    pub outcome: Outcome,
    /// When.
    pub at: Timestamp,
}

/// What a client's key was used for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyUse {
    /// The job it made.
    pub job: JobId,
    /// Hash of the request.
    pub body_hash: String,
    /// When.
    pub at: Timestamp,
}

/// Space held for a job that others were displaced for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Which task will sit where. Claims written before gangs could sit on several nodes have none: they hold
    /// nothing, and run out.
    #[serde(default)]
    pub tasks: Vec<PlacedTask>,
    /// Who makes room.
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

    /// A live job.
    pub fn job(&self, id: JobId) -> Result<&Job, Refusal> {
        self.jobs.get(&id).ok_or(Refusal::UnknownJob { job: id })
    }

    /// A tenant.
    pub fn tenant(&self, id: &TenantId) -> Result<&Tenant, Refusal> {
        self.tenants.get(id).ok_or_else(|| Refusal::UnknownTenant { tenant: id.clone() })
    }

    /// A node.
    pub fn node(&self, id: &NodeId) -> Result<&Node, Refusal> {
        self.nodes.get(id).ok_or_else(|| Refusal::UnknownNode { node: id.clone() })
    }

    /// The live jobs an id means: the job itself, or every live task of an array.
    pub fn members(&self, id: JobId) -> Vec<JobId> {
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
    pub fn is_limited(&self, id: JobId) -> bool {
        id.index.is_some() && self.arrays.get(&id.number).is_some_and(|array| array.running_max.is_some())
    }

    /// The bucket a live job stands in when it is ready.
    pub fn bucket(&self, job: &Job) -> Bucket {
        bucket_of(job, self.is_limited(job.id), &self.policies)
    }

    /// A tenant and all above it, itself first.
    pub fn lineage<'a>(&'a self, tenant: &TenantId) -> impl Iterator<Item = &'a Tenant> {
        let above = |tenant: &&'a Tenant| tenant.config.parent.as_ref().and_then(|id| self.tenants.get(id));
        std::iter::successors(self.tenants.get(tenant), above)
    }

    /// The power limits of all devices of some tasks together, as far as they are known; of a shared device their part.
    pub fn milliwatts_of(&self, tasks: &[PlacedTask]) -> u64 {
        if self.capacity.milliwatts() == 0 {
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

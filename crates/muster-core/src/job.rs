//! What was asked (`JobSpec`), what became of it (`Job`), and each try at running it (`Attempt`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::{GpuId, JobId, NodeId, TenantId};
use crate::plan::Range;
use crate::plan::score::Score;
use crate::share::{Share, ShareMode};
use crate::time::{SECOND, Timestamp};

pub use crate::demand::Demand;

/// What is left of the grace of an attempt that has saved its work: it may still leave by itself, in order.
const SAVED_GRACE_MS: i64 = 2 * SECOND;

/// Everything a person said about a job. It never changes after submission except by `JobChanged`, and it is
/// shared between all tasks of an array and all replicas of the state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSpec {
    /// For people; need not be unique.
    pub name: String,
    /// Who pays.
    pub tenant: TenantId,
    /// Who asked.
    pub user: String,
    /// 0 to 10,000; higher runs first. Aging is added to it for the order, never for preemption.
    pub priority: u32,
    /// The gang: all tasks of all groups start together or not at all.
    pub tasks: Vec<TaskGroup>,
    /// How close together its GPUs must be.
    #[serde(default)]
    pub topology: Topology,
    /// Its GPUs may lie on several NUMA nodes; where this is denied they must not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_cross_numa: Option<bool>,
    /// NVLink is worth more to it than one NUMA node.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub prefer_nvlink: bool,
    /// `gang_scheduling` as submitted, where it was. The GPUs of a job are granted together either way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gang_scheduling: Option<bool>,
    /// The job is stopped when it has run this long.
    #[serde(default)]
    pub time_limit_ms: Option<i64>,
    /// What happens when an attempt fails.
    #[serde(default)]
    pub restart: RestartRule,
    /// What happens when its node is lost.
    #[serde(default)]
    pub on_node_lost: OnNodeLost,
    /// How it saves its work, if it does.
    #[serde(default)]
    pub checkpoint: Option<CheckpointRule>,
    /// Jobs that must have ended first.
    #[serde(default)]
    pub after: Vec<Dependency>,
    /// Not before this moment.
    #[serde(default)]
    pub start_after: Option<Timestamp>,
    /// A named pool to stay inside of; pools are registered by policies.
    #[serde(default)]
    pub pool: Option<String>,
    /// Only nodes that carry all of these labels.
    #[serde(default)]
    pub node_labels: BTreeMap<String, String>,
    /// What to run.
    pub run: Run,
    /// Free words of the owner, searchable.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Free words for machines, for example `muster.sim/runtime`.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
}

impl JobSpec {
    /// GPUs of the gang, all tasks together, whole or shared.
    pub fn gpus(&self) -> u32 {
        self.tasks.iter().map(|group| group.count.saturating_mul(group.each.gpus)).sum()
    }

    /// What the gang takes from its tenant's quota, at its smallest.
    pub fn demand(&self) -> Demand {
        let groups = self.tasks.iter().map(|group| group.each.demand().times(u64::from(group.count)));
        groups.fold(Demand { jobs: 1, ..Demand::default() }, Demand::plus)
    }

    /// What so many of its tasks take, but for power: an elastic gang may have more than it needs.
    pub fn demand_of(&self, tasks: &[PlacedTask]) -> Demand {
        let each = tasks.iter().map(|task| self.tasks[task.group as usize].each.demand_in(task));
        each.fold(Demand { jobs: 1, ..Demand::default() }, Demand::plus)
    }

    /// Whether there are as many tasks of each group as it needs, and no more than it takes.
    pub fn is_complete(&self, tasks: &[PlacedTask]) -> bool {
        let mut counts = vec![0; self.tasks.len()];
        for task in tasks {
            match counts.get_mut(task.group as usize) {
                Some(count) => *count += 1,
                None => return false,
            }
        }
        self.tasks.iter().zip(counts).all(|(group, count)| (group.count..=group.most()).contains(&count))
    }

    /// Whether it takes more tasks than it needs, where there is room.
    pub fn is_elastic(&self) -> bool {
        self.tasks.iter().any(|group| group.most() > group.count)
    }
}

/// Tasks of one kind inside a gang, for example sixteen workers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TaskGroup {
    /// What the group is called, for example `worker`.
    pub name: String,
    /// How many tasks; of an elastic group the fewest it can work with.
    pub count: u32,
    /// The most tasks it can make use of, where that is more than it needs. It starts as soon as `count` fit, with as many
    /// as there is room for then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count_max: Option<u32>,
    /// What each of them needs.
    pub each: Resources,
}

impl TaskGroup {
    /// The most tasks it takes.
    pub fn most(&self) -> u32 {
        self.count_max.unwrap_or(self.count).max(self.count)
    }
}

/// What one task needs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Resources {
    /// GPUs; a task may have none.
    pub gpus: u32,
    /// GPU models that will do, in canonical spelling; empty means any.
    #[serde(default)]
    pub gpu_models: BTreeSet<String>,
    /// Memory that each GPU must have at least.
    #[serde(default)]
    pub gpu_memory_mib: u64,
    /// Share of each GPU in thousandths; 1,000 is the whole device.
    #[serde(default = "whole_gpu")]
    pub gpu_compute_milli: u32,
    /// How strictly neighbours on a shared GPU are kept apart.
    #[serde(default)]
    pub isolation: Isolation,
    /// CPU cores.
    pub cpus: u32,
    /// Main memory.
    pub memory_mib: u64,
}

impl Resources {
    /// What one task takes from its tenant's quota where it is placed: as it was asked for, but an instance of a
    /// partitioned device as it is held, because nobody else can use the rest of it.
    pub fn demand_in(&self, task: &PlacedTask) -> Demand {
        let asked = self.demand();
        match task.share.as_deref() {
            Some(Share { compute_milli, memory_mib, mode: ShareMode::Mig { .. }, .. }) => {
                Demand { gpu_milli: u64::from(*compute_milli), gpu_memory_mib: *memory_mib, ..asked }
            }
            _ => asked,
        }
    }

    /// What one task takes from its tenant's quota, as it is asked for.
    pub fn demand(&self) -> Demand {
        let gpus = u64::from(self.gpus);
        Demand {
            gpu_milli: gpus * u64::from(self.gpu_compute_milli),
            gpu_memory_mib: gpus * self.gpu_memory_mib,
            cpus: u64::from(self.cpus),
            memory_mib: self.memory_mib,
            ..Demand::default()
        }
    }
}

fn whole_gpu() -> u32 {
    1_000
}

/// How strictly neighbours on one GPU are kept apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Isolation {
    /// They may see each other's slowdowns and exhaust the memory together.
    #[default]
    None,
    /// Memory is limited per job.
    Memory,
    /// Memory and compute are apart in hardware.
    Full,
}

impl Isolation {
    /// As people write it.
    pub fn word(self) -> &'static str {
        match self {
            Isolation::None => "none",
            Isolation::Memory => "memory",
            Isolation::Full => "full",
        }
    }
}

/// How close together the GPUs of a gang must be. Where nothing is said they are as close as possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Topology {
    /// Wherever there is room.
    #[default]
    Any,
    /// On GPUs of one NUMA node.
    SameNuma,
    /// On GPUs joined by NVLink.
    Nvlink,
    /// On nodes of one rack.
    SameRack,
}

impl Topology {
    /// As people write it.
    pub fn word(self) -> &'static str {
        match self {
            Topology::Any => "any",
            Topology::SameNuma => "same-numa",
            Topology::Nvlink => "nvlink",
            Topology::SameRack => "same-rack",
        }
    }
}

/// What happens when an attempt fails by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestartRule {
    /// Start again after a failure, this many times; then the job has failed.
    #[serde(default)]
    pub max_restarts: u32,
    /// Come back after preemption or a lost node, this many times; then the job is held with a reason.
    #[serde(default = "default_requeues")]
    pub max_requeues: u32,
}

/// Slurm's MaxBatchRequeue is 5 as well; preemption by the tenant's limit is counted apart.
fn default_requeues() -> u32 {
    5
}

impl Default for RestartRule {
    fn default() -> RestartRule {
        RestartRule { max_restarts: 0, max_requeues: default_requeues() }
    }
}

/// What happens to a job when its node is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnNodeLost {
    /// It may still be running there: wait until the node is fenced or comes back.
    #[default]
    Wait,
    /// It stops itself after its fence deadline, then starts elsewhere.
    Requeue,
    /// Start elsewhere at once and accept that two copies may run.
    RequeueUnsafe,
}

/// How a job saves its work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointRule {
    /// Where, as the job sees it.
    pub path: String,
    /// How often it does so by itself, if it said.
    #[serde(default)]
    pub every_ms: Option<i64>,
}

/// A job that must have ended before this one may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Dependency {
    /// The other job; without an index it means every task of an array.
    pub job: JobId,
    /// How it must have ended.
    pub when: DependencyWhen,
}

/// How the other job must have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DependencyWhen {
    /// Exit code 0.
    Succeeded,
    /// Not with exit code 0.
    Failed,
    /// In any way.
    Ended,
}

/// What to run. At least one of script and command is set, or an image with its own entry point.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Run {
    /// An OCI image.
    #[serde(default)]
    pub image: Option<String>,
    /// A shell script.
    #[serde(default)]
    pub script: Option<String>,
    /// A command, without a shell.
    #[serde(default)]
    pub command: Vec<String>,
    /// Its further arguments.
    #[serde(default)]
    pub args: Vec<String>,
    /// Environment variables.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Working directory.
    #[serde(default)]
    pub directory: Option<String>,
}

/// A job that is alive: waiting, running, or ending.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Its name for ever.
    pub id: JobId,
    /// What was asked.
    pub spec: Arc<JobSpec>,
    /// When it was accepted. Order inside a priority, and aging, count from here, also after preemption.
    pub submitted_at: Timestamp,
    /// Where it stands.
    pub phase: Phase,
    /// How many attempts were made.
    pub attempts: u32,
    /// How many of them failed by themselves.
    #[serde(default)]
    pub restarts: u32,
    /// How many were preempted.
    #[serde(default)]
    pub preemptions: u32,
    /// How many ended for other outside reasons: a lost node, an operator's requeue, a refused launch.
    #[serde(default)]
    pub requeues: u32,
    /// How long it ran in earlier attempts, as far as that work was not lost.
    #[serde(default)]
    pub ran_ms: i64,
    /// Its number among those of its kind.
    #[serde(default)]
    pub number: u64,
    /// Asleep until this moment: its start time, or the pause after a failed launch.
    #[serde(default)]
    pub wakes_at: Option<Timestamp>,
    /// Dependencies that are still open.
    #[serde(default)]
    pub open_dependencies: BTreeSet<Dependency>,
    /// When it was said that it would start, the first time that was said of this wait. In a box, because it is said of
    /// few of many that wait.
    #[serde(default)]
    pub foreseen: Option<Box<Range>>,
}

/// Where a live job stands. Ended jobs leave the state; `State::ended` remembers their outcome for a day.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "kebab-case")]
pub enum Phase {
    /// Waits for its turn.
    Queued {
        /// It was running and lost its place.
        preempted: bool,
        /// It was running and lost a node: it goes before new work of its priority.
        #[serde(default)]
        returning: bool,
        /// Since when.
        since: Timestamp,
    },
    /// Waits for a person to release it.
    Held {
        /// Who or what holds it.
        by: String,
        /// Why.
        why: String,
        /// Since when.
        since: Timestamp,
    },
    /// Has an attempt: starting, running, stopping, or lost from sight.
    Active(Box<Attempt>),
}

impl Job {
    /// The attempt under way, if there is one.
    pub fn attempt(&self) -> Option<&Attempt> {
        match &self.phase {
            Phase::Active(attempt) => Some(attempt),
            Phase::Queued { .. } | Phase::Held { .. } => None,
        }
    }

    /// What its attempt takes from its tenant's quota; nothing while it waits.
    pub fn held(&self) -> Demand {
        self.attempt().map(|attempt| attempt.demand(&self.spec)).unwrap_or_default()
    }

    /// Whether it waits in the queue: not held and without an attempt.
    pub fn is_queued(&self) -> bool {
        matches!(self.phase, Phase::Queued { .. })
    }

    /// Whether it could be placed now: it waits, awake and without open dependencies.
    pub fn is_ready(&self) -> bool {
        self.is_queued() && self.wakes_at.is_none() && self.open_dependencies.is_empty()
    }

    /// The fine word of the phase, as people read it.
    pub fn phase_word(&self) -> &'static str {
        match &self.phase {
            Phase::Queued { .. } => "Queued",
            Phase::Held { .. } => "Held",
            Phase::Active(attempt) => attempt.phase_word(),
        }
    }
}

/// One try at running a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// 1 for the first.
    pub number: u32,
    /// Under which leadership it was placed.
    pub epoch: u64,
    /// The priority it was ordered by when it was placed.
    #[serde(default)]
    pub effective: Option<i64>,
    /// How long it was expected to run, where it has no time limit.
    #[serde(default)]
    pub expected_ms: Option<i64>,
    /// It has its space on loan: those it passed may ask it to leave when its expected time is over.
    #[serde(default)]
    pub lent: bool,
    /// Why it was placed there, where there was a choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<Box<Score>>,
    /// Which task sits where. Together they are the leases of the attempt.
    pub tasks: Vec<PlacedTask>,
    /// The power limits of its GPUs as they were then, together.
    pub milliwatts: u64,
    /// The most that each of its GPUs may draw, where policies said so when it was placed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_milliwatts_max: Option<u64>,
    /// When it was placed: leases count from here.
    pub placed_at: Timestamp,
    /// When its processes were seen running.
    #[serde(default)]
    pub started_at: Option<Timestamp>,
    /// When it last said that its work is saved.
    #[serde(default)]
    pub saved_at: Option<Timestamp>,
    /// When it was told to stop, and why.
    #[serde(default)]
    pub stopping: Option<Stopping>,
    /// What each node said so far.
    #[serde(default)]
    pub parts: Parts,
}

impl Attempt {
    /// An attempt that has its place and nothing else yet, by its number and the leadership it was placed under.
    pub(crate) fn placed(
        (number, epoch): (u32, u64),
        (effective, expected_ms): (Option<i64>, Option<i64>),
        tasks: &[PlacedTask],
        placed_at: Timestamp,
    ) -> Attempt {
        Attempt {
            number,
            epoch,
            effective,
            expected_ms,
            lent: false,
            score: None,
            tasks: tasks.to_vec(),
            milliwatts: 0,
            gpu_milliwatts_max: None,
            placed_at,
            started_at: None,
            saved_at: None,
            stopping: None,
            parts: Parts::default(),
        }
    }

    /// What it takes from its tenant's quota.
    pub fn demand(&self, spec: &JobSpec) -> Demand {
        Demand { milliwatts: self.milliwatts, ..spec.demand_of(&self.tasks) }
    }

    /// Every GPU it holds.
    pub fn gpus(&self) -> impl Iterator<Item = GpuId> + '_ {
        self.tasks
            .iter()
            .flat_map(|task| task.gpus.iter().map(|index| GpuId { node: task.node.clone(), index: *index }))
    }

    /// How many GPUs it holds, whole or a part of.
    pub fn gpu_count(&self) -> u64 {
        self.tasks.iter().map(|task| task.gpus.len() as u64).sum()
    }

    /// How much of GPUs it holds, in thousandths.
    pub fn gpu_milli(&self) -> u64 {
        self.tasks.iter().map(PlacedTask::gpu_milli).sum()
    }

    /// Its nodes, each once, in order.
    pub fn nodes(&self) -> BTreeSet<NodeId> {
        self.tasks.iter().map(|task| task.node.clone()).collect()
    }

    /// The fine word of the phase.
    pub fn phase_word(&self) -> &'static str {
        match (&self.stopping, self.started_at) {
            (Some(_), _) => "Stopping",
            (None, Some(_)) => "Running",
            (None, None) => "Starting",
        }
    }
}

/// Why and when an attempt was told to stop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stopping {
    /// What caused it.
    pub cause: StopCause,
    /// When.
    pub since: Timestamp,
    /// How long the processes may take before they are killed; less once there is nothing more to wait for.
    pub grace_ms: i64,
}

impl Stopping {
    /// The grace of an attempt that says now that its work is saved, where that is shorter. Only who comes back was
    /// waited for because of its work; who ends for good has the rest of the time for whatever it ends with.
    pub(crate) fn grace_ms_once_saved(&self, now: Timestamp) -> Option<i64> {
        let shorter = now.since(self.since).saturating_add(SAVED_GRACE_MS);
        (self.cause.comes_back() && shorter < self.grace_ms).then_some(shorter)
    }
}

/// Why an attempt was told to stop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "cause", rename_all = "kebab-case")]
pub enum StopCause {
    /// A person cancelled the job.
    Cancelled {
        /// Who.
        by: String,
        /// Why, where that is known.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        why: String,
    },
    /// Its time limit passed.
    TimeLimit,
    /// A job of higher priority takes its place.
    Preempted {
        /// That job.
        by: JobId,
    },
    /// A person wants it to start anew.
    Requeued {
        /// Who.
        by: String,
        /// Why, where that is known.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        why: String,
    },
    /// A person wants it out of the way and not back.
    Held {
        /// Who.
        by: String,
        /// Why; may be empty.
        #[serde(default)]
        why: String,
    },
    /// Another part of the gang has ended with a failure.
    GangFailed,
}

impl StopCause {
    /// A user cancelled the job and gave no reason.
    pub(crate) fn cancelled(by: &str) -> StopCause {
        StopCause::Cancelled { by: by.to_string(), why: String::new() }
    }

    /// A user requeued the job and gave no reason.
    pub(crate) fn requeued(by: &str) -> StopCause {
        StopCause::Requeued { by: by.to_string(), why: String::new() }
    }

    /// Whether the job goes on later, from what it has saved.
    fn comes_back(&self) -> bool {
        match self {
            StopCause::Preempted { .. } | StopCause::Requeued { .. } | StopCause::Held { .. } => true,
            StopCause::Cancelled { .. } | StopCause::TimeLimit | StopCause::GangFailed => false,
        }
    }
}

/// One task on one node with its GPUs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacedTask {
    /// The rank inside the gang, from 0.
    pub rank: u32,
    /// Index of its group in `JobSpec::tasks`.
    pub group: u32,
    /// Where.
    pub node: NodeId,
    /// Which devices there.
    pub gpus: Vec<u8>,
    /// What it has of its device, where that is not the whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<Box<Share>>,
}

impl PlacedTask {
    /// What it holds of each of its devices, in thousandths.
    pub fn milli_each(&self) -> u64 {
        self.share.as_ref().map_or(1_000, |share| u64::from(share.compute_milli))
    }

    /// How much of GPUs it holds, in thousandths.
    pub fn gpu_milli(&self) -> u64 {
        self.milli_each() * self.gpus.len() as u64
    }

    /// Its devices, each with their node.
    pub fn devices(&self) -> impl Iterator<Item = (&NodeId, u8)> {
        self.gpus.iter().map(|gpu| (&self.node, *gpu))
    }
}

/// What each node said, in order of node. Most attempts have one part, for which a map would take a page of memory.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "BTreeMap<NodeId, Part>", into = "BTreeMap<NodeId, Part>")]
pub struct Parts(Vec<(NodeId, Part)>);

impl Parts {
    /// What a node said.
    pub fn get(&self, node: &NodeId) -> Option<&Part> {
        self.place(node).ok().map(|place| &self.0[place].1)
    }

    /// All that was said, in order of node.
    pub fn values(&self) -> impl Iterator<Item = &Part> {
        self.0.iter().map(|(_, part)| part)
    }

    /// A node says something, instead of what it said before.
    pub(crate) fn insert(&mut self, node: &NodeId, part: Part) {
        match self.place(node) {
            Ok(place) => self.0[place].1 = part,
            Err(place) => {
                if self.0.is_empty() {
                    self.0.reserve_exact(1);
                }
                self.0.insert(place, (node.clone(), part));
            }
        }
    }

    fn place(&self, node: &NodeId) -> Result<usize, usize> {
        self.0.binary_search_by(|(other, _)| other.cmp(node))
    }
}

impl From<BTreeMap<NodeId, Part>> for Parts {
    fn from(parts: BTreeMap<NodeId, Part>) -> Parts {
        Parts(parts.into_iter().collect())
    }
}

impl From<Parts> for BTreeMap<NodeId, Part> {
    fn from(parts: Parts) -> BTreeMap<NodeId, Part> {
        parts.0.into_iter().collect()
    }
}

/// What a node said about its part of an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "part", rename_all = "kebab-case")]
pub enum Part {
    /// The processes run.
    Started,
    /// The processes are gone.
    Ended {
        /// How they ended.
        exit: Exit,
        /// They had been told to stop before.
        stopped: bool,
        /// When they were gone, where the node knows.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ended_at: Option<Timestamp>,
    },
}

/// How the processes of an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "exit", rename_all = "kebab-case")]
pub enum Exit {
    /// By themselves, with this code.
    Code {
        /// 0 is success.
        code: i32,
    },
    /// By a signal.
    Signal {
        /// Its number.
        signal: i32,
    },
    /// They never started.
    NotStarted {
        /// What went wrong.
        why: String,
    },
    /// They are gone and nobody saw how. Never invented as a code.
    Unknown {
        /// What is known.
        why: String,
    },
}

impl Exit {
    /// Whether it is a success.
    pub fn is_success(&self) -> bool {
        matches!(self, Exit::Code { code: 0 })
    }
}

/// How a job ended, for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Exit code 0.
    Done,
    /// Anything else that the job did itself, and the time limit.
    Failed,
    /// A person said so.
    Cancelled,
}

impl Outcome {
    /// Whether an end like this satisfies a dependency.
    pub fn satisfies(self, when: DependencyWhen) -> bool {
        match when {
            DependencyWhen::Succeeded => self == Outcome::Done,
            DependencyWhen::Failed => self != Outcome::Done,
            DependencyWhen::Ended => true,
        }
    }

    /// The fine word of the phase.
    pub fn word(self) -> &'static str {
        match self {
            Outcome::Done => "Done",
            Outcome::Failed => "Failed",
            Outcome::Cancelled => "Cancelled",
        }
    }
}

//! Events: the recorded changes of the cluster. The journal holds them in order and is the only source of truth.
//!
//! An event carries all that `apply` and the tables need, so that replay never decides anything. Fields are only added,
//! with defaults; a change of meaning is a new kind of event.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::facts::command::{ArraySpec, IdempotencyKey, JobChange};
use crate::facts::verdict::Reason;
use crate::gpu::device::{DeclaredHealth, GpuHealth, GpuStatus, MigInstance};
use crate::ids::{GpuId, JobId, NodeId, TenantId};
use crate::objects::charge::Charge;
use crate::objects::charge::HeldResources;
use crate::objects::demand::Demand;
use crate::objects::enrolment::JoinToken;
use crate::objects::job::{Dependency, Exit, JobSpec, Outcome, PlacedTask, SelfFence, StopCause};
use crate::objects::node::{Drain, NodeFacts, NodeStatus, PowerAction, Service, Sight};
use crate::objects::policy::{BundleVersion, JobAnswer, RetryAnswer, TenantLimit};
use crate::objects::score::Score;
use crate::objects::secret::{Secret, SecretId};
use crate::objects::settings::Settings;
use crate::objects::start_range::StartRange;
use crate::objects::tenant::TenantConfig;
use crate::objects::token::Token;
use crate::objects::window::Window;
use crate::time::Timestamp;

/// A recorded change of the state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind")]
pub enum Event {
    /// A job, or an array of jobs, was accepted.
    JobSubmitted {
        /// For an array, the number that all its jobs share.
        job: JobId,
        spec: Arc<JobSpec>,
        #[serde(default)]
        array: Option<ArraySpec>,
        /// The actor that holds it, if it was accepted as held.
        #[serde(default)]
        held_by: Option<String>,
        #[serde(default)]
        key: Option<IdempotencyKey>,
        /// Dependencies that were not met at submission.
        #[serde(default)]
        open_dependencies: BTreeSet<Dependency>,
        at: Timestamp,
    },
    /// A waiting job was held.
    JobHeld {
        job: JobId,
        by: String,
        why: String,
        at: Timestamp,
    },
    /// A held job was released into the queue.
    JobReleased {
        job: JobId,
        by: String,
        at: Timestamp,
    },
    /// Fields of a job were changed.
    JobChanged {
        job: JobId,
        change: JobChange,
        at: Timestamp,
    },
    /// The start time or backoff of a job has passed: it may be placed.
    JobWoken {
        job: JobId,
        at: Timestamp,
    },
    /// A job without an attempt ended: it was cancelled, or a dependency can no longer be met.
    JobEnded {
        job: JobId,
        outcome: Outcome,
        why: String,
        at: Timestamp,
    },

    /// A gang was placed. Its leases begin.
    JobPlaced {
        job: JobId,
        attempt: u32,
        epoch: u64,
        tasks: Vec<PlacedTask>,
        #[serde(default)]
        effective_priority: Option<i64>,
        /// Runtime estimate, if the job has no time limit.
        #[serde(default)]
        expected_ms: Option<i64>,
        /// Backfilled on its runtime estimate; the jobs it passed may preempt it if it overruns.
        #[serde(default)]
        revocable: bool,
        /// Score of the placement, if there were alternatives.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        score: Option<Box<Score>>,
        /// Quota usage without power; absent in journals of earlier versions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        held: Option<Demand>,
        /// Set if its nodes end it by themselves when no leader hears them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        self_fence: Option<SelfFence>,
        /// The port of the gang on the node of rank 0.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        master_port: Option<u16>,
        /// Set if the gang is stopped when a node starts later than this after the first one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        start_bound_ms: Option<i64>,
        at: Timestamp,
    },
    /// A node reported that its tasks of an attempt run.
    AttemptStarted {
        job: JobId,
        attempt: u32,
        node: NodeId,
        /// It was the last missing node: the whole gang runs.
        whole: bool,
        at: Timestamp,
    },
    /// An attempt was ordered to stop.
    AttemptStopping {
        job: JobId,
        attempt: u32,
        cause: StopCause,
        grace_ms: i64,
        at: Timestamp,
    },
    /// A node reported the end of its tasks while other nodes still run theirs.
    NodePartEnded {
        job: JobId,
        attempt: u32,
        node: NodeId,
        exit: Exit,
        /// Its processes had been ordered to stop before.
        stopped: bool,
        /// When its processes were gone, if the node knows.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ended_at: Option<Timestamp>,
        /// The prolog of the node failed, so no task ran there.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        prolog_failed: bool,
        at: Timestamp,
    },
    /// The time limit of a job ends soon: its tasks get the early signal.
    AttemptSignalled {
        job: JobId,
        attempt: u32,
        /// Number of the signal.
        signal: i32,
        at: Timestamp,
    },
    /// Processes of an attempt survive SIGKILL. It keeps its leases until they are gone.
    AttemptUnkillable {
        job: JobId,
        attempt: u32,
        node: NodeId,
        /// Pids, commands and states, for people.
        processes: String,
        at: Timestamp,
    },
    /// An attempt ended on all its nodes. Its leases end, its usage is charged, and the job enters `next`.
    AttemptEnded {
        job: JobId,
        attempt: u32,
        exit: Exit,
        next: NextPhase,
        charge: Charge,
        /// Set if the attempt was preempted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        receipt: Option<PreemptionReceipt>,
        /// Resources it held; absent in journals of earlier versions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        held: Option<HeldResources>,
        /// End of the charged time: when its last processes were gone. Absent if unknown, and in journals of earlier
        /// versions; then usage is charged until `at`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        charged_until: Option<Timestamp>,
        /// When the server received the report and released the leases.
        at: Timestamp,
    },
    /// A job reported a checkpoint.
    CheckpointSaved {
        job: JobId,
        attempt: u32,
        /// The shorter grace, counted from the stop order, if the attempt was already ordered to stop.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        grace_ms: Option<i64>,
        at: Timestamp,
    },

    /// The first start forecast of a waiting job.
    StartForecast {
        job: JobId,
        range: StartRange,
        at: Timestamp,
    },

    /// The reasons why jobs of one bucket wait have changed.
    WaitNoted {
        /// Bucket key.
        bucket: String,
        /// All reasons; empty when the jobs no longer wait.
        reasons: Vec<Reason>,
        at: Timestamp,
    },

    /// A claim holds the space freed by an eviction for the preemptor.
    ClaimMade {
        /// The preemptor.
        job: JobId,
        /// Placement of the preemptor's tasks.
        #[serde(default)]
        tasks: Vec<PlacedTask>,
        victims: Vec<JobId>,
        at: Timestamp,
        /// When the claim expires.
        until: Timestamp,
    },
    /// A claim ended: the preemptor started or ended, or the claim expired.
    ClaimEnded {
        job: JobId,
        why: String,
        at: Timestamp,
    },
    /// A plan was adopted. Running the planner on the state of `snapshot` at `now` gives the same plan.
    PlanAdopted {
        /// Number of events in the planner's snapshot.
        snapshot: u64,
        /// The planner's `now`.
        now: Timestamp,
        /// Gangs that were placed.
        placed: u32,
        /// Preemptors with a claim.
        claimed: u32,
        /// Gangs whose placement or eviction was no longer valid.
        rejected: u32,
    },

    TenantCreated {
        id: TenantId,
        config: Box<TenantConfig>,
        at: Timestamp,
    },
    TenantChanged {
        id: TenantId,
        config: Box<TenantConfig>,
        at: Timestamp,
    },
    TenantDeleted {
        id: TenantId,
        at: Timestamp,
    },

    /// A node registered, for the first time or again.
    NodeRegistered {
        node: NodeId,
        facts: Box<NodeFacts>,
        at: Timestamp,
    },
    /// An operator declared a node whose agent has not joined, or replaced its declaration.
    NodeDeclared {
        node: NodeId,
        facts: Box<NodeFacts>,
        by: String,
        at: Timestamp,
    },
    /// An operator set the labels and taints of a node. `None` leaves them to the agent.
    NodeLabelled {
        node: NodeId,
        #[serde(default)]
        labels: Option<BTreeMap<String, String>>,
        #[serde(default)]
        taints: Option<Vec<String>>,
        by: String,
        at: Timestamp,
    },
    /// Of earlier releases, in which a node had one status: service and sight are recorded apart now.
    NodeStateChanged {
        node: NodeId,
        status: NodeStatus,
        by: String,
        why: String,
        at: Timestamp,
    },
    /// An operator drained, held or returned a node.
    NodeServiceChanged {
        node: NodeId,
        service: Service,
        by: String,
        why: String,
        /// What follows a drain.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        drain: Option<Box<Drain>>,
        at: Timestamp,
    },
    /// A node fell silent, was fenced, or is heard again.
    NodeSightChanged {
        node: NodeId,
        sight: Sight,
        /// Last report of the node that the leader knows of.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        silent_since: Option<Timestamp>,
        by: String,
        why: String,
        at: Timestamp,
    },
    /// The health program of a node failed, or succeeds again.
    NodeHealthChanged {
        node: NodeId,
        /// How it failed; `None` if the node is healthy.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failure: Option<String>,
        at: Timestamp,
    },
    /// The power program failed for a node, or succeeds again, or has confirmed a reboot.
    NodePowerReported {
        node: NodeId,
        action: PowerAction,
        /// How it failed; `None` if it is done and confirmed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failure: Option<String>,
        at: Timestamp,
    },
    NodeRemoved {
        node: NodeId,
        at: Timestamp,
    },
    GpuHealthChanged {
        gpu: GpuId,
        status: GpuStatus,
        why: String,
        /// End of the cooling period.
        #[serde(default)]
        cooling_until: Option<Timestamp>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        temperature_c: Option<i32>,
        /// The operator's declaration, if there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        declared: Option<Box<DeclaredHealth>>,
        /// Status by the agent's readings, if an operator declared another one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reading: Option<GpuStatus>,
        /// Jobs with a lease on it, unless it is healthy.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        jobs: Vec<JobId>,
        at: Timestamp,
    },

    /// An idle GPU was repartitioned.
    GpuPartitioned {
        gpu: GpuId,
        /// Empty if the GPU is whole again.
        instances: Vec<MigInstance>,
        by: String,
        why: String,
        at: Timestamp,
    },

    /// Nodes were booked for a window.
    WindowOpened {
        window: Box<Window>,
        at: Timestamp,
    },
    /// A window ended, or was closed before its end.
    WindowClosed {
        name: String,
        why: String,
        at: Timestamp,
    },

    /// The value of a secret was set. The value itself is in a table of the store, sealed.
    SecretSet {
        secret: Box<Secret>,
        at: Timestamp,
    },
    /// A secret was removed, with its value.
    SecretRemoved {
        id: SecretId,
        at: Timestamp,
    },

    /// The settings of the cluster changed.
    Configured {
        settings: Box<Settings>,
        at: Timestamp,
    },
    /// A policy bundle was activated.
    PolicyApplied {
        version: Box<BundleVersion>,
    },
    /// Policies answered about waiting jobs and their tenants.
    PolicyAnswered {
        /// Hashes of the bundles that answered.
        bundles: Vec<String>,
        /// Each for one job and all jobs of its bucket.
        answers: Vec<JobAnswer>,
        /// Each for a tenant and its descendants.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        limits: Vec<TenantLimit>,
        at: Timestamp,
    },
    /// Policies answered whether a job restarts after a failure.
    RetryAnswered {
        /// Hashes of the bundles that answered.
        bundles: Vec<String>,
        answer: RetryAnswer,
        wakes_at: Timestamp,
        at: Timestamp,
    },
    TokenAdded {
        token: Token,
        at: Timestamp,
    },
    TokenRevoked {
        id: String,
        at: Timestamp,
    },
    /// An operator made a join token for a new node.
    JoinTokenAdded {
        token: Box<JoinToken>,
        at: Timestamp,
    },
    /// A join token can no longer be used: it expired unused, or the CA of the cluster was replaced.
    JoinTokenEnded {
        id: String,
        why: String,
        at: Timestamp,
    },
    /// The agent of a node used a join token and has a certificate. A former enrolment of the node ends.
    NodeEnrolled {
        node: NodeId,
        /// Id of the token, and from now on of the enrolment.
        token: String,
        at: Timestamp,
    },
    /// The CA that signs the certificates of agents was recorded.
    ClusterCaChosen {
        /// SHA-256 of its certificate, in hexadecimal.
        fingerprint: String,
        at: Timestamp,
    },
    /// An administrative act, done or refused.
    Acted {
        /// Name of the actor.
        by: String,
        /// Kind of the actor: `local` or `token`. Absent in journals of earlier versions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by_kind: Option<String>,
        /// For example `tenant.change`.
        act: String,
        object: String,
        /// Refusal code, if it was refused.
        #[serde(default)]
        refused: Option<String>,
        /// Count, if refusals of the same act are recorded together.
        #[serde(default = "once", skip_serializing_if = "is_once")]
        times: u32,
        /// Time of the last one.
        at: Timestamp,
    },
    /// Old outcomes of ended jobs and idempotency keys left the state.
    Forgotten {
        /// Entries from before this time have expired.
        before: Timestamp,
        /// Entries from before this time left the state because there are too many; the tables still have them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        trimmed_before: Option<Timestamp>,
    },
}

/// The receipt of a preemption: preemptor, times and preemption loss.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreemptionReceipt {
    /// The preemptor.
    pub by: JobId,
    /// When the victim was ordered to save its work and stop.
    pub stop_ordered_at: Timestamp,
    /// Last checkpoint of the victim, if any.
    #[serde(default)]
    pub saved_at: Option<Timestamp>,
    /// Runtime of the victim's attempt.
    pub ran_ms: i64,
    /// Preemption loss in GPU-milliseconds.
    pub lost_gpu_ms: u64,
}

/// The next phase of a job whose attempt ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "next", rename_all = "kebab-case")]
pub enum NextPhase {
    Ended {
        outcome: Outcome,
        why: String,
    },
    Queued {
        cause: RequeueCause,
        /// Not placed before this time.
        #[serde(default)]
        wakes_at: Option<Timestamp>,
    },
    /// It waits until somebody releases it.
    Held {
        /// The actor that holds it.
        by: String,
        why: String,
    },
}

/// Why a job is queued again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RequeueCause {
    /// It was preempted.
    Preempted,
    /// It failed, and its restart rule allows another attempt.
    Restarted,
    /// An operator's requeue, a lost node, or a failed launch.
    Requeued,
    /// The prolog of a node failed. Counts against no limit of the job.
    NodeFault,
}

impl Event {
    pub(crate) fn gpu_health_changed(gpu: GpuId, health: GpuHealth, jobs: Vec<JobId>) -> Event {
        let GpuHealth { status, why, since: at, cooling_until, temperature_c, declared, reading } = health;
        Event::GpuHealthChanged { gpu, status, why, cooling_until, temperature_c, declared, reading, jobs, at }
    }

    /// The name of the event's kind in the journal and the tables.
    pub fn kind(&self) -> &'static str {
        match self {
            Event::JobSubmitted { .. } => "JobSubmitted",
            Event::JobHeld { .. } => "JobHeld",
            Event::JobReleased { .. } => "JobReleased",
            Event::JobChanged { .. } => "JobChanged",
            Event::JobWoken { .. } => "JobWoken",
            Event::JobEnded { .. } => "JobEnded",
            Event::JobPlaced { .. } => "JobPlaced",
            Event::AttemptStarted { .. } => "AttemptStarted",
            Event::AttemptStopping { .. } => "AttemptStopping",
            Event::NodePartEnded { .. } => "NodePartEnded",
            Event::AttemptSignalled { .. } => "AttemptSignalled",
            Event::AttemptUnkillable { .. } => "AttemptUnkillable",
            Event::AttemptEnded { .. } => "AttemptEnded",
            Event::CheckpointSaved { .. } => "CheckpointSaved",
            Event::StartForecast { .. } => "StartForecast",
            Event::WaitNoted { .. } => "WaitNoted",
            Event::ClaimMade { .. } => "ClaimMade",
            Event::ClaimEnded { .. } => "ClaimEnded",
            Event::PlanAdopted { .. } => "PlanAdopted",
            Event::TenantCreated { .. } => "TenantCreated",
            Event::TenantChanged { .. } => "TenantChanged",
            Event::TenantDeleted { .. } => "TenantDeleted",
            Event::NodeRegistered { .. } => "NodeRegistered",
            Event::NodeDeclared { .. } => "NodeDeclared",
            Event::NodeLabelled { .. } => "NodeLabelled",
            Event::NodeStateChanged { .. } => "NodeStateChanged",
            Event::NodeServiceChanged { .. } => "NodeServiceChanged",
            Event::NodeSightChanged { .. } => "NodeSightChanged",
            Event::NodeHealthChanged { .. } => "NodeHealthChanged",
            Event::NodePowerReported { .. } => "NodePowerReported",
            Event::NodeRemoved { .. } => "NodeRemoved",
            Event::GpuHealthChanged { .. } => "GpuHealthChanged",
            Event::GpuPartitioned { .. } => "GpuPartitioned",
            Event::WindowOpened { .. } => "WindowOpened",
            Event::WindowClosed { .. } => "WindowClosed",
            Event::SecretSet { .. } => "SecretSet",
            Event::SecretRemoved { .. } => "SecretRemoved",
            Event::Configured { .. } => "Configured",
            Event::PolicyApplied { .. } => "PolicyApplied",
            Event::PolicyAnswered { .. } => "PolicyAnswered",
            Event::RetryAnswered { .. } => "RetryAnswered",
            Event::TokenAdded { .. } => "TokenAdded",
            Event::TokenRevoked { .. } => "TokenRevoked",
            Event::JoinTokenAdded { .. } => "JoinTokenAdded",
            Event::JoinTokenEnded { .. } => "JoinTokenEnded",
            Event::NodeEnrolled { .. } => "NodeEnrolled",
            Event::ClusterCaChosen { .. } => "ClusterCaChosen",
            Event::Acted { .. } => "Acted",
            Event::Forgotten { .. } => "Forgotten",
        }
    }
}

/// Earlier versions recorded each act by itself.
fn once() -> u32 {
    1
}

fn is_once(times: &u32) -> bool {
    *times == 1
}

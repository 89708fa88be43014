//! Everything that can have happened. The journal holds these in order, and nothing else is the truth.
//!
//! An event carries all that `apply` and the tables need, so that replay never decides anything. Fields are
//! only ever added, with defaults; a change of meaning is a new kind.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::command::{ArrayAsk, IdempotencyKey, JobChange};
use crate::ids::{GpuId, JobId, NodeId, TenantId};
use crate::job::{Demand, Dependency, Exit, JobSpec, Outcome, PlacedTask, StopCause};
use crate::ledger::Charge;
use crate::node::{DeclaredHealth, GpuHealth, GpuWord, NodeFacts, NodeWord};
use crate::partition::MigInstance;
use crate::plan::Range;
use crate::plan::score::Score;
use crate::policy::{Answered, Limited, Retried, Version};
use crate::settings::Settings;
use crate::tenant::TenantConfig;
use crate::time::Timestamp;
use crate::token::Token;
use crate::verdict::Reason;
use crate::window::Window;

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind")]
pub enum Event {
    /// A job, or an array of jobs, was accepted.
    JobSubmitted {
        /// Its id; for an array, the number that all tasks share.
        job: JobId,
        /// What was asked.
        spec: Arc<JobSpec>,
        /// The array, where there is one.
        #[serde(default)]
        array: Option<ArrayAsk>,
        /// Accepted in the held state, by whom.
        #[serde(default)]
        held_by: Option<String>,
        /// The client's key.
        #[serde(default)]
        key: Option<IdempotencyKey>,
        /// Dependencies that were open at that moment.
        #[serde(default)]
        open_dependencies: BTreeSet<Dependency>,
        /// When.
        at: Timestamp,
    },
    /// A waiting job is kept from starting.
    JobHeld {
        /// Which.
        job: JobId,
        /// Who.
        by: String,
        /// Why.
        why: String,
        /// When.
        at: Timestamp,
    },
    /// A held job waits again.
    JobReleased {
        /// Which.
        job: JobId,
        /// Who.
        by: String,
        /// When.
        at: Timestamp,
    },
    /// Something about a job was changed.
    JobChanged {
        /// Which.
        job: JobId,
        /// What.
        change: JobChange,
        /// When.
        at: Timestamp,
    },
    /// A sleeping job may be placed now.
    JobWoken {
        /// Which.
        job: JobId,
        /// When.
        at: Timestamp,
    },
    /// A job without an attempt ended: cancelled, or its dependency can no longer come true.
    JobEnded {
        /// Which.
        job: JobId,
        /// How.
        outcome: Outcome,
        /// Why, in a sentence.
        why: String,
        /// When.
        at: Timestamp,
    },

    /// A gang got its slots. The leases begin.
    JobPlaced {
        /// Which.
        job: JobId,
        /// Number of the attempt.
        attempt: u32,
        /// Under which leadership.
        epoch: u64,
        /// Which task sits where.
        tasks: Vec<PlacedTask>,
        /// The priority it was ordered by.
        #[serde(default)]
        effective: Option<i64>,
        /// How long it is expected to run, where it has no time limit.
        #[serde(default)]
        expected_ms: Option<i64>,
        /// It has its space on loan.
        #[serde(default)]
        lent: bool,
        /// Why it starts there, where there was a choice.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        score: Option<Box<Score>>,
        /// What it takes from its tenant's quota, power aside. Records from before it was noted have none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        held: Option<Demand>,
        /// When.
        at: Timestamp,
    },
    /// A node says that its part of an attempt runs; `whole` when it was the last one missing.
    AttemptStarted {
        /// Which job.
        job: JobId,
        /// Which attempt.
        attempt: u32,
        /// Which node.
        node: NodeId,
        /// Now the whole gang runs.
        whole: bool,
        /// When.
        at: Timestamp,
    },
    /// An attempt was told to stop.
    AttemptStopping {
        /// Which job.
        job: JobId,
        /// Which attempt.
        attempt: u32,
        /// Why.
        cause: StopCause,
        /// How long its processes may take.
        grace_ms: i64,
        /// When.
        at: Timestamp,
    },
    /// A node says that its part is over while others are not.
    PartEnded {
        /// Which job.
        job: JobId,
        /// Which attempt.
        attempt: u32,
        /// Which node.
        node: NodeId,
        /// How.
        exit: Exit,
        /// It had been told to stop before.
        stopped: bool,
        /// When its processes were gone, where the node knows.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ended_at: Option<Timestamp>,
        /// When.
        at: Timestamp,
    },
    /// An attempt is over on all its nodes. Its leases end, its usage is charged, and the job goes on to `next`.
    AttemptEnded {
        /// Which job.
        job: JobId,
        /// Which attempt.
        attempt: u32,
        /// How its processes ended.
        exit: Exit,
        /// What becomes of the job.
        next: Next,
        /// What its tenant used.
        charge: Charge,
        /// What it cost that it was displaced, if it was.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        receipt: Option<Receipt>,
        /// What it held until now; absent in journals of earlier versions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        held: Option<Held>,
        /// Until when its usage is charged: when the last of its processes were gone. Absent where nobody knows, and in
        /// journals of older releases: then until `at`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        charged_until: Option<Timestamp>,
        /// When the server knew, and its leases were released.
        at: Timestamp,
    },
    /// A job says that its work is saved.
    CheckpointSaved {
        /// Which job.
        job: JobId,
        /// Which attempt.
        attempt: u32,
        /// It was told to stop, and need not be waited for any longer: the new grace, from when it was told.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        grace_ms: Option<i64>,
        /// When.
        at: Timestamp,
    },

    /// It was said for the first time when a waiting job would start.
    StartForeseen {
        /// Which job.
        job: JobId,
        /// When.
        range: Range,
        /// When it was said.
        at: Timestamp,
    },

    /// Why jobs of one bucket wait has changed.
    WaitNoted {
        /// The key of the bucket.
        bucket: String,
        /// Every reason; none when they no longer wait.
        reasons: Vec<Reason>,
        /// When.
        at: Timestamp,
    },

    /// Space is held for a job that others were displaced for.
    ClaimMade {
        /// For which job.
        job: JobId,
        /// Which task will sit where.
        #[serde(default)]
        tasks: Vec<PlacedTask>,
        /// Who makes room.
        victims: Vec<JobId>,
        /// When.
        at: Timestamp,
        /// Until when, at the latest.
        until: Timestamp,
    },
    /// Held space is free again: its job has started, ended, or waited too long.
    ClaimEnded {
        /// Of which job.
        job: JobId,
        /// Why.
        why: String,
        /// When.
        at: Timestamp,
    },
    /// A plan was taken. Replaying the planner on the state of `snapshot` at `now` repeats it.
    PlanAdopted {
        /// Number of events the planner had seen.
        snapshot: u64,
        /// The planner's `now`.
        now: Timestamp,
        /// Gangs that got their slots.
        placed: u32,
        /// Gangs for which others were displaced.
        claimed: u32,
        /// Gangs that no longer held.
        left: u32,
    },

    /// A tenant was made.
    TenantCreated {
        /// Which.
        id: TenantId,
        /// What it may do.
        config: Box<TenantConfig>,
        /// When.
        at: Timestamp,
    },
    /// A tenant was changed.
    TenantChanged {
        /// Which.
        id: TenantId,
        /// All of it.
        config: Box<TenantConfig>,
        /// When.
        at: Timestamp,
    },
    /// A tenant was removed.
    TenantDeleted {
        /// Which.
        id: TenantId,
        /// When.
        at: Timestamp,
    },

    /// A node appeared, or says anew what it is.
    NodeRegistered {
        /// Which.
        node: NodeId,
        /// What it is.
        facts: Box<NodeFacts>,
        /// When.
        at: Timestamp,
    },
    /// An operator announced a node whose agent has not joined, or described it again.
    NodeDeclared {
        /// Which.
        node: NodeId,
        /// What it will be.
        facts: Box<NodeFacts>,
        /// Who.
        by: String,
        /// When.
        at: Timestamp,
    },
    /// An operator set the labels and taints of a node. `None` leaves them to the agent.
    NodeLabelled {
        /// Which.
        node: NodeId,
        /// All labels.
        #[serde(default)]
        labels: Option<BTreeMap<String, String>>,
        /// All taints.
        #[serde(default)]
        taints: Option<Vec<String>>,
        /// Who.
        by: String,
        /// When.
        at: Timestamp,
    },
    /// A node takes work, or no longer does.
    NodeStateChanged {
        /// Which.
        node: NodeId,
        /// To what.
        word: NodeWord,
        /// Who.
        by: String,
        /// Why.
        why: String,
        /// When.
        at: Timestamp,
    },
    /// A node was forgotten.
    NodeRemoved {
        /// Which.
        node: NodeId,
        /// When.
        at: Timestamp,
    },
    /// The health of a GPU changed.
    GpuHealthChanged {
        /// Which.
        gpu: GpuId,
        /// To what.
        word: GpuWord,
        /// Why.
        why: String,
        /// Not to be given out before.
        #[serde(default)]
        cooling_until: Option<Timestamp>,
        /// How warm it is, where that is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        temperature_c: Option<i32>,
        /// What an operator declared it to be.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        declared: Option<Box<DeclaredHealth>>,
        /// What the readings of its agent come to, where an operator has declared something else.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        read: Option<GpuWord>,
        /// Jobs that hold something of it, unless it is healthy.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        jobs: Vec<JobId>,
        /// When.
        at: Timestamp,
    },

    /// A GPU was partitioned otherwise. Nobody held anything of it.
    GpuPartitioned {
        /// Which.
        gpu: GpuId,
        /// Into what; nothing if it is whole again.
        instances: Vec<MigInstance>,
        /// Who or what wanted it.
        by: String,
        /// Why.
        why: String,
        /// When.
        at: Timestamp,
    },

    /// Nodes are booked for a time.
    WindowOpened {
        /// All of it.
        window: Box<Window>,
        /// When.
        at: Timestamp,
    },
    /// A window is over, or was closed before its time.
    WindowClosed {
        /// Which.
        name: String,
        /// Why.
        why: String,
        /// When.
        at: Timestamp,
    },

    /// The settings of the cluster changed.
    Configured {
        /// All of them.
        settings: Box<Settings>,
        /// When.
        at: Timestamp,
    },
    /// A bundle of policies was put into force.
    PolicyApplied {
        /// All of it.
        version: Box<Version>,
    },
    /// Policies answered what they were asked of jobs that wait, and of their tenants.
    PolicyAnswered {
        /// The hashes of the bundles that said it.
        bundles: Vec<String>,
        /// Each for a job and all that are alike.
        answers: Vec<Answered>,
        /// Each for a tenant, with all below it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        limits: Vec<Limited>,
        /// When.
        at: Timestamp,
    },
    /// Policies answered whether a job starts again after a failure.
    RetryAnswered {
        /// The hashes of the bundles that said it.
        bundles: Vec<String>,
        /// Of which job and attempt, and what.
        answer: Retried,
        /// When it wakes.
        wakes_at: Timestamp,
        /// When.
        at: Timestamp,
    },
    /// A token was made.
    TokenAdded {
        /// With its hash.
        token: Token,
        /// When.
        at: Timestamp,
    },
    /// A token was revoked.
    TokenRevoked {
        /// Which.
        id: String,
        /// When.
        at: Timestamp,
    },
    /// An administrative act, done or refused.
    Acted {
        /// Name of the actor.
        by: String,
        /// Kind of the actor: `local` or `token`. Records of older versions do not have it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by_kind: Option<String>,
        /// What, for example `tenant.change`.
        act: String,
        /// On what.
        object: String,
        /// The code of the refusal, if it was refused.
        #[serde(default)]
        refused: Option<String>,
        /// How often, where refusals of the same act are counted together.
        #[serde(default = "once", skip_serializing_if = "is_once")]
        times: u32,
        /// When; of several the last.
        at: Timestamp,
    },
    /// Outcomes and keys from before this moment are no longer remembered.
    Forgotten {
        /// The moment.
        before: Timestamp,
        /// Those from before this moment leave the memory because there are too many; the tables still have them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        trimmed_before: Option<Timestamp>,
    },
}

/// What an attempt held until it ended, for the record of the allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// CPU cores.
    pub cpus: u64,
    /// Main memory.
    pub memory_mib: u64,
    /// Its time limit, or else the runtime the planner expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planned_ms: Option<i64>,
    /// What it cost an hour, in millionths.
    #[serde(default)]
    pub cost_per_hour_micro: u64,
}

/// What it cost that a job was displaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// For whom.
    pub by: JobId,
    /// When it was asked to save its work and stop.
    pub asked_at: Timestamp,
    /// When it last saved its work, if it ever said so.
    #[serde(default)]
    pub saved_at: Option<Timestamp>,
    /// How long it had run.
    pub ran_ms: i64,
    /// GPUs × milliseconds of work that are lost.
    pub lost_gpu_ms: u64,
}

/// What becomes of a job whose attempt is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "next", rename_all = "kebab-case")]
pub enum Next {
    /// It has ended.
    Ended {
        /// How.
        outcome: Outcome,
        /// Why, in a sentence.
        why: String,
    },
    /// It waits again.
    Queued {
        /// What brought it back.
        because: Back,
        /// Not before this moment.
        #[serde(default)]
        wakes_at: Option<Timestamp>,
    },
    /// It waits for a person.
    Held {
        /// Who or what holds it.
        by: String,
        /// Why.
        why: String,
    },
}

/// What brings a job back into the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Back {
    /// A job of higher priority took its place.
    Preempted,
    /// It failed and may try again.
    Restarted,
    /// An operator, a lost node, or a launch that did not happen.
    Requeued,
}

impl Event {
    /// The health of a GPU changed to this.
    pub(crate) fn gpu_health_changed(gpu: GpuId, health: GpuHealth, jobs: Vec<JobId>) -> Event {
        let GpuHealth { word, why, since: at, cooling_until, temperature_c, declared, read } = health;
        Event::GpuHealthChanged { gpu, word, why, cooling_until, temperature_c, declared, read, jobs, at }
    }

    /// The word under which the journal files it.
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
            Event::PartEnded { .. } => "PartEnded",
            Event::AttemptEnded { .. } => "AttemptEnded",
            Event::CheckpointSaved { .. } => "CheckpointSaved",
            Event::StartForeseen { .. } => "StartForeseen",
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
            Event::NodeRemoved { .. } => "NodeRemoved",
            Event::GpuHealthChanged { .. } => "GpuHealthChanged",
            Event::GpuPartitioned { .. } => "GpuPartitioned",
            Event::WindowOpened { .. } => "WindowOpened",
            Event::WindowClosed { .. } => "WindowClosed",
            Event::Configured { .. } => "Configured",
            Event::PolicyApplied { .. } => "PolicyApplied",
            Event::PolicyAnswered { .. } => "PolicyAnswered",
            Event::RetryAnswered { .. } => "RetryAnswered",
            Event::TokenAdded { .. } => "TokenAdded",
            Event::TokenRevoked { .. } => "TokenRevoked",
            Event::Acted { .. } => "Acted",
            Event::Forgotten { .. } => "Forgotten",
        }
    }
}

/// Acts were written one by one before they were counted.
fn once() -> u32 {
    1
}

fn is_once(times: &u32) -> bool {
    *times == 1
}

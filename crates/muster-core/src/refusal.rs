//! Everything that can be declined, with a stable code, a sentence, and a hint where there is one.

use crate::ids::{GpuId, JobId, NodeId, TenantId};
use crate::policy::Scope;
use crate::state::{Ceiling, CeilingSource};
use crate::tenant::Excess;

/// Why a command was declined. A refusal is an answer, not a fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The job is not known.
    #[error("there is no job `{job}`")]
    UnknownJob {
        /// What was asked for.
        job: JobId,
    },
    /// The tenant is not known.
    #[error("there is no tenant `{tenant}`")]
    UnknownTenant {
        /// What was asked for.
        tenant: TenantId,
    },
    /// The node is not known.
    #[error("there is no node `{node}`")]
    UnknownNode {
        /// What was asked for.
        node: NodeId,
    },
    /// The node has no such GPU.
    #[error("node `{node}` has no gpu-{gpu}")]
    UnknownGpu {
        /// The node.
        node: NodeId,
        /// The index.
        gpu: u8,
    },
    /// The token is not known.
    #[error("there is no token `{id}`")]
    UnknownToken {
        /// What was asked for.
        id: String,
    },
    /// The window is not known.
    #[error("there is no window `{name}`")]
    UnknownWindow {
        /// What was asked for.
        name: String,
    },
    /// No policy registers the pool.
    #[error("there is no pool `{pool}`")]
    UnknownPool {
        /// What was asked for.
        pool: String,
        /// What may have been meant.
        meant: Option<String>,
    },
    /// No such version of the policies is remembered.
    #[error("{}", unknown_policy(*number, scope))]
    UnknownPolicy {
        /// Which was asked for; the one before if none was named.
        number: Option<u64>,
        /// For whom.
        scope: Scope,
    },
    /// A job waits for a pool that would be gone.
    #[error("`{job}` waits for the pool `{pool}`, which the new policies do not register")]
    PoolInUse {
        /// Which pool.
        pool: String,
        /// The first job that named it.
        job: JobId,
    },
    /// A policy says no.
    #[error("a policy refuses the job: {why}")]
    PolicyRefuses {
        /// In its words.
        why: String,
    },
    /// The settings accept jobs of one task only.
    #[error("the job has {tasks} tasks, and `scheduler.enable_gang_scheduling` is false")]
    GangsOff {
        /// How many tasks it has.
        tasks: u64,
    },
    /// A tenant of that name exists.
    #[error("tenant `{tenant}` exists already")]
    DuplicateTenant {
        /// Its name.
        tenant: TenantId,
    },
    /// A token of that name exists.
    #[error("token `{id}` exists already")]
    DuplicateToken {
        /// Its name.
        id: String,
    },
    /// The tenant may not submit.
    #[error("tenant `{tenant}` is not active")]
    InactiveTenant {
        /// Which.
        tenant: TenantId,
    },
    /// The tenant still has jobs.
    #[error("tenant `{tenant}` still has {jobs} live jobs")]
    TenantBusy {
        /// Which.
        tenant: TenantId,
        /// How many.
        jobs: u64,
    },
    /// The tenant that always exists cannot be removed.
    #[error("the tenant `default` cannot be removed")]
    DefaultTenant,
    /// The agent of a node reports its hardware, so nobody else describes it.
    #[error("the agent of node `{node}` has joined and reports its hardware")]
    NodeJoined {
        /// Which.
        node: NodeId,
    },
    /// The node still has attempts.
    #[error("node `{node}` still runs {jobs} jobs")]
    NodeBusy {
        /// Which.
        node: NodeId,
        /// How many.
        jobs: usize,
    },
    /// Someone holds a part of the GPU, or it is kept for someone.
    #[error("`{gpu}` is in use")]
    GpuBusy {
        /// Which.
        gpu: GpuId,
    },
    /// A field has a value that cannot be.
    #[error("{field}: {problem}")]
    Invalid {
        /// Which field.
        field: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// The job alone is more than the tenant may ever hold.
    #[error("the job asks for {} {}, tenant `{tenant}` may hold {} at most", excess.wanted, excess.resource.words(), excess.limit)]
    OverQuota {
        /// Whose quota.
        tenant: TenantId,
        /// By how much.
        excess: Excess,
    },
    /// The job alone is more than one user may ever hold.
    #[error("the job asks for {} {}, each user of tenant `{tenant}` may hold {} at most", excess.wanted, excess.resource.words(), excess.limit)]
    OverUserQuota {
        /// Whose users.
        tenant: TenantId,
        /// By how much.
        excess: Excess,
    },
    /// The priority is above what the actor may give.
    #[error("priority {asked} is above the ceiling of {}, {}", ceiling.priority, ceiling_source(ceiling.source, tenant))]
    OverPriorityCeiling {
        /// The priority that was asked for.
        asked: u32,
        /// The highest priority the actor may give.
        ceiling: Ceiling,
        /// The tenant of the job.
        tenant: TenantId,
    },
    /// The job belongs to another user, and the actor's role does not reach beyond its own jobs.
    #[error("`{job}` belongs to `{owner}`")]
    NotOwner {
        /// Which job.
        job: JobId,
        /// The user that owns it.
        owner: String,
    },
    /// The name of a token reads as that of another actor.
    #[error("the name `{name}` is reserved")]
    ReservedName {
        /// The name that was asked for.
        name: String,
    },
    /// No node could hold the job even if it were empty.
    #[error("this job could never start here: {problem}")]
    Infeasible {
        /// What is missing.
        problem: String,
        /// The smallest change that would make it feasible.
        nearest: String,
    },
    /// Too many jobs wait.
    #[error("the queue is full: {waiting} jobs wait, {limit} are allowed")]
    QueueFull {
        /// How many wait.
        waiting: u64,
        /// How many may.
        limit: u64,
    },
    /// The tenant has too many jobs that have not ended.
    #[error(
        "tenant `{tenant}` has {jobs} jobs that have not ended; {more} more would exceed its limit of {limit}"
    )]
    TenantQueueFull {
        /// Which tenant.
        tenant: TenantId,
        /// How many it has.
        jobs: u64,
        /// How many were submitted.
        more: u64,
        /// How many it may have.
        limit: u64,
    },
    /// The same key came with another request.
    #[error("idempotency key `{key}` was used for another request (`{job}`)")]
    KeyReused {
        /// The key.
        key: String,
        /// What it was used for.
        job: JobId,
    },
    /// The job is in a phase in which this cannot be done.
    #[error("`{job}` is {phase}; {verb} needs a job that is {needs}")]
    WrongPhase {
        /// Which job.
        job: JobId,
        /// Where it stands.
        phase: &'static str,
        /// What was asked, for example `hold`.
        verb: &'static str,
        /// Which phases would do.
        needs: &'static str,
    },
    /// A dependency can never come true.
    #[error("the dependency on `{job}` can never be met: {why}")]
    DeadDependency {
        /// The other job.
        job: JobId,
        /// Why not.
        why: String,
    },
    /// A report about an attempt that is not under way there.
    #[error("`{job}` has no attempt {attempt} on `{node}`")]
    StaleReport {
        /// Which job.
        job: JobId,
        /// Which attempt.
        attempt: u32,
        /// Who said so.
        node: NodeId,
    },
    /// Nothing of it is built yet.
    #[error("{what} is not supported by this version")]
    Unsupported {
        /// What was asked.
        what: &'static str,
    },
}

impl Refusal {
    /// Stable across releases: scripts and dashboards rely on it.
    pub fn code(&self) -> &'static str {
        match self {
            Refusal::UnknownJob { .. } => "unknown-job",
            Refusal::UnknownTenant { .. } => "unknown-tenant",
            Refusal::UnknownNode { .. } => "unknown-node",
            Refusal::UnknownGpu { .. } => "unknown-gpu",
            Refusal::UnknownToken { .. } => "unknown-token",
            Refusal::UnknownWindow { .. } => "unknown-window",
            Refusal::UnknownPool { .. } => "unknown-pool",
            Refusal::UnknownPolicy { .. } => "unknown-policy",
            Refusal::PoolInUse { .. } => "pool-in-use",
            Refusal::PolicyRefuses { .. } => "policy-refuses",
            Refusal::DuplicateTenant { .. } => "duplicate-tenant",
            Refusal::DuplicateToken { .. } => "duplicate-token",
            Refusal::InactiveTenant { .. } => "inactive-tenant",
            Refusal::TenantBusy { .. } => "tenant-busy",
            Refusal::DefaultTenant => "default-tenant",
            Refusal::GangsOff { .. } => "gangs-off",
            Refusal::NodeJoined { .. } => "node-joined",
            Refusal::NodeBusy { .. } => "node-busy",
            Refusal::GpuBusy { .. } => "gpu-busy",
            Refusal::Invalid { .. } => "invalid",
            Refusal::OverQuota { .. } => "over-quota",
            Refusal::OverUserQuota { .. } => "over-user-quota",
            Refusal::OverPriorityCeiling { .. } => "over-priority-ceiling",
            Refusal::NotOwner { .. } => "not-owner",
            Refusal::ReservedName { .. } => "reserved-name",
            Refusal::Infeasible { .. } => "infeasible",
            Refusal::QueueFull { .. } => "queue-full",
            Refusal::TenantQueueFull { .. } => "tenant-queue-full",
            Refusal::KeyReused { .. } => "key-reused",
            Refusal::WrongPhase { .. } => "wrong-phase",
            Refusal::DeadDependency { .. } => "dead-dependency",
            Refusal::StaleReport { .. } => "stale-report",
            Refusal::Unsupported { .. } => "unsupported",
        }
    }

    /// The next thing to try, where there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            Refusal::UnknownJob { .. } => Some("`muster ps --all` lists the jobs".into()),
            Refusal::UnknownTenant { .. } => Some("`muster tenant ls` lists the tenants".into()),
            Refusal::UnknownNode { .. } | Refusal::UnknownGpu { .. } => {
                Some("`muster node ls` and `muster gpu ls` list what there is".into())
            }
            Refusal::UnknownToken { .. } => Some("`muster token ls` lists the tokens".into()),
            Refusal::UnknownWindow { .. } => Some("`muster window ls` lists the windows".into()),
            Refusal::UnknownPool { meant, .. } => Some(match meant {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => "`muster policy show` lists the pools".into(),
            }),
            Refusal::UnknownPolicy { .. } => Some("`muster policy ls` lists the versions".into()),
            Refusal::PoolInUse { .. } => Some("register it too, or cancel the jobs that wait for it".into()),
            Refusal::OverQuota { excess, .. } | Refusal::OverUserQuota { excess, .. } => Some(format!(
                "ask for at most {} {}, or have the quota raised",
                excess.limit,
                excess.resource.words()
            )),
            Refusal::OverPriorityCeiling { asked, ceiling, tenant } => Some(format!(
                "use at most {}, or ask an admin to raise the ceiling of the tenant (`muster tenant set {tenant} \
                 --max-priority {asked}`) or an operator for a token with a grant (`muster token create … --tenant \
                 {tenant} --max-priority {asked}`)",
                ceiling.priority
            )),
            Refusal::NotOwner { owner, .. } => Some(format!(
                "ask `{owner}`, the tenant-admin of its tenant, or an operator: only they may change it"
            )),
            Refusal::ReservedName { .. } => {
                Some("acts under it would read as those of another actor; choose another name".into())
            }
            Refusal::Infeasible { nearest, .. } => Some(nearest.clone()),
            Refusal::KeyReused { .. } => Some("send a new key with a new request".into()),
            Refusal::TenantBusy { .. } => Some("cancel its jobs or wait for them".into()),
            Refusal::GangsOff { .. } => Some("submit jobs of one task, or ask an operator".into()),
            Refusal::NodeJoined { .. } => Some(
                "change its labels, taints or state instead, or set the health of a GPU to `unhealthy`"
                    .into(),
            ),
            Refusal::NodeBusy { .. } => Some("drain it first, and wait for its jobs".into()),
            Refusal::GpuBusy { .. } => Some("wait until nobody uses it; `muster gpus` shows who does".into()),
            Refusal::QueueFull { .. } => Some("submit again later".into()),
            Refusal::TenantQueueFull { .. } => Some(
                "wait for jobs to end or cancel some; an administrator raises `scheduler.max_jobs_per_tenant`".into(),
            ),
            _ => None,
        }
    }
}

fn ceiling_source(source: CeilingSource, tenant: &TenantId) -> String {
    match source {
        CeilingSource::Unlimited => "the highest priority there is".to_string(),
        CeilingSource::Tier(tier) => format!("which comes from tier `{}` of tenant `{tenant}`", tier.word()),
        CeilingSource::Tenant => format!("which is granted to tenant `{tenant}`"),
        CeilingSource::Token => "which is granted to the token".to_string(),
    }
}

fn unknown_policy(number: Option<u64>, scope: &Scope) -> String {
    match number {
        Some(number) => format!("there is no version {number} of the policies for the {scope}"),
        None => format!("there is no earlier version of the policies for the {scope}"),
    }
}

//! Refusals: the declined commands, each with a stable code, a sentence, and a hint if there is one.

use crate::ids::{GpuId, JobId, NodeId, TenantId};
use crate::objects::policy::PolicyScope;
use crate::objects::priority::{CeilingSource, PriorityCeiling};
use crate::objects::tenant::Excess;

/// Why a command was declined. A refusal is an answer, not an error of the server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("there is no job `{job}`")]
    UnknownJob { job: JobId },
    #[error("there is no tenant `{tenant}`")]
    UnknownTenant { tenant: TenantId },
    #[error("there is no node `{node}`")]
    UnknownNode { node: NodeId },
    #[error("node `{node}` has no gpu-{gpu}")]
    UnknownGpu { node: NodeId, gpu: u8 },
    #[error("there is no token `{id}`")]
    UnknownToken { id: String },
    #[error("there is no window `{name}`")]
    UnknownWindow { name: String },
    #[error("there is no secret `{name}`{}", for_user(user.as_deref()))]
    UnknownSecret { name: String, user: Option<String> },
    /// No active policy registers the pool.
    #[error("there is no pool `{pool}`")]
    UnknownPool {
        pool: String,
        /// The nearest registered name, if one is near.
        suggestion: Option<String>,
    },
    /// The state keeps no such version of the policies.
    #[error("{}", unknown_policy(*number, scope))]
    UnknownPolicy {
        /// The requested version; `None` for the previous one.
        number: Option<u64>,
        scope: PolicyScope,
    },
    /// A job waits for a pool that the new policies do not register.
    #[error("`{job}` waits for the pool `{pool}`, which the new policies do not register")]
    PoolInUse {
        pool: String,
        /// The first job that requests it.
        job: JobId,
    },
    #[error("a policy refuses the job: {why}")]
    PolicyRefuses { why: String },
    /// The settings accept jobs of one task only.
    #[error("the job has {tasks} tasks, and `scheduler.enable_gang_scheduling` is false")]
    GangsOff { tasks: u64 },
    #[error("tenant `{tenant}` exists already")]
    DuplicateTenant { tenant: TenantId },
    #[error("token `{id}` exists already")]
    DuplicateToken { id: String },
    /// The tenant may not submit.
    #[error("tenant `{tenant}` is not active")]
    InactiveTenant { tenant: TenantId },
    #[error("tenant `{tenant}` still has {jobs} live jobs")]
    TenantBusy { tenant: TenantId, jobs: u64 },
    /// The default tenant always exists.
    #[error("the tenant `default` cannot be removed")]
    DefaultTenant,
    /// A declaration for a node whose agent reports its hardware.
    #[error("the agent of node `{node}` has joined and reports its hardware")]
    NodeJoined { node: NodeId },
    /// A reboot of a node whose agent does not say which boot it runs in: the end of the reboot could not be recognised.
    #[error("the agent of `{node}` reports no boot id, so a reboot could not be recognised")]
    NoBootId { node: NodeId },
    #[error("node `{node}` still runs {jobs} jobs")]
    NodeBusy { node: NodeId, jobs: usize },
    /// A job has a lease or a claim on the GPU.
    #[error("`{gpu}` is in use")]
    GpuBusy { gpu: GpuId },
    /// A field has an invalid value.
    #[error("{field}: {problem}")]
    Invalid { field: &'static str, problem: String },
    /// The job alone exceeds the tenant's quota.
    #[error("the job requests {} {}; the quota of tenant `{tenant}` is {}", excess.wanted, excess.resource.phrase(), excess.limit)]
    OverQuota { tenant: TenantId, excess: Excess },
    /// The job alone exceeds the user limit.
    #[error("the job requests {} {}; the limit per user of tenant `{tenant}` is {}", excess.wanted, excess.resource.phrase(), excess.limit)]
    OverUserQuota { tenant: TenantId, excess: Excess },
    /// The priority is above the actor's priority ceiling.
    #[error("priority {requested} is above the ceiling of {}, {}", ceiling.priority, ceiling_source(ceiling.source, tenant))]
    OverPriorityCeiling {
        requested: u32,
        ceiling: PriorityCeiling,
        /// The tenant of the job.
        tenant: TenantId,
    },
    /// The job belongs to another user, and the actor's role allows changes to its own jobs only.
    #[error("`{job}` belongs to `{owner}`")]
    NotOwner { job: JobId, owner: String },
    /// The secret belongs to another user or to the tenant, and the actor's role allows changes to its own secrets only.
    #[error("the secret `{name}` belongs to {}", owner_of_secret(owner.as_deref()))]
    NotOwnSecret { name: String, owner: Option<String> },
    /// The name of a token could be taken for another actor.
    #[error("the name `{name}` is reserved")]
    ReservedName { name: String },
    /// The registered nodes could not hold the job even when empty.
    #[error("the job can never start on this cluster: {problem}")]
    Infeasible {
        problem: String,
        /// The smallest change that makes it feasible.
        nearest: String,
    },
    #[error("the queue is full: {waiting} jobs wait, {limit} are allowed")]
    QueueFull { waiting: u64, limit: u64 },
    /// The tenant has too many jobs that have not ended.
    #[error("tenant `{tenant}` has {jobs} jobs that have not ended; {more} more would exceed its limit of {limit}")]
    TenantQueueFull {
        tenant: TenantId,
        jobs: u64,
        /// Number of submitted jobs.
        more: u64,
        limit: u64,
    },
    /// An idempotency key was sent again with another request.
    #[error("idempotency key `{key}` was used for another request (`{job}`)")]
    KeyReused {
        key: String,
        /// The job of the first request.
        job: JobId,
    },
    /// The operation is not possible in this phase of the job.
    #[error("`{job}` is {phase}; {verb} needs a job that is {needs}")]
    WrongPhase {
        job: JobId,
        phase: &'static str,
        /// The operation, for example `hold`.
        verb: &'static str,
        /// The phases in which it is possible.
        needs: &'static str,
    },
    /// A dependency can never be met.
    #[error("the dependency on `{job}` can never be met: {why}")]
    DeadDependency { job: JobId, why: String },
    /// A report about an attempt that is not active on the node.
    #[error("`{job}` has no attempt {attempt} on `{node}`")]
    StaleReport { job: JobId, attempt: u32, node: NodeId },
    /// The join token was used, has expired or never existed; which of them is not said, because the caller is unknown.
    #[error("the join token cannot be used: it was used before, has expired, or is not of this cluster")]
    JoinTokenUnusable { id: String },
    #[error("the join token is for the node `{only}`, not for `{node}`")]
    JoinTokenOfAnotherNode { node: NodeId, only: NodeId },
    /// A token for any node cannot take over the name of an enrolled node.
    #[error("a node `{node}` has joined already")]
    NodeEnrolled { node: NodeId },
    /// The agents of the cluster trust another CA than this server has.
    #[error("the agents of this cluster trust the CA {known}, this server has the CA {offered}")]
    OtherClusterCa { known: String, offered: String },
    #[error("{what} is not supported by this version")]
    Unsupported { what: &'static str },
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
            Refusal::UnknownSecret { .. } => "unknown-secret",
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
            Refusal::NoBootId { .. } => "no-boot-id",
            Refusal::NodeBusy { .. } => "node-busy",
            Refusal::GpuBusy { .. } => "gpu-busy",
            Refusal::Invalid { .. } => "invalid",
            Refusal::OverQuota { .. } => "over-quota",
            Refusal::OverUserQuota { .. } => "over-user-quota",
            Refusal::OverPriorityCeiling { .. } => "over-priority-ceiling",
            Refusal::NotOwner { .. } => "not-owner",
            Refusal::NotOwnSecret { .. } => "not-own-secret",
            Refusal::ReservedName { .. } => "reserved-name",
            Refusal::Infeasible { .. } => "infeasible",
            Refusal::QueueFull { .. } => "queue-full",
            Refusal::TenantQueueFull { .. } => "tenant-queue-full",
            Refusal::KeyReused { .. } => "key-reused",
            Refusal::WrongPhase { .. } => "wrong-phase",
            Refusal::DeadDependency { .. } => "dead-dependency",
            Refusal::StaleReport { .. } => "stale-report",
            Refusal::JoinTokenUnusable { .. } => "join-token-unusable",
            Refusal::JoinTokenOfAnotherNode { .. } => "join-token-of-another-node",
            Refusal::NodeEnrolled { .. } => "node-enrolled",
            Refusal::OtherClusterCa { .. } => "other-cluster-ca",
            Refusal::Unsupported { .. } => "unsupported",
        }
    }

    /// The next thing to try, where there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            Refusal::UnknownJob { .. } => Some("`muster ps --all` lists the jobs".into()),
            Refusal::UnknownTenant { .. } => Some("`muster tenant ls` lists the tenants".into()),
            Refusal::UnknownNode { .. } | Refusal::UnknownGpu { .. } => {
                Some("`muster node ls` and `muster gpu ls` list the nodes and GPUs".into())
            }
            Refusal::UnknownToken { .. } => Some("`muster token ls` lists the tokens".into()),
            Refusal::UnknownWindow { .. } => Some("`muster window ls` lists the windows".into()),
            Refusal::UnknownSecret { name, .. } => {
                Some(format!("`muster secret ls` lists the secrets; `muster secret set {name}` sets one"))
            }
            Refusal::NotOwnSecret { .. } => Some(
                "only its owner, the tenant-admin, operators and admins may change it; `muster secret set` without \
                 `--shared` sets one of your own"
                    .into(),
            ),
            Refusal::UnknownPool { suggestion, .. } => Some(match suggestion {
                Some(suggestion) => format!("did you mean `{suggestion}`?"),
                None => "`muster policy show` lists the pools".into(),
            }),
            Refusal::UnknownPolicy { .. } => Some("`muster policy ls` lists the versions".into()),
            Refusal::PoolInUse { .. } => {
                Some("register the pool in the new policies, or cancel the jobs that wait for it".into())
            }
            Refusal::OverQuota { excess, .. } | Refusal::OverUserQuota { excess, .. } => Some(format!(
                "request at most {} {}, or ask an admin to raise the quota",
                excess.limit,
                excess.resource.phrase()
            )),
            Refusal::OverPriorityCeiling { requested, ceiling, tenant } => Some(format!(
                "use at most {}, or ask an admin to raise the ceiling of the tenant (`muster tenant set {tenant} \
                 --max-priority {requested}`) or an operator for a token with a grant (`muster token create … --tenant \
                 {tenant} --max-priority {requested}`)",
                ceiling.priority
            )),
            Refusal::NotOwner { owner, .. } => {
                Some(format!("only `{owner}`, the tenant-admin of the job's tenant, operators and admins may change the job"))
            }
            Refusal::ReservedName { .. } => {
                Some("choose another name: under this name the audit log would attribute the token's actions to another actor".into())
            }
            Refusal::Infeasible { nearest, .. } => Some(nearest.clone()),
            Refusal::KeyReused { .. } => Some("send a new key with a new request".into()),
            Refusal::TenantBusy { .. } => Some("cancel the tenant's jobs, or wait until they end".into()),
            Refusal::GangsOff { .. } => Some(
                "submit jobs of one task, or ask an admin to set `scheduler.enable_gang_scheduling` to true".into(),
            ),
            Refusal::NodeJoined { .. } => {
                Some("change the node's labels, taints or state instead, or set the health of a GPU to `unhealthy`".into())
            }
            Refusal::NoBootId { .. } => Some("let its agent join, or upgrade it; `muster node power` reboots it without waiting".into()),
            Refusal::NodeBusy { .. } => Some("drain the node first, and wait until its jobs end".into()),
            Refusal::GpuBusy { .. } => Some("wait until the GPU is idle; `muster gpu ls` shows the jobs that hold it".into()),
            Refusal::JoinTokenUnusable { .. } => Some("make a new one with `muster node token`".into()),
            Refusal::JoinTokenOfAnotherNode { only, .. } => {
                Some(format!("join with `--node {only}`, or make a token for this node with `muster node token --node NAME`"))
            }
            Refusal::NodeEnrolled { node } => Some(format!(
                "choose another name with `--node NAME`; if the node was installed again, make a token for it with \
                 `muster node token --node {node}`"
            )),
            Refusal::OtherClusterCa { .. } => Some(
                "copy `tls/ca.pem` and `tls/ca.key` from the data folder of another server of the cluster".into(),
            ),
            Refusal::QueueFull { .. } => Some("submit again later".into()),
            Refusal::TenantQueueFull { .. } => Some(
                "wait until jobs end, cancel some, or ask an admin to raise `scheduler.max_jobs_per_tenant`".into(),
            ),
            _ => None,
        }
    }
}

fn for_user(user: Option<&str>) -> String {
    user.map_or_else(|| " of the tenant".to_string(), |user| format!(" for `{user}`"))
}

fn owner_of_secret(owner: Option<&str>) -> String {
    owner.map_or_else(|| "the tenant".to_string(), |owner| format!("`{owner}`"))
}

fn ceiling_source(source: CeilingSource, tenant: &TenantId) -> String {
    match source {
        CeilingSource::Unlimited => "the highest possible priority".to_string(),
        CeilingSource::Tier(tier) => {
            format!("which comes from tier `{}` of tenant `{tenant}`", tier.as_str())
        }
        CeilingSource::Tenant => format!("which is granted to tenant `{tenant}`"),
        CeilingSource::Token => "which is granted to the token".to_string(),
    }
}

fn unknown_policy(number: Option<u64>, scope: &PolicyScope) -> String {
    match number {
        Some(number) => format!("there is no version {number} of the policies for the {scope}"),
        None => format!("there is no earlier version of the policies for the {scope}"),
    }
}

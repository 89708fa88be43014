//! Verdicts: all reasons why a job waits, with their numbers, codes and sentences (`muster why`).

use serde::{Deserialize, Serialize};

use crate::ids::{GpuId, JobId, NodeId, TenantId};
use crate::objects::budget::{Budget, Spent};
use crate::objects::settings::PortRange;
use crate::objects::tenant::Excess;
use crate::time::{HOUR, Timestamp};

/// All reasons why a job waits, the most significant first. Never empty for a waiting job.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Verdict {
    pub reasons: Vec<Reason>,
}

/// One reason to wait.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reason")]
pub enum Reason {
    /// Too few free GPUs, cores or memory in the whole cluster.
    Capacity {
        needs_gpus: u32,
        /// Free eligible GPUs in the whole cluster.
        free_gpus: u32,
        /// The scarce resource, for example `GPUs`, `CPU cores`, `memory`.
        short_of: String,
    },
    /// Enough is free in total, but not on one node.
    Fragmented {
        needs_gpus: u32,
        /// Most free GPUs on one node.
        largest_block: u32,
        free_gpus: u32,
    },
    /// Enough is free in total, but too few tasks of the gang fit on a node each.
    GangFragmented {
        /// Tasks that must start together.
        tasks: u32,
        /// GPUs of each task.
        gpus_each: u32,
        /// Tasks that fit; equal to `tasks` if each task group fits alone but not all groups together.
        fitting_tasks: u32,
    },
    /// Enough is free, but not with the required locality.
    LocalityUnmet {
        /// For example `on one NUMA node`.
        locality: String,
    },
    /// Enough is free, but not on nodes with a container runtime, which the image of the job needs.
    ContainerRuntime {
        /// Nodes with a container runtime, in any state.
        nodes: u32,
        /// All nodes.
        of_nodes: u32,
    },
    /// Enough is free, but all master ports are held on the nodes where the gang would start.
    MasterPorts {
        /// Nodes on which every port is held.
        nodes: u32,
        ports: PortRange,
    },
    /// Enough is free, but not on nodes whose agent delivers the secrets of the job.
    SecretDelivery {
        /// Nodes that deliver secrets, in any state.
        nodes: u32,
        /// All nodes.
        of_nodes: u32,
    },
    /// No eligible device has the requested share of a GPU free.
    Share {
        /// Requested compute in thousandths of a GPU.
        needs_milli: u32,
        /// Requested GPU memory; 0 if it follows the compute share.
        needs_mib: u64,
        /// The job needs a MIG instance.
        #[serde(default)]
        instance: bool,
        /// Most free compute on one device, in thousandths.
        largest_milli: u32,
        /// Free memory of that device.
        #[serde(default)]
        largest_mib: u64,
        /// Free compute on all eligible devices, in thousandths.
        free_milli: u64,
    },
    /// An idle GPU is eligible after a repartitioning.
    Partition {
        gpu: GpuId,
        /// MIG profiles; empty makes the GPU whole again.
        profiles: Vec<String>,
    },
    /// The tenant would exceed its quota.
    QuotaTenant { tenant: TenantId, excess: Excess },
    /// The user would exceed a user limit.
    QuotaUser {
        user: String,
        /// The tenant that sets the user limit.
        tenant: TenantId,
        /// Counted in the tenant and its descendants.
        excess: Excess,
    },
    /// The budget of the tenant is used up, or the job could exceed it.
    Budget {
        tenant: TenantId,
        spent: Spent,
        /// Usage of the job up to its time limit.
        #[serde(default)]
        more: Spent,
        budget: Budget,
    },
    /// The tenant would exceed its quota of GPUs of one model.
    QuotaModel {
        tenant: TenantId,
        /// Model name as the quota spells it.
        model: String,
        /// GPUs that the tenant would hold.
        wanted: u64,
        limit: u64,
    },
    /// Eligible nodes or GPUs are out of service.
    NodeHealth {
        nodes: u32,
        /// Eligible GPUs on these nodes.
        gpus: u32,
        /// Eligible GPUs out of service on nodes that are in service.
        #[serde(default)]
        gpus_alone: u32,
    },
    /// Free capacity is reserved for a blocked job that is ahead, or claimed by a preemptor.
    Reservation {
        job: JobId,
        /// The job has a claim. A preemptor need not be ahead in the queue.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        claimed: bool,
    },
    /// Eligible nodes are booked by a window, for maintenance or another tenant.
    Window {
        window: String,
        /// May be empty.
        why: String,
    },
    /// The job has a claim; its victims are stopping.
    Claimed { victims: Vec<JobId> },
    /// Dependencies are not met yet.
    Dependency { jobs: Vec<JobId> },
    /// Its start time is in the future, or it backs off after a failed launch.
    StartTime { at: Timestamp },
    /// A policy delays the job.
    Policy {
        /// Text from the policy.
        why: String,
    },
    /// An active policy refuses the job. A policy activated after submission does not end the job: it waits.
    PolicyRefused {
        /// Text from the policy.
        why: String,
    },
    /// The policies have not answered yet.
    PolicyUnasked,
    /// The tenant would hold more GPUs than a policy allows now. All amounts are in thousandths of a GPU.
    PolicyLimit {
        /// The limited tenant: the job's own or an ancestor.
        tenant: TenantId,
        /// The limited pool; `None` for a limit on all GPUs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pool: Option<String>,
        /// GPUs that the tenant and its descendants hold; for a pool, by jobs that requested it.
        held: u64,
        /// GPUs that the job requests.
        wanted: u64,
        limit: u64,
    },
    /// The array is at its limit of running jobs.
    ArrayLimit { running: u32, limit: u32 },
    /// The job is held.
    Held { by: String, why: String },
    /// Other jobs are ahead in the queue.
    Priority { ahead: u64 },
    /// The tenant or user is above its fair share, and other jobs are ahead.
    FairShare { tenant: TenantId, share: FairShare },
    /// No registered node can hold it; it waits for one that can.
    Infeasible { problem: String },
    /// It was submitted after the last planning round.
    Considering,
    /// Its tasks run on some nodes and have not started on others.
    GangStarting {
        /// Nodes that have not reported a start.
        nodes: Vec<NodeId>,
        /// When the first node started.
        since: Timestamp,
        /// When it is stopped and queued again, unless they start.
        stops_at: Timestamp,
    },
    /// Its attempt may still run on a node that is silent. It waits for the node or for an operator's fence.
    LostNode {
        node: NodeId,
        /// Last report of the node.
        since: Timestamp,
        /// How the power program failed to fence the node, if it did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        power_failure: Option<String>,
    },
    /// Its attempt is on a node that is silent, and ends there by its self-fence deadline.
    FencePending {
        node: NodeId,
        /// Last report of the node.
        since: Timestamp,
        /// When the attempt has provably ended and the job is requeued.
        ends_at: Timestamp,
        /// How the power program failed to fence the node, if it did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        power_failure: Option<String>,
    },
    /// Processes of its attempt survive SIGKILL, so the attempt keeps its resources.
    Unkillable {
        node: NodeId,
        /// Pids, commands and states.
        processes: String,
        since: Timestamp,
    },
}

impl Reason {
    /// The stable code of the reason, the same in CLI, API and metrics.
    pub fn code(&self) -> &'static str {
        match self {
            Reason::Capacity { .. } => "Capacity",
            Reason::Fragmented { .. } | Reason::GangFragmented { .. } | Reason::LocalityUnmet { .. } => "Fragmented",
            Reason::ContainerRuntime { .. } => "ContainerRuntime",
            Reason::MasterPorts { .. } => "MasterPorts",
            Reason::SecretDelivery { .. } => "SecretDelivery",
            Reason::Share { needs_milli, free_milli, .. } if *free_milli >= u64::from(*needs_milli) => "Fragmented",
            Reason::Share { .. } => "Capacity",
            Reason::Partition { .. } => "Partition",
            Reason::QuotaTenant { .. } | Reason::Budget { .. } => "QuotaTenant",
            Reason::QuotaUser { .. } => "QuotaUser",
            Reason::QuotaModel { .. } => "QuotaModel",
            Reason::NodeHealth { .. } => "NodeHealth",
            Reason::Reservation { .. } | Reason::Window { .. } => "Reservation",
            Reason::Claimed { .. } => "Claimed",
            Reason::Dependency { .. } => "Dependency",
            Reason::StartTime { .. } => "StartTime",
            Reason::Policy { .. } | Reason::PolicyRefused { .. } | Reason::PolicyUnasked => "Policy",
            Reason::PolicyLimit { .. } => "PolicyLimit",
            Reason::ArrayLimit { .. } => "ArrayLimit",
            Reason::Held { .. } => "Held",
            Reason::Priority { .. } => "Priority",
            Reason::FairShare { .. } => "FairShare",
            Reason::Infeasible { .. } => "Infeasible",
            Reason::Considering => "Considering",
            Reason::LostNode { .. } => "LostNode",
            Reason::FencePending { .. } => "FencePending",
            Reason::Unkillable { .. } => "Unkillable",
            Reason::GangStarting { .. } => "GangStarting",
        }
    }

    /// One sentence for people, lower case, without a period.
    pub fn sentence(&self) -> String {
        match self {
            Reason::Capacity { needs_gpus, free_gpus, short_of } if short_of == "GPUs" => {
                let free = u64::from(*free_gpus);
                format!("needs {}; {} {} free", gpus(*needs_gpus), many(free, "eligible GPU"), are(free))
            }
            Reason::Capacity { needs_gpus: 0, short_of, .. } => format!("no node has enough free {short_of}"),
            Reason::Capacity { needs_gpus, short_of, .. } => {
                format!("no node with {} free has enough free {short_of}", gpus(*needs_gpus))
            }
            Reason::Fragmented { needs_gpus, largest_block, free_gpus } => format!(
                "needs {} on one node; at most {largest_block} {} free on one node ({free_gpus} on all nodes)",
                gpus(*needs_gpus),
                are(u64::from(*largest_block))
            ),
            Reason::GangFragmented { tasks, fitting_tasks, .. } if fitting_tasks >= tasks => {
                format!(
                    "each task group of the gang would fit by itself, but the {tasks} tasks of the gang do not all fit at once"
                )
            }
            Reason::GangFragmented { tasks, gpus_each: 0, fitting_tasks } => {
                format!("needs room for {} at once; there is room for {fitting_tasks}", many(u64::from(*tasks), "task"))
            }
            Reason::GangFragmented { tasks, gpus_each, fitting_tasks } => format!(
                "needs room for {} with {} each at once; there is room for {fitting_tasks}",
                many(u64::from(*tasks), "task"),
                gpus(*gpus_each)
            ),
            Reason::LocalityUnmet { locality } => format!("enough capacity is free, but not {locality}"),
            Reason::MasterPorts { nodes, ports } => format!(
                "enough capacity is free, but gangs hold all ports {ports} (`nodes.master_ports`) on {}",
                many(u64::from(*nodes), "node")
            ),
            Reason::ContainerRuntime { nodes, of_nodes } => format!(
                "{nodes} of {} {} a container runtime, which the image of the job needs, and no capacity is free there",
                many(u64::from(*of_nodes), "node"),
                if *nodes == 1 { "has" } else { "have" }
            ),
            Reason::SecretDelivery { nodes, of_nodes } => format!(
                "{nodes} of {} {} the secrets of the job, and no capacity is free there",
                many(u64::from(*of_nodes), "node"),
                if *nodes == 1 { "can deliver" } else { "deliver" }
            ),
            Reason::Share { needs_milli, needs_mib, instance: true, .. } => format!(
                "needs a MIG instance with {} of a GPU{}; none is free",
                decimal(u64::from(*needs_milli)),
                memory(*needs_mib).replace(" with", " and")
            ),
            Reason::Share { needs_milli, needs_mib, largest_milli, largest_mib, free_milli, .. } => {
                format!(
                    "needs {} of a GPU{}; at most {}{} of one eligible GPU is free ({} free in total)",
                    decimal(u64::from(*needs_milli)),
                    memory(*needs_mib),
                    decimal(u64::from(*largest_milli)),
                    memory(if *needs_mib == 0 { 0 } else { *largest_mib }),
                    gpus_of_milli(*free_milli)
                )
            }
            Reason::Partition { gpu, profiles } if profiles.is_empty() => {
                format!("the job would fit on the idle GPU `{gpu}` if the MIG instances of the GPU were removed")
            }
            Reason::Partition { gpu, profiles } => {
                format!(
                    "the job would fit on the idle GPU `{gpu}` if the GPU were partitioned into {}",
                    profiles.join(" + ")
                )
            }
            Reason::QuotaTenant { tenant, excess } => format!(
                "with this job, tenant `{tenant}` would hold {} {}; its quota is {}",
                excess.wanted,
                excess.resource.phrase(),
                excess.limit
            ),
            Reason::QuotaUser { user, tenant, excess } => format!(
                "with this job, user `{user}` would hold {} {} in tenant `{tenant}`; the limit per user is {}",
                excess.wanted,
                excess.resource.phrase(),
                excess.limit
            ),
            Reason::Budget { tenant, spent, more, budget } => {
                let used_up = overspent(*spent, *budget);
                match used_up.is_empty() {
                    false => format!("tenant `{tenant}` has used up its budget: {}", used_up.join(", ")),
                    true => format!(
                        "if the job ran until its time limit, tenant `{tenant}` would exceed its budget: {}",
                        overspent(spent.plus(*more), *budget).join(", ")
                    ),
                }
            }
            Reason::QuotaModel { tenant, model, wanted, limit } => {
                format!(
                    "with this job, tenant `{tenant}` would hold {wanted} GPUs of model `{model}`; its quota is {limit}"
                )
            }
            Reason::NodeHealth { nodes: 0, gpus_alone, .. } => {
                let count = u64::from(*gpus_alone);
                format!("{} {} out of service", many(count, "eligible GPU"), are(count))
            }
            Reason::NodeHealth { nodes, gpus: out, gpus_alone } => {
                let nodes = u64::from(*nodes);
                let (alone, verb) = match gpus_alone {
                    0 => (String::new(), are(nodes)),
                    alone => (format!(" and {} on other nodes", gpus(*alone)), "are"),
                };
                format!(
                    "{} with {}{alone} {verb} out of service",
                    many(nodes, "node"),
                    many(u64::from(*out), "eligible GPU")
                )
            }
            Reason::Reservation { job, claimed: false } => {
                format!("free capacity that the job could use is reserved for `{job}`, which is ahead in the queue")
            }
            Reason::Reservation { job, claimed: true } => {
                format!("free capacity that the job could use is kept for `{job}`, which preempts running jobs")
            }
            Reason::Window { window, why } if why.is_empty() => {
                format!("capacity is booked by window `{window}`")
            }
            Reason::Window { window, why } => format!("capacity is booked by window `{window}`: {why}"),
            Reason::Claimed { victims } => format!("starts when the jobs it preempts have stopped: {}", list(victims)),
            Reason::Dependency { jobs } => format!("waits for {} to end", list(jobs)),
            Reason::StartTime { at } => format!("may not start before {}", at.utc()),
            Reason::Policy { why } => format!("a policy delays the job: {why}"),
            Reason::PolicyRefused { why } => format!("a policy refuses the job: {why}"),
            Reason::PolicyUnasked => "waits for the answer of the policies".to_string(),
            Reason::PolicyLimit { tenant, pool, held, wanted, limit } => {
                let of_pool = pool.as_ref().map(|pool| format!(" of pool `{pool}`")).unwrap_or_default();
                format!(
                    "a policy limits tenant `{tenant}` to {}{of_pool}; the tenant holds {} and the job requests {}",
                    gpus_of_milli(*limit),
                    decimal(*held),
                    decimal(*wanted)
                )
            }
            Reason::ArrayLimit { running, limit } => {
                let running = u64::from(*running);
                format!("{} of the array {} running; the limit is {limit}", many(running, "job"), are(running))
            }
            Reason::Held { by, why } if why.is_empty() => format!("held by {by}"),
            Reason::Held { by, why } => format!("held by {by}: {why}"),
            Reason::Priority { ahead } => format!("{} {} ahead", many(*ahead, "job"), are(*ahead)),
            Reason::FairShare { tenant, share } => format!(
                "ranks lower because tenant `{tenant}` is above its fair share: mean of current and decayed usage {} of \
                 the cluster, fair share {}, fair-share factor {}.{:03} (0.500 at the fair share)",
                percent(share.used_milli),
                percent(share.share_milli),
                share.factor_milli / 1_000,
                share.factor_milli % 1_000
            ),
            Reason::Infeasible { problem } => {
                format!("cannot start even on an empty cluster: {problem}")
            }
            Reason::Considering => "submitted after the last planning round; the next round considers it".to_string(),
            Reason::GangStarting { nodes, since, stops_at } => {
                let names: Vec<String> = nodes.iter().map(|node| format!("`{node}`")).collect();
                format!(
                    "its tasks on {} have not started; others run since {}, and the job is stopped and queued again at {} \
                     unless all have started (`nodes.gang_start_timeout`)",
                    names.join(" and "),
                    since.utc(),
                    stops_at.utc()
                )
            }
            Reason::LostNode { node, since, power_failure } => format!(
                "node `{node}` has been silent since {}, and the job may still run there; it goes on when the node \
                 returns, and ends when an operator confirms that nothing runs there (`muster node fence {node}`){}",
                since.utc(),
                power_failure_text(power_failure.as_deref())
            ),
            Reason::FencePending { node, since, ends_at, power_failure } => format!(
                "node `{node}` has been silent since {}; the job goes on if the node returns before its self-fence \
                 deadline, and is requeued elsewhere at {}{}",
                since.utc(),
                ends_at.utc(),
                power_failure_text(power_failure.as_deref())
            ),
            Reason::Unkillable { node, processes, since } => format!(
                "processes of the job survive SIGKILL on node `{node}` since {}, so it keeps its resources: {processes}; it \
                 ends when they are gone, at the latest with a reboot of the drained node",
                since.utc()
            ),
        }
    }
}

/// The requested memory as a suffix; empty if none is requested.
fn memory(mib: u64) -> String {
    if mib == 0 { String::new() } else { format!(" with {mib} MiB") }
}

/// Milliseconds as hours, to a hundredth.
fn hours(ms: u64) -> String {
    let hundredths = ms / (HOUR as u64 / 100);
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

/// The parts of a budget that are used up.
fn overspent(spent: Spent, budget: Budget) -> Vec<String> {
    let over = |spent: u64, limit: Option<u64>, format: fn(u64) -> String| {
        limit.filter(|limit| spent >= *limit).map(|limit| (format(spent), format(limit)))
    };
    let gpu_hours =
        over(spent.gpu_ms, budget.gpu_ms, hours).map(|(spent, limit)| format!("{spent} of {limit} GPU-hours"));
    let energy =
        over(spent.energy_mj, budget.energy_mj, kilowatt_hours).map(|(spent, limit)| format!("{spent} of {limit} kWh"));
    let cost =
        over(spent.cost_micro, budget.cost_micro, money).map(|(spent, limit)| format!("{spent} of {limit} in money"));
    gpu_hours.into_iter().chain(energy).chain(cost).collect()
}

/// Millijoules as kilowatt-hours, to a hundredth.
fn kilowatt_hours(mj: u64) -> String {
    let hundredths = mj / 36_000_000;
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

/// Millionths of the currency, to a hundredth.
fn money(micro: u64) -> String {
    format!("{}.{:02}", micro / 1_000_000, micro % 1_000_000 / 10_000)
}

/// Thousandths as a percentage.
fn percent(milli: u32) -> String {
    format!("{}.{} %", milli / 10, milli % 10)
}

fn gpus(count: u32) -> String {
    many(u64::from(count), "GPU")
}

/// Thousandths of GPUs with the unit.
fn gpus_of_milli(milli: u64) -> String {
    format!("{} GPU{}", decimal(milli), if milli == 1_000 { "" } else { "s" })
}

/// Thousandths as a decimal number without trailing zeros.
pub(crate) fn decimal(milli: u64) -> String {
    match milli % 1_000 {
        0 => (milli / 1_000).to_string(),
        part => format!("{}.{part:03}", milli / 1_000).trim_end_matches('0').to_string(),
    }
}

fn many(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn are(count: u64) -> &'static str {
    if count == 1 { "is" } else { "are" }
}

fn power_failure_text(why: Option<&str>) -> String {
    why.map(|why| format!("; the power program could not fence the node: {why}")).unwrap_or_default()
}

fn list(jobs: &[JobId]) -> String {
    let shown: Vec<String> = jobs.iter().take(5).map(|job| format!("`{job}`")).collect();
    let more = jobs.len().saturating_sub(5);
    if more == 0 { shown.join(", ") } else { format!("{} and {more} more", shown.join(", ")) }
}

/// The usage of a tenant or user relative to its fair share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FairShare {
    /// 1,000 without usage, 500 at exactly the fair share, towards 0 above it.
    pub factor_milli: u32,
    /// Fair share of the tenant among all tenants with work, in thousandths of the cluster.
    pub share_milli: u32,
    /// Mean of current and decayed usage of the tenant, in thousandths of the cluster.
    pub used_milli: u32,
}

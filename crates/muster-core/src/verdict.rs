//! What the planner says of a job that waits: all its blockers, with numbers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::budget::{Budget, Spent};
use crate::ids::{GpuId, JobId, TenantId};
use crate::job::{Job, Phase};
use crate::plan::{FairShare, position, strength};
use crate::policy::Failure;
use crate::queue::Bucket;
use crate::settings::Objective;
use crate::state::State;
use crate::tenant::Excess;
use crate::time::{HOUR, Timestamp};

/// Why a job waits: every reason that holds, the most telling first. Never empty for a waiting job.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Verdict {
    /// The blockers.
    pub reasons: Vec<Reason>,
}

/// What one round says of everyone who waits. Jobs of one bucket share a verdict, so this is small however
/// many wait.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verdicts {
    buckets: BTreeMap<Bucket, Verdict>,
    /// Jobs for which room is being made.
    jobs: BTreeMap<JobId, Verdict>,
    /// When those start at the latest, as far as can be told, that have a place in the future.
    reserved: BTreeMap<JobId, Timestamp>,
}

impl Verdicts {
    /// Every reason why a job waits. Never empty for a waiting job, always for a running one.
    pub fn of(&self, state: &State, job: &Job, now: Timestamp) -> Verdict {
        let mut verdict = self.without_position(state, job);
        let is_own = self.jobs.contains_key(&job.id) || state.claims.contains_key(&job.id);
        if !is_own {
            let ahead = position(state, job, now).map_or(0, |position| position.position - 1);
            verdict.reasons.extend((ahead > 0).then_some(Reason::Priority { ahead }));
            verdict.reasons.extend(above_share(state, job, now).filter(|_| ahead > 0));
        }
        verdict
    }

    /// The same without counting who is ahead, which costs a walk along the queue: for lists of jobs.
    pub fn without_position(&self, state: &State, job: &Job) -> Verdict {
        let own = own_reasons(state, job);
        let reasons = match (self.jobs.get(&job.id), state.claims.get(&job.id)) {
            _ if !own.is_empty() || !job.is_queued() => own,
            (Some(verdict), _) => verdict.reasons.clone(),
            // Room was made for it by a plan that was adopted since.
            (None, Some(claim)) => vec![Reason::Claimed { victims: claim.victims.clone() }],
            (None, None) => self.of_guest(job.id, &state.bucket(job)).reasons,
        };
        Verdict { reasons }
    }

    /// When a job starts at the latest, as far as can be told, if it has a place in the future.
    pub fn reserved_at(&self, job: JobId) -> Option<Timestamp> {
        self.reserved.get(&job).copied()
    }

    /// What the round said of a bucket.
    pub fn of_bucket(&self, bucket: &Bucket) -> Option<&Verdict> {
        self.buckets.get(bucket)
    }

    /// Every bucket that was blocked, in a fixed order.
    pub fn buckets(&self) -> impl Iterator<Item = (&Bucket, &Verdict)> {
        self.buckets.iter()
    }

    /// What the round said of a job that took part as a guest.
    pub(crate) fn of_guest(&self, job: JobId, bucket: &Bucket) -> Verdict {
        let said = self.jobs.get(&job).or_else(|| self.buckets.get(bucket));
        said.cloned().unwrap_or(Verdict { reasons: vec![Reason::Considering] })
    }

    pub(crate) fn add(&mut self, bucket: Bucket, verdict: Verdict) {
        assert!(!verdict.reasons.is_empty(), "a bucket was blocked without a reason");
        self.buckets.insert(bucket, verdict);
    }

    pub(crate) fn add_reservation(&mut self, job: JobId, at: Timestamp) {
        self.reserved.insert(job, at);
    }

    /// One more reason for the bucket of a job.
    pub(crate) fn add_reason(&mut self, state: &State, job: JobId, reason: Reason) {
        let bucket = state.jobs.get(&job).map(|job| state.bucket(job));
        if let Some(verdict) = bucket.and_then(|bucket| self.buckets.get_mut(&bucket)) {
            verdict.reasons.push(reason);
        }
    }

    pub(crate) fn add_job(&mut self, job: JobId, verdict: Verdict) {
        self.jobs.insert(job, verdict);
    }
}

/// Others are ahead, and the share is a cause of it.
fn above_share(state: &State, job: &Job, now: Timestamp) -> Option<Reason> {
    if state.settings.objective == Objective::Fast {
        return None;
    }
    let share = strength(state, job, now).share.filter(|share| share.factor_milli < 500)?;
    Some(Reason::FairShare { tenant: job.spec.tenant.clone(), share })
}

/// What the job itself says about waiting.
fn own_reasons(state: &State, job: &Job) -> Vec<Reason> {
    let mut reasons = Vec::new();
    if let Phase::Held { by, why, .. } = &job.phase {
        reasons.push(Reason::Held { by: by.clone(), why: why.clone() });
    }
    if job.attempt().is_none() && !job.open_dependencies.is_empty() {
        let jobs = job.open_dependencies.iter().map(|open| open.job).collect();
        reasons.push(Reason::Dependency { jobs });
    }
    match (job.attempt(), job.wakes_at, state.failure_of(job.id)) {
        (None, Some(_), Some(Failure { failed: Some(what), .. })) => {
            reasons.push(Reason::Policy { why: format!("a policy failed: {what}") });
        }
        (None, Some(_), Some(_)) => reasons.push(Reason::PolicyUnasked),
        (None, Some(at), None) => reasons.push(Reason::StartTime { at }),
        _ => {}
    }
    reasons
}

/// One reason to wait.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reason")]
pub enum Reason {
    /// Too few free GPUs, cores or memory in the whole cluster.
    Capacity {
        /// GPUs the gang needs.
        needs_gpus: u32,
        /// Free GPUs that would do, in the whole cluster.
        free_gpus: u32,
        /// What runs short, for example `GPUs`, `CPU cores`, `memory`.
        short_of: String,
    },
    /// Enough is free in all, but not together on one node.
    Fragmented {
        /// GPUs the gang needs on one node.
        needs_gpus: u32,
        /// Most free on one node.
        largest_block: u32,
        /// Free in all.
        free_gpus: u32,
    },
    /// Enough is free in all, but too few tasks of the gang find a node with room for one.
    Seats {
        /// Tasks that must start together.
        tasks: u32,
        /// GPUs that each of them needs on its node.
        gpus_each: u32,
        /// For how many of them there is room; for all, if only the groups of the gang together find none.
        seats: u32,
    },
    /// There is room, but not as close together as it must be.
    Apart {
        /// How close that is, for example `on one NUMA node`.
        place: String,
    },
    /// A part of a GPU is not free on any device that would do.
    Share {
        /// Compute that it needs, in thousandths of a GPU.
        needs_milli: u32,
        /// GPU memory that it needs; nothing where as much as of compute.
        needs_mib: u64,
        /// It needs an instance of a partitioned device.
        #[serde(default)]
        instance: bool,
        /// Most compute that is free on one device, in thousandths.
        largest_milli: u32,
        /// Memory that is free on that device.
        #[serde(default)]
        largest_mib: u64,
        /// Free on all devices that would do, in thousandths.
        free_milli: u64,
    },
    /// An idle GPU would do if it were partitioned otherwise.
    Partition {
        /// Which GPU.
        gpu: GpuId,
        /// Into instances of these profiles; none to make it whole again.
        profiles: Vec<String>,
    },
    /// The tenant holds too much already.
    QuotaTenant {
        /// Whose quota.
        tenant: TenantId,
        /// Which limit, and what would be held.
        excess: Excess,
    },
    /// The user holds too much already.
    QuotaUser {
        /// Who.
        user: String,
        /// The tenant that says how much each of its users may hold.
        tenant: TenantId,
        /// Which limit, and what would be held there and in all tenants below.
        excess: Excess,
    },
    /// The tenant has used up what it may use in all.
    Budget {
        /// Whose budget.
        tenant: TenantId,
        /// What was used.
        spent: Spent,
        /// What the job would use up to its time limit.
        #[serde(default)]
        more: Spent,
        /// What may be.
        budget: Budget,
    },
    /// The tenant holds too many GPUs of one model already.
    QuotaModel {
        /// Whose quota.
        tenant: TenantId,
        /// Which model, as the limit names it.
        model: String,
        /// What would be held.
        wanted: u64,
        /// What may be.
        limit: u64,
    },
    /// Nodes or GPUs that would do are out of service.
    NodeHealth {
        /// How many nodes.
        nodes: u32,
        /// GPUs on them that would do.
        gpus: u32,
        /// GPUs that would do on nodes that are in service.
        #[serde(default)]
        gpus_alone: u32,
    },
    /// Space is kept for jobs that come first.
    Reservation {
        /// For which job.
        job: JobId,
    },
    /// Nodes that would do are booked, for maintenance or for others.
    Window {
        /// By which window.
        window: String,
        /// Why it is there; may be empty.
        why: String,
    },
    /// Room is being made for it: others are stopping.
    Claimed {
        /// Who makes room.
        victims: Vec<JobId>,
    },
    /// Other jobs have not ended yet.
    Dependency {
        /// Which.
        jobs: Vec<JobId>,
    },
    /// Its start time has not come, or it pauses after a failed launch.
    StartTime {
        /// When it may start.
        at: Timestamp,
    },
    /// A policy lets it wait.
    Policy {
        /// Why, in its words.
        why: String,
    },
    /// A policy in force refuses it. A policy applied after the job was submitted does not end it: the job waits.
    PolicyRefused {
        /// Why, in its words.
        why: String,
    },
    /// Policies were not asked about it yet.
    PolicyUnasked,
    /// The tenant would hold more GPUs than a policy lets it hold now. All amounts are in thousandths of a GPU.
    PolicyLimit {
        /// Whose limit: its own, or that of a tenant above it.
        tenant: TenantId,
        /// The pool whose GPUs are limited; nothing where all are.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pool: Option<String>,
        /// What the tenant holds with all below it; of a pool, by jobs that named it.
        held: u64,
        /// What the job wants.
        wanted: u64,
        /// What the tenant may hold.
        limit: u64,
    },
    /// The array runs as many tasks as it may.
    ArrayLimit {
        /// How many run.
        running: u32,
        /// How many may.
        limit: u32,
    },
    /// A person holds it.
    Held {
        /// Who.
        by: String,
        /// Why.
        why: String,
    },
    /// Jobs of its own kind or of others are ahead of it.
    Priority {
        /// How many are ahead.
        ahead: u64,
    },
    /// Its tenant or its user is above the fair share, and others go first.
    FairShare {
        /// Whose share.
        tenant: TenantId,
        /// How they stand.
        share: FairShare,
    },
    /// No registered node could hold it; it waits for one that can.
    Infeasible {
        /// What is missing.
        problem: String,
    },
    /// It arrived after the last round; the next one looks at it.
    Considering,
}

impl Reason {
    /// The fixed word of the reason, the same in command line, API and metrics.
    pub fn word(&self) -> &'static str {
        match self {
            Reason::Capacity { .. } => "Capacity",
            Reason::Fragmented { .. } | Reason::Seats { .. } | Reason::Apart { .. } => "Fragmented",
            Reason::Share { needs_milli, free_milli, .. } if *free_milli >= u64::from(*needs_milli) => {
                "Fragmented"
            }
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
        }
    }

    /// One sentence for people, lower case, without a period.
    pub fn sentence(&self) -> String {
        match self {
            Reason::Capacity { needs_gpus, free_gpus, short_of } if short_of == "GPUs" => {
                format!(
                    "needs {}, {free_gpus} that would do {} free",
                    gpus(*needs_gpus),
                    are(u64::from(*free_gpus))
                )
            }
            Reason::Capacity { needs_gpus, short_of, .. } => {
                format!("no node with {} free has enough {short_of} left", gpus(*needs_gpus))
            }
            Reason::Fragmented { needs_gpus, largest_block, free_gpus } => format!(
                "needs {} on one node, the largest free block is {largest_block} ({free_gpus} free in all)",
                gpus(*needs_gpus)
            ),
            Reason::Seats { tasks, seats, .. } if seats >= tasks => {
                format!("there is room for each group of its {tasks} tasks, but not for all of them together")
            }
            Reason::Seats { tasks, gpus_each: 0, seats } => {
                format!(
                    "needs {} at once, {seats} would find a node with room",
                    many(u64::from(*tasks), "task")
                )
            }
            Reason::Seats { tasks, gpus_each, seats } => format!(
                "needs {tasks} times {} at once, {seats} would find a node with room",
                gpus(*gpus_each)
            ),
            Reason::Apart { place } => format!("there is room for it, but not {place}"),
            Reason::Share { needs_milli, needs_mib, instance: true, .. } => format!(
                "needs an instance of a partitioned GPU with {needs_milli}/1000 of it{}, and none is free",
                memory(*needs_mib).replace(" with", " and")
            ),
            Reason::Share { needs_milli, needs_mib, largest_milli, largest_mib, free_milli, .. } => {
                format!(
                    "needs {needs_milli}/1000 of a GPU{}; the most that is free on one is {largest_milli}/1000{} \
                     ({free_milli}/1000 in all)",
                    memory(*needs_mib),
                    memory(if *needs_mib == 0 { 0 } else { *largest_mib })
                )
            }
            Reason::Partition { gpu, profiles } if profiles.is_empty() => {
                format!("`{gpu}` is idle and partitioned; it would do if it were made whole")
            }
            Reason::Partition { gpu, profiles } => {
                format!("`{gpu}` is idle and would do if it were partitioned into {}", profiles.join(", "))
            }
            Reason::QuotaTenant { tenant, excess } => format!(
                "tenant `{tenant}` would hold {} {}, its limit is {}",
                excess.wanted,
                excess.resource.words(),
                excess.limit
            ),
            Reason::QuotaUser { user, tenant, excess } => format!(
                "user `{user}` would hold {} {} in tenant `{tenant}`, the limit for each user is {}",
                excess.wanted,
                excess.resource.words(),
                excess.limit
            ),
            Reason::Budget { tenant, spent, more, budget } => {
                let used_up = overspent(*spent, *budget);
                match used_up.is_empty() {
                    false => format!("tenant `{tenant}` has used up its budget: {}", used_up.join(", ")),
                    true => format!(
                        "up to its time limit it would exceed the budget of tenant `{tenant}`: {}",
                        overspent(spent.plus(*more), *budget).join(", ")
                    ),
                }
            }
            Reason::QuotaModel { tenant, model, wanted, limit } => {
                format!("tenant `{tenant}` would hold {wanted} GPUs of model {model}, its limit is {limit}")
            }
            Reason::NodeHealth { nodes: 0, gpus_alone, .. } => {
                format!("{} that would do {} out of service", gpus(*gpus_alone), are(u64::from(*gpus_alone)))
            }
            Reason::NodeHealth { nodes, gpus: out, gpus_alone } => {
                let nodes = u64::from(*nodes);
                let (alone, verb) = match gpus_alone {
                    0 => (String::new(), are(nodes)),
                    alone => (format!(" and {} on other nodes", gpus(*alone)), "are"),
                };
                format!(
                    "{} with {} that would do{alone} {verb} out of service",
                    many(nodes, "node"),
                    gpus(*out)
                )
            }
            Reason::Reservation { job } => {
                format!("free space is kept for `{job}`, which comes first")
            }
            Reason::Window { window, why } if why.is_empty() => {
                format!("free space is booked by window `{window}`")
            }
            Reason::Window { window, why } => format!("free space is booked by window `{window}`: {why}"),
            Reason::Claimed { victims } => format!("room is being made by {}", list(victims)),
            Reason::Dependency { jobs } => format!("waits for {} to end", list(jobs)),
            Reason::StartTime { at } => format!("may start at {}", at.utc()),
            Reason::Policy { why } => format!("a policy lets it wait: {why}"),
            Reason::PolicyRefused { why } => format!("a policy refuses it: {why}"),
            Reason::PolicyUnasked => "the policies are being asked about it".to_string(),
            Reason::PolicyLimit { tenant, pool, held, wanted, limit } => {
                let of_pool = pool.as_ref().map(|pool| format!(" of pool `{pool}`")).unwrap_or_default();
                format!(
                    "tenant `{tenant}` may hold {}{of_pool} by policy now, holds {} and the job wants {}",
                    gpus_of_milli(*limit),
                    parts(*held),
                    parts(*wanted)
                )
            }
            Reason::ArrayLimit { running, limit } => format!("{running} tasks of the array run, {limit} may"),
            Reason::Held { by, why } if why.is_empty() => format!("held by {by}"),
            Reason::Held { by, why } => format!("held by {by}: {why}"),
            Reason::Priority { ahead } => format!("{} {} ahead", many(*ahead, "job"), are(*ahead)),
            Reason::FairShare { tenant, share } => format!(
                "tenant `{tenant}` has {} of the cluster now and of late, its share is {}: fair-share factor {}.{:03}",
                percent(share.used_milli),
                percent(share.share_milli),
                share.factor_milli / 1_000,
                share.factor_milli % 1_000
            ),
            Reason::Infeasible { problem } => {
                format!("could not start here even if all were empty: {problem}")
            }
            Reason::Considering => "arrived just now, the next round looks at it".to_string(),
        }
    }
}

/// Memory that goes with it, where any was asked for.
fn memory(mib: u64) -> String {
    if mib == 0 { String::new() } else { format!(" with {mib} MiB") }
}

/// Milliseconds as hours, to a hundredth.
fn hours(ms: u64) -> String {
    let hundredths = ms / (HOUR as u64 / 100);
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

/// Every part of a budget that is used up.
fn overspent(spent: Spent, budget: Budget) -> Vec<String> {
    let over = |spent: u64, limit: Option<u64>, told: fn(u64) -> String| {
        limit.filter(|limit| spent >= *limit).map(|limit| (told(spent), told(limit)))
    };
    let gpu_hours = over(spent.gpu_ms, budget.gpu_ms, hours)
        .map(|(spent, limit)| format!("{spent} of {limit} GPU-hours"));
    let energy = over(spent.energy_mj, budget.energy_mj, kilowatt_hours)
        .map(|(spent, limit)| format!("{spent} of {limit} kWh"));
    let cost = over(spent.cost_micro, budget.cost_micro, money)
        .map(|(spent, limit)| format!("{spent} of {limit} in money"));
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

/// Thousandths of GPUs, with their unit.
fn gpus_of_milli(milli: u64) -> String {
    format!("{} GPU{}", parts(milli), if milli == 1_000 { "" } else { "s" })
}

/// Thousandths as a number without zeros at its end.
fn parts(milli: u64) -> String {
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

fn list(jobs: &[JobId]) -> String {
    let shown: Vec<String> = jobs.iter().take(5).map(|job| format!("`{job}`")).collect();
    let more = jobs.len().saturating_sub(5);
    if more == 0 { shown.join(", ") } else { format!("{} and {more} more", shown.join(", ")) }
}

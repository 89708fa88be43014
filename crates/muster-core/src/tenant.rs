//! Who pays, and how much of the cluster they may hold.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::budget::Budget;
use crate::ids::TenantId;
use crate::job::Demand;
use crate::lasting::Lasted;
use crate::ledger::LeaseEnd;
use crate::loss::Damage;
use crate::past::Kin;
use crate::recent::{self, Recent};
use crate::runtimes::Runtimes;
use crate::time::Timestamp;

/// A team, a project or a customer. A savepoint that lacks one of the figures is passed over and the journal read
/// instead: a figure that was made up would be wrong for ever.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tenant {
    /// Its name for ever.
    pub id: TenantId,
    /// What an administrator may change.
    pub config: TenantConfig,
    /// What its live attempts hold. Derived from the jobs; `State::check` recomputes it.
    #[serde(default)]
    pub held: Demand,
    /// Jobs that wait or run. Derived; `State::check` recomputes it.
    #[serde(default)]
    pub live_jobs: u64,
    /// Thousandths of GPUs × moment of placement, over all live attempts. Derived; `State::check` recomputes it.
    #[serde(skip)]
    pub placed_gpu_milli_ms: i128,
    /// How many GPUs it held of late.
    pub recent: Recent,
    /// What it has lost to others of late, with all below it.
    #[serde(default)]
    pub damage: Damage,
    /// Who works for it, by name: everyone with jobs, and who had some lately.
    pub members: BTreeMap<String, Member>,
    /// How long its last jobs ran, by job type and in all.
    #[serde(default)]
    pub runtimes: Runtimes,
}

/// Someone who works for a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Member {
    /// What their live attempts hold. Derived; `State::check` recomputes it.
    pub held: Demand,
    /// Their jobs that wait or run. Derived; `State::check` recomputes it.
    pub live_jobs: u64,
    /// How many GPUs they held of late.
    pub recent: Recent,
    /// How long their last jobs ran.
    #[serde(default)]
    pub lasted: Lasted,
    /// How much of their limits their last jobs used, in thousandths.
    #[serde(default)]
    pub used: Lasted,
    /// What is known of their jobs, by the GPUs they ask for, in thousandths.
    #[serde(default)]
    pub kin: BTreeMap<u64, Kin>,
}

impl Tenant {
    /// A tenant in which nothing has happened yet.
    pub fn new(id: TenantId, config: TenantConfig) -> Tenant {
        Tenant {
            id,
            config,
            held: Demand::default(),
            live_jobs: 0,
            placed_gpu_milli_ms: 0,
            recent: Recent::default(),
            damage: Damage::default(),
            members: BTreeMap::new(),
            runtimes: Runtimes::default(),
        }
    }

    pub(crate) fn add_job(&mut self, user: &str) {
        self.live_jobs += 1;
        self.member_mut(user).live_jobs += 1;
    }

    pub(crate) fn end_job(&mut self, user: &str) {
        self.live_jobs -= 1;
        self.member_mut(user).live_jobs -= 1;
    }

    /// GPUs × milliseconds that its live attempts have used until now.
    pub fn running_gpu_ms(&self, now: Timestamp) -> u64 {
        let held = i128::from(self.held.gpu_milli) * i128::from(now.0);
        u64::try_from((held - self.placed_gpu_milli_ms) / 1_000).unwrap_or(0)
    }

    /// After how long past usage counts half: by its own decay, or as usual in the cluster.
    pub fn half_life_ms(&self, usual_ms: i64) -> i64 {
        match self.config.decay_milli_per_day {
            0 => usual_ms,
            decay => recent::half_life_ms(decay),
        }
    }

    /// An attempt takes what its job asked for.
    pub(crate) fn take(&mut self, user: &str, demand: Demand, at: Timestamp, half_life_ms: i64) {
        self.advance(user, at, half_life_ms);
        self.placed_gpu_milli_ms += i128::from(demand.gpu_milli) * i128::from(at.0);
        self.held = self.held.plus(demand);
        let member = self.member_mut(user);
        member.held = member.held.plus(demand);
    }

    /// An attempt that was placed at a moment gives it back.
    pub(crate) fn give_back(
        &mut self,
        user: &str,
        (demand, placed_at): (Demand, Timestamp),
        end: LeaseEnd,
        half_life_ms: i64,
    ) {
        self.advance(user, end.released_at, half_life_ms);
        self.take_back_unused(user, demand, end, half_life_ms);
        self.placed_gpu_milli_ms -= i128::from(demand.gpu_milli) * i128::from(placed_at.0);
        self.held = self.held.minus(demand);
        let member = self.member_mut(user);
        member.held = member.held.minus(demand);
    }

    /// What counted as held between the end of an attempt's processes and its release was not used.
    fn take_back_unused(&mut self, user: &str, demand: Demand, end: LeaseEnd, half_life_ms: i64) {
        let unused_ms = end.released_at.since(end.charged_until);
        let half_life_ms = self.half_life_ms(half_life_ms);
        self.recent.take_back(demand.gpu_milli, unused_ms, half_life_ms);
        self.member_mut(user).recent.take_back(demand.gpu_milli, unused_ms, half_life_ms);
    }

    /// A job of someone has come to its end after so long, with a limit if it had one.
    pub(crate) fn note_runtime(&mut self, user: &str, ms: i64, limit_ms: Option<i64>) {
        let member = self.member_mut(user);
        member.lasted.add(ms);
        if let Some(limit_ms) = limit_ms.filter(|limit| *limit > 0) {
            member.used.add(ms.saturating_mul(1_000) / limit_ms);
        }
    }

    /// What is known of someone's jobs of a kind.
    pub(crate) fn kin_mut(&mut self, user: &str, gpu_milli: u64) -> &mut Kin {
        self.member_mut(user).kin.entry(gpu_milli).or_default()
    }

    /// Forget members who have no jobs and whose usage is long past.
    pub(crate) fn forget_idle(&mut self, now: Timestamp, half_life_ms: i64) {
        // Where usage is forgotten faster than elsewhere, it is still worth knowing how long their jobs ran.
        let half_life_ms = self.half_life_ms(half_life_ms).max(half_life_ms);
        self.members.retain(|_, member| {
            member.live_jobs > 0 || member.recent.micro_gpus(member.held.gpu_milli, now, half_life_ms) > 0
        });
    }

    /// Bring all past usage up to date, before the half-life changes: what is past was forgotten as it was then.
    pub(crate) fn advance_all(&mut self, at: Timestamp, half_life_ms: i64) {
        let half_life_ms = self.half_life_ms(half_life_ms);
        self.recent.advance(self.held.gpu_milli, at, half_life_ms);
        for member in self.members.values_mut() {
            member.recent.advance(member.held.gpu_milli, at, half_life_ms);
        }
    }

    fn advance(&mut self, user: &str, at: Timestamp, half_life_ms: i64) {
        let half_life_ms = self.half_life_ms(half_life_ms);
        self.recent.advance(self.held.gpu_milli, at, half_life_ms);
        let member = self.member_mut(user);
        member.recent.advance(member.held.gpu_milli, at, half_life_ms);
    }

    fn member_mut(&mut self, user: &str) -> &mut Member {
        if !self.members.contains_key(user) {
            self.members.insert(user.to_string(), Member::default());
        }
        self.members.get_mut(user).unwrap_or_else(|| unreachable!("inserted above"))
    }
}

/// What an administrator may change of a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantConfig {
    /// For people; the id is made from it.
    pub name: String,
    /// Contact.
    #[serde(default)]
    pub email: String,
    /// Where it belongs.
    #[serde(default)]
    pub organization: String,
    /// The tenant above it in the tree.
    #[serde(default)]
    pub parent: Option<TenantId>,
    /// The most it may hold at one time.
    #[serde(default)]
    pub maximum: Quota,
    /// The most each of its users may hold at one time, here and in all below it together.
    #[serde(default)]
    pub maximum_per_user: Quota,
    /// What it can count on; the rest up to the maximum is borrowed.
    #[serde(default)]
    pub guaranteed: Quota,
    /// Most GPUs of one model, by canonical model name.
    #[serde(default)]
    pub maximum_by_model: BTreeMap<String, u64>,
    /// GPUs of one model it can count on, by canonical model name; the rest it has of them is borrowed.
    #[serde(default)]
    pub guaranteed_by_model: BTreeMap<String, u64>,
    /// The most it may use in all.
    #[serde(default)]
    pub budget: Budget,
    /// The default priority of its jobs, and the highest that its members may give.
    #[serde(default)]
    pub tier: Tier,
    /// Highest priority its members may give to a job, where that is above the number of the tier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_max: Option<u32>,
    /// Share against its siblings.
    #[serde(default = "default_weight")]
    pub weight: u32,
    /// How much of the past usage of it and its members is forgotten, in thousandths a day; 0 is as in the cluster.
    #[serde(default)]
    pub decay_milli_per_day: u32,
    /// Its running jobs may be displaced by jobs of higher priority.
    #[serde(default = "yes")]
    pub may_be_preempted: bool,
    /// Its jobs may displace others of lower priority.
    #[serde(default = "yes")]
    pub may_preempt: bool,
    /// How often one of its jobs may be preempted; after that it is left alone.
    #[serde(default)]
    pub preemptions_per_job_max: Option<u32>,
    /// How much of its running work others may destroy within a day, in GPU-milliseconds.
    #[serde(default)]
    pub damage_gpu_ms_per_day: Option<u64>,
    /// Whether its usage is priced.
    #[serde(default)]
    pub billed: bool,
    /// Price of one GPU-hour in millionths of the currency.
    #[serde(default)]
    pub price_gpu_hour_micro: u64,
    /// Whether it may submit.
    #[serde(default = "yes")]
    pub active: bool,
    /// Which notices it wants: start, end, failure, quota.
    #[serde(default)]
    pub notify: BTreeMap<String, bool>,
    /// Free words.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

fn default_weight() -> u32 {
    100
}

fn yes() -> bool {
    true
}

impl TenantConfig {
    /// What a GPU-hour costs it, in millionths of the currency.
    pub fn price_micro(&self) -> u64 {
        if self.billed { self.price_gpu_hour_micro } else { 0 }
    }

    /// A tenant with no limits.
    pub fn unlimited(name: &str) -> TenantConfig {
        TenantConfig {
            name: name.to_string(),
            email: String::new(),
            organization: String::new(),
            parent: None,
            maximum: Quota::default(),
            maximum_per_user: Quota::default(),
            guaranteed: Quota::default(),
            maximum_by_model: BTreeMap::new(),
            guaranteed_by_model: BTreeMap::new(),
            budget: Budget::default(),
            tier: Tier::default(),
            priority_max: None,
            weight: default_weight(),
            decay_milli_per_day: 0,
            may_be_preempted: true,
            may_preempt: true,
            preemptions_per_job_max: None,
            damage_gpu_ms_per_day: None,
            billed: false,
            price_gpu_hour_micro: 0,
            active: true,
            notify: BTreeMap::new(),
            labels: BTreeMap::new(),
        }
    }
}

/// Limits; what is not set is unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Quota {
    /// Whole GPUs.
    #[serde(default)]
    pub gpus: Option<u64>,
    /// GPU memory asked for, over all GPUs.
    #[serde(default)]
    pub gpu_memory_mib: Option<u64>,
    /// CPU cores.
    #[serde(default)]
    pub cpus: Option<u64>,
    /// Main memory.
    #[serde(default)]
    pub memory_mib: Option<u64>,
    /// Jobs running at once.
    #[serde(default)]
    pub jobs: Option<u64>,
}

/// One limit that a demand would pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Excess {
    /// Which resource.
    pub resource: QuotaResource,
    /// What is wanted in all.
    pub wanted: u64,
    /// What is allowed.
    pub limit: u64,
}

/// What a quota counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QuotaResource {
    /// Whole GPUs.
    Gpus,
    /// MiB of GPU memory.
    GpuMemory,
    /// CPU cores.
    Cpus,
    /// MiB of main memory.
    Memory,
    /// Jobs at once.
    Jobs,
}

impl QuotaResource {
    /// As people read it after a number.
    pub fn words(self) -> &'static str {
        match self {
            QuotaResource::Gpus => "GPUs",
            QuotaResource::GpuMemory => "MiB of GPU memory",
            QuotaResource::Cpus => "CPU cores",
            QuotaResource::Memory => "MiB of memory",
            QuotaResource::Jobs => "running jobs",
        }
    }
}

impl Quota {
    /// Every limit that `wanted` would pass, in a fixed order.
    pub fn excess(&self, wanted: Demand) -> Vec<Excess> {
        [
            (QuotaResource::Gpus, wanted.gpus(), self.gpus),
            (QuotaResource::GpuMemory, wanted.gpu_memory_mib, self.gpu_memory_mib),
            (QuotaResource::Cpus, wanted.cpus, self.cpus),
            (QuotaResource::Memory, wanted.memory_mib, self.memory_mib),
            (QuotaResource::Jobs, wanted.jobs, self.jobs),
        ]
        .into_iter()
        .filter_map(|(resource, wanted, limit)| {
            let limit = limit?;
            (wanted > limit).then_some(Excess { resource, wanted, limit })
        })
        .collect()
    }
}

/// The default priority of a tenant's jobs, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tier {
    /// 100.
    Low,
    /// 500.
    #[default]
    Medium,
    /// 1,000.
    High,
    /// 5,000.
    Critical,
}

impl Tier {
    /// The number behind the name; job priorities accept the names too.
    pub fn priority(self) -> u32 {
        match self {
            Tier::Low => 100,
            Tier::Medium => 500,
            Tier::High => 1_000,
            Tier::Critical => 5_000,
        }
    }

    /// The name.
    pub fn word(self) -> &'static str {
        match self {
            Tier::Low => "low",
            Tier::Medium => "medium",
            Tier::High => "high",
            Tier::Critical => "critical",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::DAY;

    #[test]
    fn members_are_remembered_as_long_as_their_usage_and_not_less_than_usual() {
        for (decay_milli_per_day, stays) in [(0, false), (1, true), (500, false), (1_000, false)] {
            let config = TenantConfig { decay_milli_per_day, ..TenantConfig::unlimited("red") };
            let mut tenant = Tenant::new("red".parse().unwrap(), config);
            let demand = Demand { gpu_milli: 8_000, ..Demand::default() };
            tenant.take("ada", demand, Timestamp(0), 7 * DAY);
            let end = LeaseEnd { charged_until: Timestamp(DAY), released_at: Timestamp(DAY) };
            tenant.give_back("ada", (demand, Timestamp(0)), end, 7 * DAY);
            tenant.forget_idle(Timestamp(10 * DAY), 7 * DAY);
            assert!(tenant.members.contains_key("ada"), "ten days are not long ago");
            tenant.forget_idle(Timestamp(400 * DAY), 7 * DAY);
            assert_eq!(tenant.members.contains_key("ada"), stays, "{decay_milli_per_day} thousandths a day");
        }
    }
}

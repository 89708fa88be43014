//! Tenants and their members: configuration, held resources, decayed usage, preemption loss and runtime history.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::accounting::decayed_usage as recent;
use crate::accounting::decayed_usage::DecayedUsage;
use crate::accounting::ledger::LeaseEnd;
use crate::accounting::preemption_loss::PreemptionLoss;
use crate::estimate::gittins::ClassHistory;
use crate::estimate::runtime_model::UserRuntimes;
use crate::estimate::runtimes::TenantRuntimes;
use crate::ids::TenantId;
use crate::objects::demand::Demand;
use crate::objects::tenant::TenantConfig;
use crate::time::Timestamp;

/// A team, a project or a customer. A savepoint without one of the required figures is skipped and the journal is
/// replayed instead: a default value would be wrong for ever.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tenant {
    pub id: TenantId,
    pub config: TenantConfig,
    /// Resources held by live attempts. Derived from the jobs; `State::check` recomputes it.
    #[serde(default)]
    pub held: Demand,
    /// Jobs that are queued, held or running. Derived; `State::check` recomputes it.
    #[serde(default)]
    pub live_jobs: u64,
    /// Sum over all live attempts of GPUs, in thousandths, × time of placement. Derived; `State::check` recomputes it.
    #[serde(skip)]
    pub placed_gpu_milli_ms: i128,
    pub decayed_usage: DecayedUsage,
    /// Recent preemption loss of the tenant and its children.
    #[serde(default)]
    pub preemption_loss: PreemptionLoss,
    /// Users with live jobs or recent usage, by name.
    pub members: BTreeMap<String, Member>,
    /// Runtimes of recently ended jobs, by job type and in total.
    #[serde(default)]
    pub runtimes: TenantRuntimes,
}

/// A user of a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Member {
    /// Resources held by live attempts of the user. Derived; `State::check` recomputes it.
    pub held: Demand,
    /// Jobs of the user that are queued, held or running. Derived; `State::check` recomputes it.
    pub live_jobs: u64,
    pub decayed_usage: DecayedUsage,
    #[serde(default)]
    pub runtimes: UserRuntimes,
}

impl Tenant {
    /// A tenant without jobs and history.
    pub fn new(id: TenantId, config: TenantConfig) -> Tenant {
        Tenant {
            id,
            config,
            held: Demand::default(),
            live_jobs: 0,
            placed_gpu_milli_ms: 0,
            decayed_usage: DecayedUsage::default(),
            preemption_loss: PreemptionLoss::default(),
            members: BTreeMap::new(),
            runtimes: TenantRuntimes::default(),
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

    /// GPU-milliseconds used by live attempts until now.
    pub fn running_gpu_ms(&self, now: Timestamp) -> u64 {
        let held = i128::from(self.held.gpu_milli) * i128::from(now.0);
        u64::try_from((held - self.placed_gpu_milli_ms) / 1_000).unwrap_or(0)
    }

    /// The half-life of decayed usage: by the tenant's own decay, or else the cluster's.
    pub fn half_life_ms(&self, cluster_ms: i64) -> i64 {
        match self.config.decay_milli_per_day {
            0 => cluster_ms,
            decay => recent::half_life_ms(decay),
        }
    }

    /// Add the demand of an attempt when it is placed.
    pub(crate) fn take(&mut self, user: &str, demand: Demand, at: Timestamp, half_life_ms: i64) {
        self.advance(user, at, half_life_ms);
        self.placed_gpu_milli_ms += i128::from(demand.gpu_milli) * i128::from(at.0);
        self.held = self.held.plus(demand);
        let member = self.member_mut(user);
        member.held = member.held.plus(demand);
    }

    /// Subtract the demand of an attempt when its leases end.
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

    /// Remove from decayed usage the time between the end of the processes and the release of the leases.
    fn take_back_unused(&mut self, user: &str, demand: Demand, end: LeaseEnd, half_life_ms: i64) {
        let unused_ms = end.released_at.since(end.charged_until);
        let half_life_ms = self.half_life_ms(half_life_ms);
        self.decayed_usage.take_back(demand.gpu_milli, unused_ms, half_life_ms);
        self.member_mut(user).decayed_usage.take_back(demand.gpu_milli, unused_ms, half_life_ms);
    }

    /// Record the runtime of an ended job, and the part of its time limit that it used.
    pub(crate) fn note_runtime(&mut self, user: &str, ms: i64, limit_ms: Option<i64>) {
        self.member_mut(user).runtimes.add(ms, limit_ms);
    }

    pub(crate) fn class_history_mut(&mut self, user: &str, gpu_milli: u64) -> &mut ClassHistory {
        self.member_mut(user).runtimes.classes.entry(gpu_milli).or_default()
    }

    /// Remove members without live jobs whose usage has decayed to zero.
    pub(crate) fn forget_idle(&mut self, now: Timestamp, half_life_ms: i64) {
        // A tenant whose usage decays faster than the cluster's keeps its members as long as others do: their runtime
        // history is still useful.
        let half_life_ms = self.half_life_ms(half_life_ms).max(half_life_ms);
        self.members.retain(|_, member| {
            member.live_jobs > 0 || member.decayed_usage.micro_gpus(member.held.gpu_milli, now, half_life_ms) > 0
        });
    }

    /// Advance all decayed usage before the half-life changes, so that the past decays with the old half-life.
    pub(crate) fn advance_all(&mut self, at: Timestamp, half_life_ms: i64) {
        let half_life_ms = self.half_life_ms(half_life_ms);
        self.decayed_usage.advance(self.held.gpu_milli, at, half_life_ms);
        for member in self.members.values_mut() {
            member.decayed_usage.advance(member.held.gpu_milli, at, half_life_ms);
        }
    }

    fn advance(&mut self, user: &str, at: Timestamp, half_life_ms: i64) {
        let half_life_ms = self.half_life_ms(half_life_ms);
        self.decayed_usage.advance(self.held.gpu_milli, at, half_life_ms);
        let member = self.member_mut(user);
        member.decayed_usage.advance(member.held.gpu_milli, at, half_life_ms);
    }

    fn member_mut(&mut self, user: &str) -> &mut Member {
        if !self.members.contains_key(user) {
            self.members.insert(user.to_string(), Member::default());
        }
        self.members.get_mut(user).unwrap_or_else(|| unreachable!("inserted above"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::DAY;

    #[test]
    fn idle_members_are_removed_once_usage_decayed_by_the_longer_half_life() {
        for (decay_milli_per_day, stays) in [(0, false), (1, true), (500, false), (1_000, false)] {
            let config = TenantConfig { decay_milli_per_day, ..TenantConfig::unlimited("red") };
            let mut tenant = Tenant::new("red".parse().unwrap(), config);
            let demand = Demand { gpu_milli: 8_000, ..Demand::default() };
            tenant.take("ada", demand, Timestamp(0), 7 * DAY);
            let end = LeaseEnd { charged_until: Timestamp(DAY), released_at: Timestamp(DAY) };
            tenant.give_back("ada", (demand, Timestamp(0)), end, 7 * DAY);
            tenant.forget_idle(Timestamp(10 * DAY), 7 * DAY);
            assert!(tenant.members.contains_key("ada"), "usage of ten days ago has not decayed");
            tenant.forget_idle(Timestamp(400 * DAY), 7 * DAY);
            assert_eq!(tenant.members.contains_key("ada"), stays, "{decay_milli_per_day} thousandths a day");
        }
    }
}

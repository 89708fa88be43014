//! Who pays, and how much of the cluster they may hold.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::accounting::decayed_usage as recent;
use crate::accounting::decayed_usage::DecayedUsage;
use crate::accounting::ledger::LeaseEnd;
use crate::accounting::preemption_loss::PreemptionLoss;
use crate::estimate::gittins::ClassHistory;
use crate::estimate::recent::RecentRuntimes;
use crate::estimate::runtimes::TenantRuntimes;
use crate::ids::TenantId;
use crate::objects::demand::Demand;
use crate::objects::tenant::TenantConfig;
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
    pub decayed_usage: DecayedUsage,
    /// What it has lost to others of late, with all below it.
    #[serde(default)]
    pub preemption_loss: PreemptionLoss,
    /// Who works for it, by name: everyone with jobs, and who had some lately.
    pub members: BTreeMap<String, Member>,
    /// How long its last jobs ran, by job type and in all.
    #[serde(default)]
    pub runtimes: TenantRuntimes,
}

/// Someone who works for a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Member {
    /// What their live attempts hold. Derived; `State::check` recomputes it.
    pub held: Demand,
    /// Their jobs that wait or run. Derived; `State::check` recomputes it.
    pub live_jobs: u64,
    /// How many GPUs they held of late.
    pub recent: DecayedUsage,
    /// How long their last jobs ran.
    #[serde(default)]
    pub recent_runtimes: RecentRuntimes,
    /// How much of their limits their last jobs used, in thousandths.
    #[serde(default)]
    pub limit_use_milli: RecentRuntimes,
    /// What is known of their jobs, by the GPUs they ask for, in thousandths.
    #[serde(default)]
    pub class_histories: BTreeMap<u64, ClassHistory>,
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
        self.decayed_usage.take_back(demand.gpu_milli, unused_ms, half_life_ms);
        self.member_mut(user).recent.take_back(demand.gpu_milli, unused_ms, half_life_ms);
    }

    /// A job of someone has come to its end after so long, with a limit if it had one.
    pub(crate) fn note_runtime(&mut self, user: &str, ms: i64, limit_ms: Option<i64>) {
        let member = self.member_mut(user);
        member.recent_runtimes.add(ms);
        if let Some(limit_ms) = limit_ms.filter(|limit| *limit > 0) {
            member.limit_use_milli.add(ms.saturating_mul(1_000) / limit_ms);
        }
    }

    /// What is known of someone's jobs of a kind.
    pub(crate) fn class_history_mut(&mut self, user: &str, gpu_milli: u64) -> &mut ClassHistory {
        self.member_mut(user).class_histories.entry(gpu_milli).or_default()
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
        self.decayed_usage.advance(self.held.gpu_milli, at, half_life_ms);
        for member in self.members.values_mut() {
            member.recent.advance(member.held.gpu_milli, at, half_life_ms);
        }
    }

    fn advance(&mut self, user: &str, at: Timestamp, half_life_ms: i64) {
        let half_life_ms = self.half_life_ms(half_life_ms);
        self.decayed_usage.advance(self.held.gpu_milli, at, half_life_ms);
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

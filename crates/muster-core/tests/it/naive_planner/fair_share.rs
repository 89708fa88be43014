//! Fair share: the penalty on the priority of jobs of tenants and users above their share.

use muster_core::TenantId;
use muster_core::accounting::tenant::Tenant;
use muster_core::objects::demand::Demand;
use muster_core::objects::job::Job;
use muster_core::objects::node::Node;

use crate::naive_planner::NaivePlanner;
use crate::recompute::half_life;

impl<'a> NaivePlanner<'a> {
    /// The fair-share penalty on the priority of a job.
    pub(super) fn penalty(&self, job: &Job) -> i64 {
        let contested = |tenant: &&Tenant| {
            let siblings = self.state.tenants.values().filter(|other| other.config.parent == tenant.config.parent);
            siblings.into_iter().any(|other| other.id != tenant.id && self.has_work(&other.id))
        };
        let levels = self.state.lineage(&job.spec.tenant).filter(contested);
        let loads: Vec<u64> =
            levels.map(|tenant| self.used_share(&tenant.id) * 1_000 / self.fair_share(&tenant.id).max(1)).collect();
        let mean = loads.iter().sum::<u64>() / (loads.len() as u64).max(1);
        let load = match (loads.is_empty(), self.load_of_user(job)) {
            (true, own) => own.unwrap_or(0),
            (false, None) => mean,
            (false, Some(own)) => (7 * mean + own) / 8,
        };
        let factor = 1_000_000 / (1_000 + load);
        i64::from(self.state.settings.fair_share_max) * (1_000 - factor as i64) / 1_000
    }

    /// The load of a user relative to its share: users with live jobs divide the share of the tenant evenly. `None` for
    /// the only such user.
    pub(super) fn load_of_user(&self, job: &Job) -> Option<u64> {
        let tenant = &self.state.tenants[&job.spec.tenant];
        let busy = tenant.members.values().filter(|member| member.live_jobs > 0).count() as u64;
        let same = |other: &Job| other.spec.tenant == job.spec.tenant && other.spec.user == job.spec.user;
        let more = self.planned_usage.iter().filter(|(other, _)| same(other));
        let more: u64 = more.map(|(_, demand)| demand.gpu_milli).sum();
        let user = tenant.members.get(&job.spec.user).cloned().unwrap_or_default();
        let half_life = half_life(self.state, tenant);
        let recent = user.decayed_usage.micro_gpus(user.held.gpu_milli, self.now, half_life);
        let gpus: u64 = self.state.nodes.values().map(|node| node.facts.gpus.len() as u64).sum();
        let used = (millionths(user.held.gpu_milli + more, gpus * 1_000) + millionths(recent, gpus * 1_000_000)) / 2;
        (busy > 1).then(|| used * 1_000 / (self.fair_share(&tenant.id) / busy).max(1))
    }

    /// The fair share of a tenant, in millionths of the cluster.
    pub(super) fn fair_share(&self, id: &TenantId) -> u64 {
        let tenant = &self.state.tenants[id];
        let whole = tenant.config.parent.as_ref().map_or(1_000_000, |parent| self.fair_share(parent));
        let siblings = self.state.tenants.values().filter(|other| other.config.parent == tenant.config.parent);
        let working = siblings.filter(|other| self.has_work(&other.id));
        let weights: u64 = working.map(|other| u64::from(other.config.weight)).sum();
        if self.has_work(id) { whole * u64::from(tenant.config.weight) / weights } else { 0 }
    }

    pub(super) fn has_work(&self, id: &TenantId) -> bool {
        self.below(id).any(|tenant| tenant.live_jobs > 0)
    }

    /// A tenant and its descendants.
    pub(super) fn below(&self, id: &TenantId) -> impl Iterator<Item = &Tenant> {
        let is_above = |one: &Tenant| self.state.lineage(&one.id).any(|above| above.id == *id);
        self.state.tenants.values().filter(move |one| is_above(one))
    }

    /// The share that a tenant and its descendants use, in millionths: the mean of current and decayed usage.
    pub(super) fn used_share(&self, id: &TenantId) -> u64 {
        let below: Vec<&TenantId> = self.below(id).map(|tenant| &tenant.id).collect();
        let more = self.planned_usage.iter().filter(|(job, _)| below.contains(&&job.spec.tenant));
        let held = self.below(id).map(|tenant| tenant.held).chain(more.map(|(_, demand)| *demand));
        let held = held.fold(Demand::default(), Demand::plus);
        let decayed =
            |one: &Tenant| one.decayed_usage.micro_gpus(one.held.gpu_milli, self.now, half_life(self.state, one));
        let recent: u64 = self.below(id).map(decayed).sum();
        let all = |of: fn(&Node) -> u64| self.state.nodes.values().map(of).sum::<u64>();
        let gpus = all(|node| node.facts.gpus.len() as u64);
        let now = [
            millionths(held.gpu_milli, gpus * 1_000),
            millionths(held.cpus, all(|node| u64::from(node.facts.cpus))),
            millionths(held.memory_mib, all(|node| node.facts.memory_mib)),
            millionths(
                held.milliwatts,
                all(|node| node.facts.gpus.iter().filter_map(|gpu| gpu.power_limit_milliwatts).sum()),
            ),
        ];
        (now.into_iter().max().unwrap() + millionths(recent, gpus * 1_000_000)) / 2
    }
}

pub(super) fn millionths(part: u64, whole: u64) -> u64 {
    (u128::from(part) * 1_000_000 / u128::from(whole.max(1))) as u64
}

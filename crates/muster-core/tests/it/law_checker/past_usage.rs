//! Decayed usage for fair shares, recomputed from the state after each step.

use std::collections::BTreeMap;

use muster_core::accounting::decayed_usage::DecayedUsage;
use muster_core::{State, TenantId, Timestamp};

use crate::recompute::half_life;

/// A tenant, or one of its users.
type Holder = (TenantId, Option<String>);

/// Decayed usage of tenants and users, recomputed.
#[derive(Default)]
pub(super) struct PastUsage {
    gpus: BTreeMap<Holder, f64>,
    /// Usage since then, and the half-life of each holder.
    since: Timestamp,
    holding: BTreeMap<Holder, (u64, i64)>,
    /// Usage released in this step, and for how long before the release it was not charged.
    pub(super) unused: Vec<(Holder, u64, i64)>,
}

impl PastUsage {
    /// All changes of a step happen at its end: until then usage and half-lives are those of the previous step.
    pub(super) fn check(&mut self, state: &State) {
        let passed = state.clock.since(self.since);
        for (holder, (held, half_life)) in std::mem::take(&mut self.holding) {
            let kept = 0.5_f64.powf(passed as f64 / half_life as f64);
            let gpus = self.gpus.entry(holder).or_default();
            *gpus = *gpus * kept + held as f64 / 1e3 * (1.0 - kept);
        }
        self.since = state.clock;
        for (holder, gpu_milli, ms) in std::mem::take(&mut self.unused) {
            let Some(tenant) = state.tenants.get(&holder.0) else { continue };
            let kept = 0.5_f64.powf(ms as f64 / half_life(state, tenant) as f64);
            let gpus = self.gpus.entry(holder).or_default();
            *gpus = (*gpus - gpu_milli as f64 / 1e3 * (1.0 - kept)).max(0.0);
        }
        for tenant in state.tenants.values() {
            let (id, half_life) = (&tenant.id, half_life(state, tenant));
            self.compare((id.clone(), None), tenant.held.gpu_milli, tenant.decayed_usage, half_life);
            for (name, member) in &tenant.members {
                let holder = (id.clone(), Some(name.clone()));
                self.compare(holder, member.held.gpu_milli, member.decayed_usage, half_life);
            }
        }
    }

    fn compare(&mut self, holder: Holder, held: u64, recent: DecayedUsage, half_life: i64) {
        let known = recent.micro_gpus(held, self.since, half_life) as f64;
        let own = self.gpus.get(&holder).copied().unwrap_or_default() * 1e6;
        assert!((known - own).abs() < 5.0, "the decayed usage of {holder:?} is {known} millionths, not {own}");
        self.holding.insert(holder, (held, half_life));
    }
}

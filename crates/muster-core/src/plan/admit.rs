//! Phase admit: whether a job may run at all now, wherever there is room. Every blocker is collected.

use crate::ids::TenantId;
use crate::job::Demand;
use crate::limits::OfLimit;
use crate::plan::ask::Ask;
use crate::plan::draft::Draft;
use crate::plan::policy::Word;
use crate::queue::Bucket;
use crate::tenant::Excess;
use crate::verdict::Reason;

/// What keeps the jobs of a bucket from running, apart from room.
pub(super) fn blockers(draft: &Draft, (bucket, word): (&Bucket, Word), ask: &Ask) -> Vec<Reason> {
    let mut found = Vec::new();
    found.extend(draft.state.policy_blocker(bucket, word));
    found.extend(array_limit(draft, bucket));
    found.extend(quota(draft, bucket, ask.demand));
    found.extend(budget(draft, bucket));
    found.extend(ask.model_limits.iter().cloned());
    found
}

fn array_limit(draft: &Draft, bucket: &Bucket) -> Option<Reason> {
    let array = bucket.array?;
    let limit = draft.state.arrays.get(&array)?.running_max?;
    let running = draft.running_of_array(array);
    (running >= limit).then_some(Reason::ArrayLimit { running, limit })
}

/// Quotas and limits of policies that would be passed if the jobs of a bucket took more.
pub(super) fn quota(draft: &Draft, bucket: &Bucket, more: Demand) -> Vec<Reason> {
    let quotas = [quota_of_tenants(draft, bucket, more), quota_of_user(draft, bucket, more)];
    [quotas.concat(), policy_limits(draft, bucket, more)].concat()
}

fn policy_limits(draft: &Draft, bucket: &Bucket, more: Demand) -> Vec<Reason> {
    let whose = (&bucket.tenant, bucket.shape.pool.as_deref());
    let over = draft.limits.over(whose, more, |tenant| draft.shares.held(tenant)).into_iter();
    let reason = |over: OfLimit<'_>| Reason::PolicyLimit {
        tenant: over.tenant.clone(),
        pool: over.pool.map(str::to_string),
        held: over.held,
        wanted: more.gpu_milli,
        limit: over.limit,
    };
    over.map(reason).collect()
}

fn quota_of_tenants(draft: &Draft, bucket: &Bucket, more: Demand) -> Vec<Reason> {
    let mut found = Vec::new();
    for tenant in draft.state.lineage(&bucket.tenant) {
        let wanted = draft.shares.held(&tenant.id).plus(more);
        let excess = tenant.config.maximum.excess(wanted).into_iter();
        found.extend(excess.map(|excess| Reason::QuotaTenant { tenant: tenant.id.clone(), excess }));
    }
    found
}

fn quota_of_user(draft: &Draft, bucket: &Bucket, more: Demand) -> Vec<Reason> {
    let over = draft.users.over(&bucket.tenant, &bucket.user, more).into_iter();
    let reason = |(tenant, excess): (&TenantId, Excess)| Reason::QuotaUser {
        user: bucket.user.clone(),
        tenant: tenant.clone(),
        excess,
    };
    over.map(reason).collect()
}

/// What running attempts have accrued counts as used; the job adds what its time limit would cost at least.
fn budget(draft: &Draft, bucket: &Bucket) -> Option<Reason> {
    let budgets = &draft.shares.budgets;
    if budgets.is_empty() {
        return None;
    }
    let groups = bucket.shape.groups.iter().map(|(count, each)| (*count, each));
    let more = budgets.least_until(draft.state, &bucket.tenant, groups, bucket.budget_limit_ms);
    let (tenant, spent) = budgets.over(draft.state, &bucket.tenant, more)?;
    Some(Reason::Budget { tenant: tenant.id.clone(), spent, more, budget: tenant.config.budget })
}

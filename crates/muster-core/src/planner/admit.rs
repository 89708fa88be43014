//! Step 7, phase admit: the blockers of a job other than capacity: policies, array limits, quotas, budgets and limits
//! per GPU model. All of them are collected.

use crate::facts::verdict::Reason;
use crate::ids::TenantId;
use crate::objects::demand::Demand;
use crate::objects::tenant::Excess;
use crate::planner::draft::Draft;
use crate::planner::request::Request;
use crate::queue::Bucket;
use crate::state::policy_answers::PolicyAnswer;
use crate::state::usage::policy_limits::PolicyLimitHeld;

/// The reasons, apart from capacity, why the jobs of a bucket may not start.
pub(crate) fn blockers(draft: &Draft, bucket: &Bucket, policy: PolicyAnswer, request: &Request) -> Vec<Reason> {
    let mut found = Vec::new();
    found.extend(draft.state.policy_blocker(bucket, policy));
    found.extend(array_limit(draft, bucket));
    found.extend(quota(draft, bucket, request.demand));
    found.extend(budget(draft, bucket));
    found.extend(request.model_limits.iter().cloned());
    found
}

fn array_limit(draft: &Draft, bucket: &Bucket) -> Option<Reason> {
    let array = bucket.array?;
    let limit = draft.state.arrays.get(&array)?.running_max?;
    let running = draft.shares.usage.array_running(array);
    (running >= limit).then_some(Reason::ArrayLimit { running, limit })
}

/// Quotas and policy limits that the jobs of a bucket would exceed if they held `more`.
pub(crate) fn quota(draft: &Draft, bucket: &Bucket, more: Demand) -> Vec<Reason> {
    let usage = &draft.shares.usage;
    let tenants = usage.quota_excess(&bucket.tenant, more).into_iter();
    let tenants = tenants.map(|(tenant, excess)| Reason::QuotaTenant { tenant: tenant.clone(), excess });
    let user = |(tenant, excess): (&TenantId, Excess)| Reason::QuotaUser {
        user: bucket.user.clone(),
        tenant: tenant.clone(),
        excess,
    };
    let users = usage.user_excess(&bucket.tenant, &bucket.user, more).into_iter().map(user);
    let policy = |limit: PolicyLimitHeld<'_>| Reason::PolicyLimit {
        tenant: limit.tenant.clone(),
        pool: limit.pool.map(str::to_string),
        held: limit.held,
        wanted: more.gpu_milli,
        limit: limit.limit,
    };
    let pool = bucket.shape.pool.as_deref();
    let policies = usage.policy_limit_excess(&bucket.tenant, pool, more).into_iter().map(policy);
    tenants.chain(users).chain(policies).collect()
}

/// The budget that does not cover a job of the bucket. Accrued charges of running attempts count as spent; the job adds
/// the least that it costs up to its time limit.
fn budget(draft: &Draft, bucket: &Bucket) -> Option<Reason> {
    let groups = bucket.shape.groups.iter().map(|(count, each)| (*count, each));
    let excess = draft.shares.usage.budget_excess(&bucket.tenant, groups, bucket.budget_limit_ms)?;
    Some(Reason::Budget {
        tenant: excess.tenant.id.clone(),
        spent: excess.spent,
        more: excess.more,
        budget: excess.tenant.config.budget,
    })
}

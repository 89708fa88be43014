//! The holders of GPUs that a waiting job could use, without those that the caller may not see.

use muster_core::Timestamp;
use muster_core::objects::job::Job;
use muster_core::planner;
use muster_protocol::explain::{HoldingJob, JobExplanation};

use crate::conversions::rfc3339;
use crate::http::caller::TenantVisibility;
use crate::identity::Caller;

/// Holders that are named; the others are only counted.
const HOLDERS_MAX: usize = 5;

/// Add the holders, if the job waits for GPUs that other jobs hold.
pub fn add_gpu_holders(
    why: &mut JobExplanation,
    caller: &Caller,
    state: &muster_core::State,
    job: &Job,
    now: Timestamp,
) {
    let waits_for_gpus = |code: &str| matches!(code, "Capacity" | "Fragmented");
    if !why.reasons.iter().any(|reason| waits_for_gpus(&reason.reason)) {
        return;
    }
    let all = planner::holders(state, job, now);
    let seen = all.iter().filter_map(|holder| Some((holder, state.jobs.get(&holder.job)?)));
    let seen = seen.filter(|(_, job)| caller.sees_tenant(job.spec.tenant.as_str()));
    why.holders = seen.take(HOLDERS_MAX).map(|(holder, job)| api_holding_job(holder, job)).collect();
    why.other_holders = u32::try_from(all.len() - why.holders.len()).unwrap_or(u32::MAX);
}

fn api_holding_job(holder: &planner::DeviceHolder, job: &Job) -> HoldingJob {
    HoldingJob {
        job_id: job.id.to_string(),
        name: job.spec.name.clone(),
        tenant_id: job.spec.tenant.to_string(),
        gpus: holder.gpus,
        expected_end: holder.end.map(|end| rfc3339(end.0)),
        expected_end_ms: holder.end.map(|end| end.0),
        is_time_limit: holder.is_bound,
    }
}

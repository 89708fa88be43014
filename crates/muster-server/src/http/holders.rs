//! Who holds the GPUs that a waiting job could use, as far as the caller may see.

use muster_core::plan;
use muster_core::{Job, Timestamp};
use muster_protocol::outlook::{HoldingJob, Why};

use crate::http::who::Reach;
use crate::http::written::stamp;
use crate::identity::Who;

/// Jobs that are named; the others are counted.
const HOLDERS_MAX: usize = 5;

/// Name the holders, where the job waits for GPUs that others hold.
pub fn add(why: &mut Why, who: &Who, state: &muster_core::State, job: &Job, now: Timestamp) {
    let waits_for_gpus = |word: &str| matches!(word, "Capacity" | "Fragmented");
    if !why.reasons.iter().any(|reason| waits_for_gpus(&reason.reason)) {
        return;
    }
    let all = plan::holders(state, job, now);
    let seen = all.iter().filter_map(|holder| Some((holder, state.jobs.get(&holder.job)?)));
    let seen = seen.filter(|(_, job)| who.sees_tenant(job.spec.tenant.as_str()));
    why.holders = seen.take(HOLDERS_MAX).map(|(holder, job)| shown(holder, job)).collect();
    why.other_holders = u32::try_from(all.len() - why.holders.len()).unwrap_or(u32::MAX);
}

fn shown(holder: &plan::Holder, job: &Job) -> HoldingJob {
    HoldingJob {
        job_id: job.id.to_string(),
        name: job.spec.name.clone(),
        tenant_id: job.spec.tenant.to_string(),
        gpus: holder.gpus,
        expected_end: holder.end.map(|end| stamp(end.0)),
        expected_end_ms: holder.end.map(|end| end.0),
        is_time_limit: holder.is_bound,
    }
}

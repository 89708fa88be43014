//! The order of the queue: buckets and the rank of their heads.

use std::cmp::Reverse;

use muster_core::estimate::expected_end::rounded_limit_ms;
use muster_core::objects::job::{Job, Phase};
use muster_core::objects::settings::{Objective, PRIORITY_MAX};
use muster_core::objects::shape::Shape;
use muster_core::time::MINUTE;
use muster_core::{JobId, State, Timestamp};

use crate::naive_planner::NaivePlanner;
use crate::naive_planner::policies::rank_by_rule;
use crate::recompute::is_ready;

pub(super) type BucketKey = (String, String, u32, Shape, Option<i64>, Option<u64>, Option<String>);

impl<'a> NaivePlanner<'a> {
    /// Ready jobs by bucket. The order within a bucket is fixed.
    pub(super) fn buckets(&self) -> Vec<Vec<&'a Job>> {
        let mut buckets: Vec<(BucketKey, Vec<&Job>)> = Vec::new();
        for job in self.state.jobs.values().filter(|job| is_ready(job)) {
            let own = bucket_key(self.state, job);
            match buckets.iter_mut().find(|(kind, _)| *kind == own) {
                Some((_, bucket)) => bucket.push(job),
                None => buckets.push((own, vec![job])),
            }
        }
        let sorted = |mut bucket: Vec<&'a Job>| {
            match self.is_fast() {
                true => bucket.sort_by_key(|job| Reverse(self.rank(job))),
                false => bucket.sort_by_key(|job| (job.submitted_at, job.id)),
            }
            bucket
        };
        buckets.into_iter().map(|(_, bucket)| sorted(bucket)).collect()
    }

    /// Remove and return the highest-ranked bucket head.
    pub(super) fn next_head(&self, buckets: &mut Vec<Vec<&'a Job>>) -> Option<&'a Job> {
        buckets.retain(|bucket| !bucket.is_empty());
        let best = buckets.iter_mut().max_by_key(|bucket| self.rank(bucket[0]))?;
        Some(best.remove(0))
    }

    pub(super) fn rank(
        &self,
        job: &Job,
    ) -> (u8, Reverse<usize>, Reverse<u64>, i64, Reverse<Timestamp>, Reverse<JobId>) {
        let (class, effective) = match () {
            () if job.spec.priority == PRIORITY_MAX => (3, self.effective_priority(job)),
            () if self.is_overdue(job) => (2, 0),
            () if self.is_guaranteed(job) => (1, self.effective_priority(job)),
            () => (0, self.effective_priority(job)),
        };
        let by_size = self.is_fast() && class < 2 && !is_returning(job);
        let size = Reverse(if by_size { self.requested_gpu_ms(job) } else { 0 });
        let rule_rank = if class == 2 { 0 } else { rank_by_rule(self.state, job) };
        (class, Reverse(rule_rank), size, effective, Reverse(job.submitted_at), Reverse(job.id))
    }

    pub(super) fn is_fast(&self) -> bool {
        self.state.settings.objective == Objective::Fast
    }

    pub(super) fn effective_priority(&self, job: &Job) -> i64 {
        let settings = &self.state.settings;
        if is_returning(job) {
            return i64::from(self.priority_by_policy(job)) + i64::from(settings.aging_max);
        }
        let aged_ms = (self.now.since(job.submitted_at) - settings.aging_after_ms).max(0);
        let aging = (aged_ms * i64::from(settings.aging_per_minute) / MINUTE).min(i64::from(settings.aging_max));
        i64::from(self.priority_by_policy(job)) + aging - self.penalty(job)
    }

    pub(super) fn priority_by_policy(&self, job: &Job) -> u32 {
        self.answer(job).and_then(|answer| answer.priority).unwrap_or(job.spec.priority)
    }

    pub(super) fn is_overdue(&self, job: &Job) -> bool {
        let Phase::Queued { since, .. } = job.phase else { return false };
        let ready_since = job.spec.start_after.map_or(since, |start| start.max(since));
        self.now.since(ready_since) > self.state.settings.max_wait_ms
            && self.now.since(job.submitted_at) > self.state.settings.max_wait_ms
    }
}

pub(super) fn is_returning(job: &Job) -> bool {
    matches!(job.phase, Phase::Queued { returning: true, .. })
}

/// Tenant, user, priority, shape, rounded time limit, array and priority label: jobs with equal keys are treated alike.
pub(super) fn bucket_key(state: &State, job: &Job) -> BucketKey {
    let array = state.has_array_limit(job.id).then_some(job.id.number);
    let (tenant, user) = (job.spec.tenant.to_string(), job.spec.user.clone());
    let label = state.policies.rules().and_then(|_| job.spec.labels.get("job_priority").cloned());
    (tenant, user, job.spec.priority, Shape::of(&job.spec), job.spec.time_limit_ms.map(rounded_limit_ms), array, label)
}

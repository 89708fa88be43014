//! Short work first: what the objective `fast` orders jobs by, and who gives way to whom.
//!
//! The size of a job is the GPU time that is left of it, as far as can be told: where it has a limit, as much of it as
//! its owner's jobs usually use, less what it has run; else what is known of others of its kind (`past`). Its worth is
//! how many such jobs would be done in a time on its GPUs.
//!
//! Who saves its work gives way to a job that is worth more than all who would have to stop for it, however often: what
//! was done is not lost, and whoever is displaced has become smaller by what it ran. It gives way to several who are
//! worth more only together as well (`plan/together`). Who does not save its work gives way once in its
//! life, and only where that gains more time than it costs (`plan/hasten`). Nobody gives way to a lower priority; and
//! nobody who had to wait so long that its turn came by right: the bound on every wait is the same as in `fair`.

use crate::ids::{JobId, TenantId};
use crate::job::{Attempt, Job, JobSpec};
use crate::loss::lost_gpu_ms;
use crate::past::Expected;
use crate::queue::Bucket;
use crate::settings::Objective;
use crate::state::State;
use crate::time::Timestamp;

/// What is known of an owner's jobs of one kind at a moment.
pub(crate) struct Habits<'a> {
    expected: Expected<'a>,
    /// How much of their limits their jobs usually use, in thousandths.
    used_milli: Option<i64>,
    /// How long their jobs usually run.
    usual_ms: Option<i64>,
    gpu_milli: u64,
}

impl Habits<'_> {
    /// How much longer a job runs, with a limit if it has one; by its number among those of its kind if it has come.
    pub fn left_ms(&self, limit_ms: Option<i64>, number: Option<u64>, ran_ms: i64) -> i64 {
        let Some(limit_ms) = limit_ms else { return self.expected.left_ms(number, ran_ms) };
        let usual_ms = match (self.used_milli, self.usual_ms) {
            (Some(used), _) => (limit_ms / 1_000).saturating_mul(used),
            (None, Some(usual)) => usual.min(limit_ms),
            (None, None) => limit_ms,
        };
        // Who is late is expected to be late by as much again; nobody knows the end to the last moment.
        usual_ms.saturating_sub(ran_ms).abs().max(usual_ms / 64).max(1)
    }

    /// The same as GPUs × milliseconds.
    pub fn size(&self, limit_ms: Option<i64>, number: Option<u64>, ran_ms: i64) -> u64 {
        gpu_ms(self.left_ms(limit_ms, number, ran_ms), self.gpu_milli)
    }
}

fn gpu_ms(ms: i64, gpu_milli: u64) -> u64 {
    (ms.max(0) as u64).saturating_mul(gpu_milli) / 1_000
}

/// What it is worth to run a job of a size on so many GPUs: how many of them would be done in a time.
pub(crate) fn worth(size_gpu_ms: u64, gpu_milli: u64) -> u64 {
    (gpu_milli << 40) / size_gpu_ms.max(1)
}

impl State {
    /// What is known of an owner's jobs that ask for so many GPUs.
    pub(crate) fn habits(&self, tenant: &TenantId, user: &str, gpu_milli: u64, now: Timestamp) -> Habits<'_> {
        let member = self.tenants.get(tenant).and_then(|tenant| tenant.members.get(user));
        let kin = member.and_then(|member| member.kin.get(&gpu_milli));
        let all = member.into_iter().flat_map(|member| member.kin.values());
        let used = member.and_then(|member| member.used.usual_and_longest());
        let lasted = member.and_then(|member| member.lasted.usual_and_longest());
        Habits {
            expected: Expected::new(kin, all, self.settings.default_runtime_ms, now),
            used_milli: used.map(|(usual, _)| usual.min(1_000)),
            usual_ms: lasted.map(|(usual, _)| usual),
            gpu_milli,
        }
    }

    /// The same for those of a bucket.
    pub(crate) fn habits_of(&self, bucket: &Bucket, now: Timestamp) -> Habits<'_> {
        self.habits(&bucket.tenant, &bucket.user, bucket.shape.gpu_milli(), now)
    }

    /// How much longer a job runs, as far as can be told.
    pub fn left_ms(&self, job: &Job, now: Timestamp) -> i64 {
        let began = job.attempt().and_then(|attempt| attempt.started_at);
        let ran_ms = job.ran_ms.saturating_add(began.map_or(0, |began| now.since(began)));
        let spec = &job.spec;
        let habits = self.habits(&spec.tenant, &spec.user, spec.demand().gpu_milli, now);
        habits.left_ms(spec.time_limit_ms, Some(job.number), ran_ms)
    }

    /// GPUs × milliseconds that are left of a job that waits.
    pub(crate) fn size(&self, job: &Job, now: Timestamp) -> u64 {
        gpu_ms(self.left_ms(job, now), job.spec.demand().gpu_milli)
    }

    /// GPUs × milliseconds that are left of a running job, if it may give way to others.
    pub(crate) fn left_of(&self, job: &Job, now: Timestamp) -> Option<u64> {
        let attempt = job.attempt()?;
        let waited_ms = attempt.placed_at.since(job.submitted_at);
        if self.settings.objective != Objective::Fast
            || (job.preemptions > 0 && !saves(job, attempt))
            || waited_ms > self.settings.max_wait_ms
        {
            return None;
        }
        Some(gpu_ms(self.left_ms(job, now), attempt.gpu_milli()))
    }

    /// Whether a job would give way to whoever is worth more if it started now; it may have come just now.
    pub(crate) fn yields(&self, spec: &JobSpec, job: JobId, now: Timestamp) -> bool {
        let Some(config) = self.tenants.get(&spec.tenant).map(|tenant| &tenant.config) else { return false };
        let waited_ms = self.jobs.get(&job).map_or(0, |job| now.since(job.submitted_at));
        self.settings.objective == Objective::Fast
            && self.settings.preemption
            && config.may_be_preempted
            && config.preemptions_per_job_max.is_none()
            && spec.checkpoint.is_some()
            && waited_ms <= self.settings.max_wait_ms
    }

    /// What it is worth that a running job goes on, if it loses next to nothing by giving way.
    pub(crate) fn worth_of(&self, job: &Job, now: Timestamp) -> Option<u64> {
        let attempt = job.attempt().filter(|attempt| saves(job, attempt))?;
        let left = self.left_of(job, now).filter(|left| *left > 0)?;
        let lost = lost_gpu_ms(job, attempt, now);
        // What it would lose counts as if it had come that much nearer to its end.
        (lost < left / 8).then(|| worth(left - lost, attempt.gpu_milli()))
    }

    /// Whether a running job may give way to another, as far as the two are concerned.
    pub(crate) fn gives_way(&self, victim: &Job, to: &Job, now: Timestamp) -> bool {
        let size = self.size(to, now);
        let gently = |value: u64| value < worth(size, to.spec.demand().gpu_milli);
        victim.spec.priority <= to.spec.priority
            && (self.left_of(victim, now).is_some_and(|left| size < left)
                || self.worth_of(victim, now).is_some_and(gently))
    }
}

/// Whether a running job saves its work.
pub(crate) fn saves(job: &Job, attempt: &Attempt) -> bool {
    job.spec.checkpoint.is_some() || attempt.saved_at.is_some()
}

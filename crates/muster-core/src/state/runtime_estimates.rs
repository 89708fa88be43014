//! Runtime estimates of the jobs of a state.

use crate::estimate::runtimes::job_type;
use crate::ids::JobId;
use crate::objects::job::{Job, JobSpec};
use crate::state::State;

impl State {
    /// The usual and the longest runtime to expect of a job: of its type, its user, its tenant, or the whole cluster,
    /// whichever first has enough ended jobs. Nothing while no job of the cluster has ended.
    pub fn median_and_longest_ms(&self, spec: &JobSpec) -> Option<(i64, i64)> {
        let tenant = self.tenants.get(&spec.tenant);
        let of_type = || tenant?.runtimes.by_type.get(job_type(&spec.name))?.lasted.median_and_longest_ms();
        let of_user = || tenant?.members.get(&spec.user)?.recent_runtimes.median_and_longest_ms();
        let of_tenant = || tenant?.runtimes.all.median_and_longest_ms();
        let known = of_type().or_else(of_user).or_else(of_tenant);
        known
            .or_else(|| self.recent_runtimes.median_and_longest_ms())
            .or_else(|| self.recent_runtimes.median_and_longest_ms_of_few())
    }
}

impl State {
    /// Whether a forecast of the start of a waiting job rests on the configured default runtime: no job of the cluster has
    /// ended yet, and some other job has no time limit.
    pub fn guesses_runtimes(&self, waiting: JobId) -> bool {
        let known = self
            .recent_runtimes
            .median_and_longest_ms()
            .or_else(|| self.recent_runtimes.median_and_longest_ms_of_few());
        let unlimited = |job: &Job| job.id != waiting && job.spec.time_limit_ms.is_none();
        known.is_none() && self.jobs.values().any(unlimited)
    }
}

//! The seven hooks of policies as typed functions.
//!
//! A hook is called in every file that defines it, in the order of file names, and the answers are combined. Answers
//! are parsed strictly: a wrong type or a runtime error is returned, and the caller decides what it means.

mod answers;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use muster_core::ids::JobId;
use muster_core::objects::policy::{Admission, FailureView, GpuLimit, Hook, POLICY_COST_MILLI_MAX, Retry};
use muster_core::policy::{CandidateView, ClusterView, JobView, NodeView, TenantView};

use crate::call_batch::CallBatch;
use crate::error::PolicyError;
use crate::policy_files::is_policy_file;
use crate::policy_value::PolicyValue;
use crate::program::Program;
use crate::views;

/// The most calls of one batch. All answers of a batch are in memory until they are parsed.
const BATCH_CALLS_MAX: usize = 1 << 16;

/// Runs policy functions: a [`Program`] in this process, or a worker process.
pub trait HookExecutor {
    /// The files that define a function, in the order of file names.
    fn files_defining(&self, function: &str) -> Vec<String>;

    /// Call a function of a file, and return one answer for each call of the batch.
    fn call_each(&self, file: &str, function: &str, calls: &CallBatch) -> Vec<Result<PolicyValue, PolicyError>>;
}

impl HookExecutor for Program {
    fn files_defining(&self, function: &str) -> Vec<String> {
        let files = Program::files_defining(self, function).into_iter();
        // Functions of test files are no hooks, even if a policy loads the file.
        files.filter(|file| is_policy_file(file)).map(str::to_string).collect()
    }

    fn call_each(&self, file: &str, function: &str, calls: &CallBatch) -> Vec<Result<PolicyValue, PolicyError>> {
        Program::call_each(self, file, function, calls)
    }
}

impl<E: HookExecutor + ?Sized> HookExecutor for &E {
    fn files_defining(&self, function: &str) -> Vec<String> {
        (**self).files_defining(function)
    }

    fn call_each(&self, file: &str, function: &str, calls: &CallBatch) -> Vec<Result<PolicyValue, PolicyError>> {
        (**self).call_each(file, function, calls)
    }
}

/// Whether a job is accepted, and whether it may start now. The strictest answer wins.
pub fn admit(policies: &impl HookExecutor, job: &JobView) -> Result<Admission, PolicyError> {
    single_answer(admit_each(policies, &[job]))
}

/// [`admit`] for many jobs in one batch, which is much faster than single calls.
pub fn admit_each(policies: &impl HookExecutor, jobs: &[&JobView]) -> Vec<Result<Admission, PolicyError>> {
    let calls = CallBatch::from_rows(jobs.iter().map(|job| [views::job(job)]));
    let mut all = vec![Ok(Admission::Yes); jobs.len()];
    for file in policies.files_defining(Hook::Admit.as_str()) {
        let answers = policies.call_each(&file, Hook::Admit.as_str(), &calls);
        combine_answers(&mut all, answers, |previous, answer| Ok(previous.and(answers::admission(&file, answer)?)));
    }
    all
}

/// The priority that orders a job; `None` if it equals the requested one. Each file sees the result of the previous.
pub fn priority(policies: &impl HookExecutor, job: &JobView, tenant: &TenantView) -> Result<Option<u32>, PolicyError> {
    single_answer(priority_each(policies, &[(job, tenant)]))
}

/// [`priority`] for many jobs in one batch.
pub fn priority_each(
    policies: &impl HookExecutor,
    jobs: &[(&JobView, &TenantView)],
) -> Vec<Result<Option<u32>, PolicyError>> {
    let requested: Vec<u32> = jobs.iter().map(|(job, _)| job.priority).collect();
    let mut all: Vec<Result<u32, PolicyError>> = requested.iter().copied().map(Ok).collect();
    for file in policies.files_defining(Hook::Priority.as_str()) {
        let row = |((job, tenant), previous): (&(&JobView, &TenantView), &Result<u32, PolicyError>)| {
            let priority = previous.as_ref().map_or(job.priority, |previous| *previous);
            [views::job(&JobView { priority, ..JobView::clone(job) }), views::tenant(tenant)]
        };
        let calls = CallBatch::from_rows(jobs.iter().zip(&all).map(row));
        let answers = policies.call_each(&file, Hook::Priority.as_str(), &calls);
        combine_answers(
            &mut all,
            answers,
            |previous, answer| Ok(answers::priority(&file, answer)?.unwrap_or(previous)),
        );
    }
    let if_changed = |(priority, requested): (Result<u32, PolicyError>, u32)| {
        priority.map(|priority| Some(priority).filter(|priority| *priority != requested))
    };
    all.into_iter().zip(requested).map(if_changed).collect()
}

/// The cost of placing a job on each of these nodes, in thousandths of a device. Negative costs attract the job.
pub fn score(policies: &impl HookExecutor, job: &JobView, nodes: &[NodeView]) -> Result<Vec<i64>, PolicyError> {
    single_answer(score_each(policies, &[job], nodes))
}

/// [`score`] for many jobs.
pub fn score_each(
    policies: &impl HookExecutor,
    jobs: &[&JobView],
    nodes: &[NodeView],
) -> Vec<Result<Vec<i64>, PolicyError>> {
    let jobs_per_batch = (BATCH_CALLS_MAX / nodes.len().max(1)).max(1);
    jobs.chunks(jobs_per_batch).flat_map(|jobs| score_chunk(policies, jobs, nodes)).collect()
}

fn score_chunk(
    policies: &impl HookExecutor,
    jobs: &[&JobView],
    nodes: &[NodeView],
) -> Vec<Result<Vec<i64>, PolicyError>> {
    let job_views = jobs.iter().map(|job| views::job(job)).collect();
    let calls = CallBatch::from_pairs(job_views, nodes.iter().map(views::node).collect());
    let mut all = vec![Ok(vec![0; nodes.len()]); jobs.len()];
    for file in policies.files_defining(Hook::Score.as_str()) {
        let mut answers = policies.call_each(&file, Hook::Score.as_str(), &calls).into_iter();
        // Split by job before errors are looked at: a failed call must not shift the rows of later jobs.
        let rows = jobs.iter().map(|_| Ok(answers.by_ref().take(nodes.len()).collect::<Vec<_>>())).collect();
        combine_answers(&mut all, rows, |mut costs, row| {
            for (cost, answer) in costs.iter_mut().zip(row) {
                *cost += answers::cost_milli(&file, answer?)?.clamp(-POLICY_COST_MILLI_MAX, POLICY_COST_MILLI_MAX);
            }
            Ok(costs)
        });
    }
    let bounded = |cost: i64| cost.clamp(-POLICY_COST_MILLI_MAX, POLICY_COST_MILLI_MAX);
    all.into_iter().map(|costs| Ok(costs?.into_iter().map(bounded).collect())).collect()
}

/// The candidates that may be preempted for a job: those that every file allows.
pub fn victims(
    policies: &impl HookExecutor,
    job: &JobView,
    candidates: &[CandidateView],
) -> Result<BTreeSet<JobId>, PolicyError> {
    let candidate_views = PolicyValue::List(candidates.iter().map(views::candidate).collect());
    let calls = CallBatch::single(vec![views::job(job), candidate_views]);
    let all: BTreeSet<JobId> = candidates.iter().map(|candidate| candidate.id).collect();
    let mut allowed = all.clone();
    for file in policies.files_defining(Hook::Victims.as_str()) {
        let answer = single_answer(policies.call_each(&file, Hook::Victims.as_str(), &calls))?;
        if let Some(named) = answers::victims(&file, answer, &all)? {
            allowed.retain(|candidate| named.contains(candidate));
        }
    }
    Ok(allowed)
}

/// Whether a job restarts after a failure. One refusal is enough; else the longest wait applies.
pub fn retry(policies: &impl HookExecutor, job: &JobView, failure: &FailureView) -> Result<Retry, PolicyError> {
    let calls = CallBatch::single(vec![views::job(job), views::failure(failure)]);
    let mut all = Retry::ByRestartRule;
    for file in policies.files_defining(Hook::Retry.as_str()) {
        let answer = single_answer(policies.call_each(&file, Hook::Retry.as_str(), &calls))?;
        all = all.and(answers::retry(&file, answer)?);
    }
    Ok(all)
}

/// The power limit of each GPU of a job, in milliwatts: the lowest of all files.
pub fn power(policies: &impl HookExecutor, job: &JobView) -> Result<Option<u64>, PolicyError> {
    single_answer(power_each(policies, &[job]))
}

/// [`power`] for many jobs in one batch.
pub fn power_each(policies: &impl HookExecutor, jobs: &[&JobView]) -> Vec<Result<Option<u64>, PolicyError>> {
    let calls = CallBatch::from_rows(jobs.iter().map(|job| [views::job(job)]));
    let mut all: Vec<Result<Option<u64>, PolicyError>> = vec![Ok(None); jobs.len()];
    for file in policies.files_defining(Hook::Power.as_str()) {
        let answers = policies.call_each(&file, Hook::Power.as_str(), &calls);
        combine_answers(&mut all, answers, |lowest, answer| {
            Ok(lowest.into_iter().chain(answers::milliwatts(&file, answer)?).min())
        });
    }
    all
}

/// The most GPUs that a tenant and its descendants may hold, in all and by pool: the lowest limits of all files.
pub fn limit(
    policies: &impl HookExecutor,
    tenant: &TenantView,
    cluster: &ClusterView,
) -> Result<GpuLimit, PolicyError> {
    single_answer(limit_each(policies, &[(tenant, cluster)]))
}

/// [`limit`] for many tenants in one batch.
pub fn limit_each(
    policies: &impl HookExecutor,
    tenants: &[(&TenantView, &ClusterView)],
) -> Vec<Result<GpuLimit, PolicyError>> {
    let row = |(tenant, cluster): &(&TenantView, &ClusterView)| [views::tenant(tenant), views::cluster(cluster)];
    let calls = CallBatch::from_rows(tenants.iter().map(row));
    let mut all = vec![Ok(GpuLimit::default()); tenants.len()];
    for file in policies.files_defining(Hook::Limit.as_str()) {
        let answers = policies.call_each(&file, Hook::Limit.as_str(), &calls);
        combine_answers(&mut all, answers, |lowest, answer| Ok(lowest.and(answers::limit(&file, answer)?)));
    }
    all
}

fn single_answer<T>(answers: Vec<Result<T, PolicyError>>) -> Result<T, PolicyError> {
    let no_answer = || PolicyError::WorkerFailed { message: "the worker sent no answer".to_string() };
    answers.into_iter().next().unwrap_or_else(|| Err(no_answer()))
}

/// Combine the answers of a file with those of the previous files. The first error of each call is kept.
fn combine_answers<T: Default, A>(
    all: &mut [Result<T, PolicyError>],
    answers: Vec<Result<A, PolicyError>>,
    combine: impl Fn(T, A) -> Result<T, PolicyError>,
) {
    for (combined, answer) in all.iter_mut().zip(answers) {
        if let Ok(previous) = combined {
            let previous = std::mem::take(previous);
            *combined = answer.and_then(|answer| combine(previous, answer));
        }
    }
}

//! The seven questions that policies answer, as typed functions.
//!
//! A question goes to every file that tells a function of its name, in the order of their names, and the answers become
//! one. What comes back is read strictly: an answer of a wrong kind is an error, and so is whatever goes wrong while a
//! function runs. Nothing is hidden here: who asks decides what an error means.

mod reading;
#[cfg(test)]
mod tests;
pub(crate) mod views;

use std::collections::BTreeSet;

use muster_core::ids::JobId;
use muster_core::policy::{
    Admission, COST_MILLI_MAX, CandidateView, ClusterView, FailureView, GpuLimit, Hook, JobView, NodeView,
    Retry, TenantView,
};

pub(crate) use reading::REFUSE;

use crate::calls::Calls;
use crate::error::PolicyError;
use crate::load::is_policy;
use crate::plain::Plain;
use crate::program::Program;

/// Calls that are made at once at most: all their answers are kept until they are read.
const CALLS_MAX: usize = 1 << 16;

/// Who runs the functions of policies: a program in this process, or a process of its own.
pub trait Caller {
    /// The files that tell a function, in the order of their names.
    fn files_with(&self, function: &str) -> Vec<String>;

    /// Call a function of a file, and say what each call answered.
    fn call_each(&self, file: &str, function: &str, calls: &Calls) -> Vec<Result<Plain, PolicyError>>;
}

impl Caller for Program {
    fn files_with(&self, function: &str) -> Vec<String> {
        let files = Program::files_with(self, function).into_iter();
        // What a test tells answers nobody, even where a policy loads it.
        files.filter(|file| is_policy(file)).map(str::to_string).collect()
    }

    fn call_each(&self, file: &str, function: &str, calls: &Calls) -> Vec<Result<Plain, PolicyError>> {
        Program::call_each(self, file, function, calls)
    }
}

impl<C: Caller + ?Sized> Caller for &C {
    fn files_with(&self, function: &str) -> Vec<String> {
        (**self).files_with(function)
    }

    fn call_each(&self, file: &str, function: &str, calls: &Calls) -> Vec<Result<Plain, PolicyError>> {
        (**self).call_each(file, function, calls)
    }
}

/// Whether a job may be accepted, and may start now: the strictest answer.
pub fn admit(policies: &impl Caller, job: &JobView) -> Result<Admission, PolicyError> {
    only(admit_each(policies, &[job]))
}

/// The same of many jobs at once, which is much faster than one by one.
pub fn admit_each(policies: &impl Caller, jobs: &[&JobView]) -> Vec<Result<Admission, PolicyError>> {
    let calls = Calls::of_rows(jobs.iter().map(|job| [views::job(job)]));
    let mut all = vec![Ok(Admission::Yes); jobs.len()];
    for file in policies.files_with(Hook::Admit.word()) {
        let said = policies.call_each(&file, Hook::Admit.word(), &calls);
        join(&mut all, said, |sum, answer| Ok(sum.and(reading::admission(&file, answer)?)));
    }
    all
}

/// The priority a job is ordered by, where that is another than it asked for. Each file sees what the one before left.
pub fn priority(
    policies: &impl Caller,
    job: &JobView,
    tenant: &TenantView,
) -> Result<Option<u32>, PolicyError> {
    only(priority_each(policies, &[(job, tenant)]))
}

/// The same of many jobs at once.
pub fn priority_each(
    policies: &impl Caller,
    jobs: &[(&JobView, &TenantView)],
) -> Vec<Result<Option<u32>, PolicyError>> {
    let asked: Vec<u32> = jobs.iter().map(|(job, _)| job.priority).collect();
    let mut all: Vec<Result<u32, PolicyError>> = asked.iter().copied().map(Ok).collect();
    for file in policies.files_with(Hook::Priority.word()) {
        let row = |((job, tenant), left): (&(&JobView, &TenantView), &Result<u32, PolicyError>)| {
            let priority = left.as_ref().map_or(job.priority, |left| *left);
            [views::job(&JobView { priority, ..JobView::clone(job) }), views::tenant(tenant)]
        };
        let calls = Calls::of_rows(jobs.iter().zip(&all).map(row));
        let said = policies.call_each(&file, Hook::Priority.word(), &calls);
        join(&mut all, said, |left, answer| Ok(reading::priority(&file, answer)?.unwrap_or(left)));
    }
    let changed = |(priority, asked): (Result<u32, PolicyError>, u32)| {
        priority.map(|priority| Some(priority).filter(|priority| *priority != asked))
    };
    all.into_iter().zip(asked).map(changed).collect()
}

/// How unwelcome a job is on each of these nodes, in thousandths of a device; less than nothing where it is welcome.
pub fn score(policies: &impl Caller, job: &JobView, nodes: &[NodeView]) -> Result<Vec<i64>, PolicyError> {
    only(score_each(policies, &[job], nodes))
}

/// The same of many jobs at once.
pub fn score_each(
    policies: &impl Caller,
    jobs: &[&JobView],
    nodes: &[NodeView],
) -> Vec<Result<Vec<i64>, PolicyError>> {
    let together = (CALLS_MAX / nodes.len().max(1)).max(1);
    jobs.chunks(together).flat_map(|jobs| score_some(policies, jobs, nodes)).collect()
}

fn score_some(
    policies: &impl Caller,
    jobs: &[&JobView],
    nodes: &[NodeView],
) -> Vec<Result<Vec<i64>, PolicyError>> {
    let jobs_seen = jobs.iter().map(|job| views::job(job)).collect();
    let calls = Calls::of_pairs(jobs_seen, nodes.iter().map(views::node).collect());
    let mut all = vec![Ok(vec![0; nodes.len()]); jobs.len()];
    for file in policies.files_with(Hook::Score.word()) {
        let mut said = policies.call_each(&file, Hook::Score.word(), &calls).into_iter();
        // Each takes its whole row, even where a call of it failed.
        let rows = jobs.iter().map(|_| Ok(said.by_ref().take(nodes.len()).collect::<Vec<_>>())).collect();
        join(&mut all, rows, |mut costs, row| {
            for (cost, answer) in costs.iter_mut().zip(row) {
                *cost += reading::cost_milli(&file, answer?)?.clamp(-COST_MILLI_MAX, COST_MILLI_MAX);
            }
            Ok(costs)
        });
    }
    let bounded = |cost: i64| cost.clamp(-COST_MILLI_MAX, COST_MILLI_MAX);
    all.into_iter().map(|costs| Ok(costs?.into_iter().map(bounded).collect())).collect()
}

/// Those who may be displaced for a job: whom every file lets go.
pub fn victims(
    policies: &impl Caller,
    job: &JobView,
    candidates: &[CandidateView],
) -> Result<BTreeSet<JobId>, PolicyError> {
    let shown = Plain::List(candidates.iter().map(views::candidate).collect());
    let calls = Calls::one(vec![views::job(job), shown]);
    let mut may: BTreeSet<JobId> = candidates.iter().map(|candidate| candidate.id).collect();
    let all = may.clone();
    for file in policies.files_with(Hook::Victims.word()) {
        let answer = only(policies.call_each(&file, Hook::Victims.word(), &calls))?;
        if let Some(named) = reading::victims(&file, answer, &all)? {
            may.retain(|candidate| named.contains(candidate));
        }
    }
    Ok(may)
}

/// Whether a job starts again after a failure: any no, else the longest wait.
pub fn retry(policies: &impl Caller, job: &JobView, failure: &FailureView) -> Result<Retry, PolicyError> {
    let calls = Calls::one(vec![views::job(job), views::failure(failure)]);
    let mut all = Retry::AsAsked;
    for file in policies.files_with(Hook::Retry.word()) {
        let answer = only(policies.call_each(&file, Hook::Retry.word(), &calls))?;
        all = all.and(reading::retry(&file, answer)?);
    }
    Ok(all)
}

/// The most that each GPU of a job may draw, in milliwatts: the least that any file says.
pub fn power(policies: &impl Caller, job: &JobView) -> Result<Option<u64>, PolicyError> {
    only(power_each(policies, &[job]))
}

/// The same of many jobs at once.
pub fn power_each(policies: &impl Caller, jobs: &[&JobView]) -> Vec<Result<Option<u64>, PolicyError>> {
    let calls = Calls::of_rows(jobs.iter().map(|job| [views::job(job)]));
    let mut all: Vec<Result<Option<u64>, PolicyError>> = vec![Ok(None); jobs.len()];
    for file in policies.files_with(Hook::Power.word()) {
        let said = policies.call_each(&file, Hook::Power.word(), &calls);
        join(&mut all, said, |least, answer| {
            Ok(least.into_iter().chain(reading::milliwatts(&file, answer)?).min())
        });
    }
    all
}

/// The most that a tenant may hold together with all below it: the least of each that any file says.
pub fn limit(
    policies: &impl Caller,
    tenant: &TenantView,
    cluster: &ClusterView,
) -> Result<GpuLimit, PolicyError> {
    only(limit_each(policies, &[(tenant, cluster)]))
}

/// The same of many tenants at once.
pub fn limit_each(
    policies: &impl Caller,
    tenants: &[(&TenantView, &ClusterView)],
) -> Vec<Result<GpuLimit, PolicyError>> {
    let row =
        |(tenant, cluster): &(&TenantView, &ClusterView)| [views::tenant(tenant), views::cluster(cluster)];
    let calls = Calls::of_rows(tenants.iter().map(row));
    let mut all = vec![Ok(GpuLimit::default()); tenants.len()];
    for file in policies.files_with(Hook::Limit.word()) {
        let said = policies.call_each(&file, Hook::Limit.word(), &calls);
        join(&mut all, said, |least, answer| Ok(least.and(reading::limit(&file, answer)?)));
    }
    all
}

fn only<T>(said: Vec<Result<T, PolicyError>>) -> Result<T, PolicyError> {
    let nobody = || PolicyError::Ended { what: "nobody answered".to_string() };
    said.into_iter().next().unwrap_or_else(|| Err(nobody()))
}

/// Put the answers of a file to those of the files before it. The first error of each stays.
fn join<T: Default, A>(
    all: &mut [Result<T, PolicyError>],
    said: Vec<Result<A, PolicyError>>,
    and: impl Fn(T, A) -> Result<T, PolicyError>,
) {
    for (sum, answer) in all.iter_mut().zip(said) {
        if let Ok(before) = sum {
            let before = std::mem::take(before);
            *sum = answer.and_then(|answer| and(before, answer));
        }
    }
}

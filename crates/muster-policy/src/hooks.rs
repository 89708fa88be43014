//! The six questions that policies answer, as typed functions.
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
    Admission, COST_MILLI_MAX, CandidateView, FailureView, Hook, JobView, NodeView, Retry, TenantView,
};

pub(crate) use reading::REFUSE;

use crate::error::PolicyError;
use crate::load::is_policy;
use crate::plain::Plain;
use crate::program::Program;

/// Who runs the functions of policies: a program in this process, or a process of its own.
pub trait Caller {
    /// The files that tell a function, in the order of their names.
    fn files_with(&self, function: &str) -> Vec<String>;

    /// Call a function of a file with each of these arguments, and say what each call answered.
    fn call_each(&self, file: &str, function: &str, calls: &[Vec<&Plain>])
    -> Vec<Result<Plain, PolicyError>>;
}

impl Caller for Program {
    fn files_with(&self, function: &str) -> Vec<String> {
        let files = Program::files_with(self, function).into_iter();
        // What a test tells answers nobody, even where a policy loads it.
        files.filter(|file| is_policy(file)).map(str::to_string).collect()
    }

    fn call_each(
        &self,
        file: &str,
        function: &str,
        calls: &[Vec<&Plain>],
    ) -> Vec<Result<Plain, PolicyError>> {
        Program::call_each(self, file, function, calls)
    }
}

impl<C: Caller + ?Sized> Caller for &C {
    fn files_with(&self, function: &str) -> Vec<String> {
        (**self).files_with(function)
    }

    fn call_each(
        &self,
        file: &str,
        function: &str,
        calls: &[Vec<&Plain>],
    ) -> Vec<Result<Plain, PolicyError>> {
        (**self).call_each(file, function, calls)
    }
}

/// Whether a job may be accepted, and may start now: the strictest answer.
pub fn admit(policies: &impl Caller, job: &JobView) -> Result<Admission, PolicyError> {
    admit_each(policies, std::slice::from_ref(job)).pop().unwrap_or(Ok(Admission::Yes))
}

/// The same of many jobs at once: one call for each file, which matters where another process answers.
pub fn admit_each(policies: &impl Caller, jobs: &[JobView]) -> Vec<Result<Admission, PolicyError>> {
    let records: Vec<Plain> = jobs.iter().map(views::job).collect();
    let calls: Vec<Vec<&Plain>> = records.iter().map(|record| vec![record]).collect();
    let mut all = vec![Ok(Admission::Yes); jobs.len()];
    for file in policies.files_with(Hook::Admit.word()) {
        let said = policies.call_each(&file, Hook::Admit.word(), &calls);
        for (sum, answer) in all.iter_mut().zip(said) {
            let read = answer.and_then(|answer| reading::admission(&file, answer));
            join(sum, read, Admission::and);
        }
    }
    all
}

/// The priority a job is ordered by, where that is another than it asked for. Each file sees what the one before left.
pub fn priority(
    policies: &impl Caller,
    job: &JobView,
    tenant: &TenantView,
) -> Result<Option<u32>, PolicyError> {
    let asked = job.priority;
    let mut job = job.clone();
    let tenant = views::tenant(tenant);
    for file in policies.files_with(Hook::Priority.word()) {
        let answer = ask(policies, &file, Hook::Priority, &[&views::job(&job), &tenant])?;
        job.priority = reading::priority(&file, answer)?.unwrap_or(job.priority);
    }
    Ok(Some(job.priority).filter(|priority| *priority != asked))
}

/// How unwelcome a job is on each of these nodes, in thousandths of a device; less than nothing where it is welcome.
pub fn score(policies: &impl Caller, job: &JobView, nodes: &[NodeView]) -> Result<Vec<i64>, PolicyError> {
    let job = views::job(job);
    let nodes: Vec<Plain> = nodes.iter().map(views::node).collect();
    let calls: Vec<Vec<&Plain>> = nodes.iter().map(|node| vec![&job, node]).collect();
    let mut costs = vec![0; nodes.len()];
    for file in policies.files_with(Hook::Score.word()) {
        for (cost, answer) in costs.iter_mut().zip(policies.call_each(&file, Hook::Score.word(), &calls)) {
            *cost += reading::cost_milli(&file, answer?)?.clamp(-COST_MILLI_MAX, COST_MILLI_MAX);
        }
    }
    Ok(costs.into_iter().map(|cost| cost.clamp(-COST_MILLI_MAX, COST_MILLI_MAX)).collect())
}

/// Those who may be displaced for a job: whom every file lets go.
pub fn victims(
    policies: &impl Caller,
    job: &JobView,
    candidates: &[CandidateView],
) -> Result<BTreeSet<JobId>, PolicyError> {
    let job = views::job(job);
    let shown = Plain::List(candidates.iter().map(views::candidate).collect());
    let mut may: BTreeSet<JobId> = candidates.iter().map(|candidate| candidate.id).collect();
    let all = may.clone();
    for file in policies.files_with(Hook::Victims.word()) {
        let answer = ask(policies, &file, Hook::Victims, &[&job, &shown])?;
        if let Some(named) = reading::victims(&file, answer, &all)? {
            may.retain(|candidate| named.contains(candidate));
        }
    }
    Ok(may)
}

/// Whether a job starts again after a failure: any no, else the longest wait.
pub fn retry(policies: &impl Caller, job: &JobView, failure: &FailureView) -> Result<Retry, PolicyError> {
    let (job, failure) = (views::job(job), views::failure(failure));
    let mut all = Retry::AsAsked;
    for file in policies.files_with(Hook::Retry.word()) {
        let answer = ask(policies, &file, Hook::Retry, &[&job, &failure])?;
        all = all.and(reading::retry(&file, answer)?);
    }
    Ok(all)
}

/// The most that each GPU of a job may draw, in milliwatts: the least that any file says.
pub fn power(policies: &impl Caller, job: &JobView) -> Result<Option<u64>, PolicyError> {
    let job = views::job(job);
    let mut least: Option<u64> = None;
    for file in policies.files_with(Hook::Power.word()) {
        let said = reading::milliwatts(&file, ask(policies, &file, Hook::Power, &[&job])?)?;
        least = least.into_iter().chain(said).min();
    }
    Ok(least)
}

fn ask(policies: &impl Caller, file: &str, hook: Hook, args: &[&Plain]) -> Result<Plain, PolicyError> {
    let said = policies.call_each(file, hook.word(), &[args.to_vec()]).pop();
    said.unwrap_or_else(|| {
        Err(PolicyError::Somewhere { file: file.to_string(), what: "nobody answered".to_string() })
    })
}

/// Put an answer to those before it. The first error stays.
fn join<T: Default>(sum: &mut Result<T, PolicyError>, answer: Result<T, PolicyError>, and: fn(T, T) -> T) {
    if let Ok(before) = sum {
        let before = std::mem::take(before);
        *sum = answer.map(|answer| and(before, answer));
    }
}

//! Port: those who run policies. And what is asked of them before jobs start.
//!
//! Policies are asked about buckets of jobs and kinds of nodes, by the planner's thread, before a round needs the answer.
//! What they say goes to the engine as a command and comes back with the journal: the planner itself runs nothing, and a
//! plan is made again from the journal alone. A policy that fails is loud: its jobs say so when they are asked why they
//! wait, the log has it, and the metrics count it.

mod counted;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use muster_core::capacity::Kind;
use muster_core::plan::Plan;
use muster_core::policy::{
    Admission, Answer, Answered, Bundle, CandidateView, FailureView, Hook, JobView, Moment, NodeView,
    Retried, Retry, Scope, TenantView, Version,
};
use muster_core::queue::Bucket;
use muster_core::settings::PolicyFailure;
use muster_core::{Command, Job, JobId, JobSpec, NodeId, State, Timestamp};
use tracing::warn;

pub use counted::{Counted, Heard, Questions};

/// Answers are asked for anew after this long: the hour changes, and so does what tenants hold.
const ASK_AGAIN: Duration = Duration::from_secs(30);
/// Those about whom a policy failed sooner: it may have been the moment.
const TRY_AGAIN: Duration = Duration::from_secs(3);
/// Buckets that are asked about in one round; the others are in the next.
const BUCKETS_MAX: usize = 1_000;

/// Those who run policies.
pub trait Interpreter: Send + Sync {
    /// Compile files, by name, for whom they would speak. Every error says where and what.
    fn compile(&self, scope: &Scope, files: BTreeMap<String, String>) -> Result<Bundle, Vec<String>>;

    /// Whether a job may be accepted and start now.
    fn admit(&self, version: &Version, job: &JobView) -> Result<Admission, String>;

    /// Which priority it is ordered by, where that is another than it asked for.
    fn priority(&self, version: &Version, job: &JobView, tenant: &TenantView) -> Result<Option<u32>, String>;

    /// How unwelcome it is on each of these nodes, in thousandths of a device.
    fn score(&self, version: &Version, job: &JobView, nodes: &[NodeView]) -> Result<Vec<i64>, String>;

    /// Which of those who run may be displaced for it.
    fn victims(
        &self,
        version: &Version,
        job: &JobView,
        candidates: &[CandidateView],
    ) -> Result<BTreeSet<JobId>, String>;

    /// Whether it starts again after a failure.
    fn retry(&self, version: &Version, job: &JobView, failure: &FailureView) -> Result<Retry, String>;

    /// The most that each of its GPUs may draw, in milliwatts.
    fn power(&self, version: &Version, job: &JobView) -> Result<Option<u64>, String>;
}

/// A job that is not accepted yet, and those who are asked about it. It is made from the state and asked without it:
/// while a policy thinks, nobody waits for the state.
pub struct Applicant {
    job: JobView,
    asked: Vec<Arc<Version>>,
}

impl Applicant {
    /// One that somebody has to be asked about; nothing where nobody does.
    pub fn of(state: &State, spec: &JobSpec, now: Timestamp) -> Option<Applicant> {
        let asked: Vec<_> = state.policies.asked(Hook::Admit, &spec.tenant).cloned().collect();
        let bucket = Bucket::of_spec(spec, None, &state.policies);
        let job = JobView::of(&bucket, Moment::of(now, state.settings.utc_offset_minutes));
        (!asked.is_empty()).then_some(Applicant { job, asked })
    }

    /// Whether policies refuse it, and in which words.
    pub fn refused(&self, interpreter: &dyn Interpreter) -> Option<String> {
        match admission(interpreter, self.asked.iter(), &self.job, &mut None) {
            Admission::Refuse { why } => Some(why),
            Admission::Yes | Admission::Wait { .. } => None,
        }
    }
}

/// What all of these say of a job: the strictest.
fn admission<'a>(
    interpreter: &dyn Interpreter,
    asked: impl Iterator<Item = &'a Arc<Version>>,
    job: &JobView,
    failed: &mut Option<String>,
) -> Admission {
    let said = asked.filter_map(|version| heard(interpreter.admit(version, job), version, failed));
    said.fold(Admission::Yes, Admission::and)
}

/// Asks what is not known, and what was known for long.
pub struct Asker {
    interpreter: Arc<dyn Interpreter>,
    /// When everyone was asked about last.
    asked_at: Option<Duration>,
    /// When those were asked about again about whom a policy failed.
    tried_at: Option<Duration>,
}

impl Asker {
    /// One that has asked nothing.
    pub fn new(interpreter: Arc<dyn Interpreter>) -> Asker {
        Asker { interpreter, asked_at: None, tried_at: None }
    }

    /// Whether policies refuse a job that is not accepted yet, and in which words.
    pub fn refuses(&self, state: &State, spec: &JobSpec, now: Timestamp) -> Option<String> {
        Applicant::of(state, spec, now)?.refused(&*self.interpreter)
    }

    /// What is to be put on record before the next round: answers that are missing, for those who wait and for those
    /// whom a plan would displace, and those that have changed.
    pub fn news(
        &mut self,
        state: &State,
        plan: &Plan,
        (now, elapsed): (Timestamp, Duration),
    ) -> Option<Command> {
        if !Hook::ALL.into_iter().any(|hook| is_answered(state, hook)) {
            return None;
        }
        let due = |at: Option<Duration>, after| at.is_none_or(|at| elapsed.saturating_sub(at) >= after);
        let (again, try_again) = (due(self.asked_at, ASK_AGAIN), due(self.tried_at, TRY_AGAIN));
        let asking = Asking { interpreter: &*self.interpreter, state, now };
        let nodes = nodes_by_kind(state);
        let mut answers = Vec::new();
        let mut left_out = false;
        for (bucket, places) in state.queue.buckets() {
            let Some((_, job)) = places.first() else { continue };
            let known = state.policies.answers.of(bucket);
            let lacks =
                |known: &Answer| asking.lacks(bucket, known, &nodes) || (try_again && known.failed.is_some());
            let wanted = again || known.is_none_or(lacks);
            if !wanted || !asking.is_concerned(bucket) {
                continue;
            }
            if answers.len() >= BUCKETS_MAX {
                left_out = true;
                break;
            }
            let answered = asking.answered(bucket, *job, &nodes);
            answers.extend(known.is_none_or(|known| differs(known, &answered, &nodes)).then_some(answered));
        }
        answers.extend(asking.about_victims_again(|known| again || (try_again && known.failed.is_some())));
        answers.extend(plan.claims.iter().filter_map(|room| asking.about_victims(room.job, &room.victims)));
        let retries = asking.about_failures(try_again);
        if again && !left_out {
            self.asked_at = Some(elapsed);
        }
        if try_again {
            self.tried_at = Some(elapsed);
        }
        let bundles = state.policies.in_force().iter().map(|version| version.bundle.hash.clone()).collect();
        let said = !answers.is_empty() || !retries.is_empty();
        said.then_some(Command::NoteAnswers { bundles, answers, retries })
    }
}

/// Whether some bundle in force answers a question.
fn is_answered(state: &State, hook: Hook) -> bool {
    state.policies.in_force().iter().any(|version| version.bundle.hooks.contains(&hook))
}

/// A node of each kind.
fn nodes_by_kind(state: &State) -> BTreeMap<Arc<Kind>, NodeId> {
    let mut nodes = BTreeMap::new();
    if is_answered(state, Hook::Score) {
        for node in state.nodes.keys() {
            if let Some(filed) = state.capacity.filed(node) {
                nodes.entry(filed.kind.clone()).or_insert_with(|| node.clone());
            }
        }
    }
    nodes
}

/// Whether an answer says something else than what is known.
fn differs(known: &Answer, answered: &Answered, nodes: &BTreeMap<Arc<Kind>, NodeId>) -> bool {
    let cost = |node: &NodeId| answered.costs.iter().find(|(one, _)| one == node).map(|(_, cost)| *cost);
    let costs = nodes.iter().any(|(kind, node)| known.costs.get(kind).copied() != cost(node));
    known.admission != answered.admission
        || known.priority != answered.priority
        || known.gpu_milliwatts != answered.gpu_milliwatts
        || known.failed != answered.failed
        || costs
}

/// One who asks about a state.
struct Asking<'a> {
    interpreter: &'a dyn Interpreter,
    state: &'a State,
    now: Timestamp,
}

impl Asking<'_> {
    /// Whether anything is to be asked about a bucket.
    fn is_concerned(&self, bucket: &Bucket) -> bool {
        Hook::OF_BUCKETS.into_iter().any(|hook| self.state.policies.asks(hook, &bucket.tenant))
    }

    /// Whether kinds of nodes are there of which nothing was answered.
    fn lacks(&self, bucket: &Bucket, known: &Answer, nodes: &BTreeMap<Arc<Kind>, NodeId>) -> bool {
        self.state.policies.asks(Hook::Score, &bucket.tenant)
            && nodes.keys().any(|kind| !known.costs.contains_key(kind))
    }

    fn view(&self, bucket: &Bucket) -> JobView {
        JobView::of(bucket, Moment::of(self.now, self.state.settings.utc_offset_minutes))
    }

    fn answered(&self, bucket: &Bucket, job: JobId, nodes: &BTreeMap<Arc<Kind>, NodeId>) -> Answered {
        let mut failed = None;
        let admission = self.admission(bucket, &mut failed);
        let priority = self.priority(bucket, &mut failed);
        let costs = self.costs(bucket, nodes, &mut failed);
        let gpu_milliwatts = self.power(bucket, &mut failed);
        let admission = match (&failed, self.state.settings.policy_failure) {
            (Some(what), PolicyFailure::Closed) => {
                admission.and(Admission::Wait { why: format!("a policy failed: {what}") })
            }
            _ => admission,
        };
        Answered { admission, priority, gpu_milliwatts, costs, failed, ..Answered::of(job, bucket) }
    }

    fn admission(&self, bucket: &Bucket, failed: &mut Option<String>) -> Admission {
        let asked = self.state.policies.asked(Hook::Admit, &bucket.tenant);
        admission(self.interpreter, asked, &self.view(bucket), failed)
    }

    /// Each bundle sees what the one before it left. That of a tenant can only ask for less.
    fn priority(&self, bucket: &Bucket, failed: &mut Option<String>) -> Option<u32> {
        let tenant = TenantView::of(self.state.tenants.get(&bucket.tenant)?);
        let mut job = self.view(bucket);
        for version in self.state.policies.asked(Hook::Priority, &bucket.tenant) {
            let said = self.interpreter.priority(version, &job, &tenant);
            if let Some(Some(priority)) = heard(said, version, failed) {
                let most = if version.scope == Scope::Cluster { priority } else { job.priority };
                job.priority = priority.min(most);
            }
        }
        (job.priority != bucket.priority).then_some(job.priority)
    }

    fn costs(
        &self,
        bucket: &Bucket,
        nodes: &BTreeMap<Arc<Kind>, NodeId>,
        failed: &mut Option<String>,
    ) -> Vec<(NodeId, i64)> {
        let views: Vec<NodeView> = nodes.iter().map(|(kind, node)| NodeView::of(node, kind)).collect();
        let mut costs: Vec<(NodeId, i64)> = nodes.values().map(|node| (node.clone(), 0)).collect();
        let job = self.view(bucket);
        for version in self.state.policies.asked(Hook::Score, &bucket.tenant) {
            let said = self.interpreter.score(version, &job, &views);
            for ((_, sum), cost) in costs.iter_mut().zip(heard(said, version, failed).unwrap_or_default()) {
                *sum = sum.saturating_add(cost);
            }
        }
        costs
    }

    /// The least that any bundle says.
    fn power(&self, bucket: &Bucket, failed: &mut Option<String>) -> Option<u64> {
        let job = self.view(bucket);
        let asked = self.state.policies.asked(Hook::Power, &bucket.tenant);
        let said = asked.filter_map(|version| heard(self.interpreter.power(version, &job), version, failed));
        said.flatten().min()
    }

    /// Whether those start again who failed, where that was not asked yet.
    fn about_failures(&self, try_again: bool) -> Vec<Retried> {
        let failures = self.state.policies.failures.iter();
        let due = failures.filter(|(_, failure)| failure.failed.is_none() || try_again);
        due.filter_map(|(job, _)| self.retried(self.state.jobs.get(job)?)).take(BUCKETS_MAX).collect()
    }

    fn retried(&self, job: &Job) -> Option<Retried> {
        let failure = self.state.failure_of(job.id)?;
        let (view, mut failed) = (self.view(&self.state.bucket(job)), None);
        let mut retry = Retry::AsAsked;
        for version in self.state.policies.asked(Hook::Retry, &job.spec.tenant) {
            let said = self.interpreter.retry(version, &view, &failure.seen);
            retry = retry.and(heard(said, version, &mut failed).unwrap_or_default());
        }
        let unknown = failed.is_some() && self.state.settings.policy_failure == PolicyFailure::Closed;
        let is_no = matches!(retry, Retry::No { .. });
        let retry = (!unknown || is_no).then_some(retry);
        Some(Retried { job: job.id, attempt: failure.seen.attempt, retry, failed })
    }

    /// Whether those whom a plan would displace may be, where that was not asked yet.
    fn about_victims(&self, job: JobId, victims: &[JobId]) -> Option<Answered> {
        let bucket = self.state.bucket(self.state.jobs.get(&job)?);
        let known = self.state.policies.answers.of(&bucket).cloned().unwrap_or_default();
        let unasked = victims.iter().filter(|victim| !known.victims.contains_key(victim)).copied();
        self.of_victims((job, &bucket), &known, known.failed.clone(), unasked)
    }

    /// What was answered about victims long ago, where it is another by now: they have run on.
    fn about_victims_again(&self, is_due: impl Fn(&Answer) -> bool) -> Vec<Answered> {
        let again = |(bucket, known): (&Bucket, &Answer)| {
            let job = self.state.queue.bucket(bucket)?.first()?.1;
            let answered = self.of_victims((job, bucket), known, None, known.victims.keys().copied())?;
            let differs = |(job, may): &(JobId, bool)| known.victims.get(job) != Some(may);
            answered.victims.iter().any(differs).then_some(answered)
        };
        let due = self.state.policies.answers.iter().filter(|(_, known)| is_due(known));
        due.filter_map(again).collect()
    }

    fn of_victims(
        &self,
        (job, bucket): (JobId, &Bucket),
        known: &Answer,
        mut failed: Option<String>,
        victims: impl Iterator<Item = JobId>,
    ) -> Option<Answered> {
        let victims = victims.filter_map(|victim| self.state.jobs.get(&victim));
        let candidates: Vec<CandidateView> =
            victims.filter_map(|victim| CandidateView::of(victim, self.now)).collect();
        let mut asked = self.state.policies.asked(Hook::Victims, &bucket.tenant).peekable();
        if candidates.is_empty() || asked.peek().is_none() {
            return None;
        }
        let view = self.view(bucket);
        let mut may_go: BTreeSet<JobId> = candidates.iter().map(|candidate| candidate.id).collect();
        for version in asked {
            let shown: Vec<CandidateView> =
                candidates.iter().map(|candidate| candidate.shown_to(&version.scope)).collect();
            let said = self.interpreter.victims(version, &view, &shown);
            match (heard(said, version, &mut failed), self.state.settings.policy_failure) {
                (Some(said), _) => may_go = may_go.intersection(&said).copied().collect(),
                (None, PolicyFailure::Closed) => may_go.clear(),
                (None, PolicyFailure::Open) => {}
            }
        }
        let victims = candidates.iter().map(|one| (one.id, may_go.contains(&one.id))).collect();
        let (admission, priority, gpu_milliwatts) =
            (known.admission.clone(), known.priority, known.gpu_milliwatts);
        Some(Answered { admission, priority, gpu_milliwatts, victims, failed, ..Answered::of(job, bucket) })
    }
}

/// What was said; a failure is noted and told.
fn heard<T>(said: Result<T, String>, version: &Version, failed: &mut Option<String>) -> Option<T> {
    match said {
        Ok(said) => Some(said),
        Err(what) => {
            warn!(version = version.number, scope = %version.scope, %what, "a policy failed");
            failed.get_or_insert(what);
            None
        }
    }
}

#[cfg(test)]
mod tests;

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
    Admission, Answer, Answered, Bundle, CandidateView, ClusterView, FailureView, GpuLimit, Hook, JobView,
    Limited, Moment, NodeView, Retried, Retry, Scope, TenantView, Version,
};
use muster_core::queue::Bucket;
use muster_core::settings::PolicyFailure;
use muster_core::{Command, Job, JobId, JobSpec, NodeId, State, TenantId, Timestamp};
use tracing::warn;

pub use counted::{Counted, Heard, Questions};

/// Answers are asked for anew after this long: the hour changes, and so does what tenants hold.
const ASK_AGAIN: Duration = Duration::from_secs(30);
/// Those about whom a policy failed sooner: it may have been the moment.
const TRY_AGAIN: Duration = Duration::from_secs(3);
/// Buckets that are asked about at once.
const BUCKETS_TOGETHER: usize = 250;
/// After so many that have news, the others are asked about in the next round.
const BUCKETS_MAX: usize = 1_000;

/// Those who run policies.
pub trait Interpreter: Send + Sync {
    /// Compile files, by name, for whom they would speak. Every error says where and what.
    fn compile(&self, scope: &Scope, files: BTreeMap<String, String>) -> Result<Bundle, Vec<String>>;

    /// The tests among these files that fail, each in a line.
    fn failing_tests(&self, _: &Scope, _: &BTreeMap<String, String>) -> Result<Vec<String>, String> {
        Ok(Vec::new())
    }

    /// Why a version is suspended, if it is: it is not asked, and every question to it fails.
    fn suspended(&self, _: &Version) -> Option<String> {
        None
    }

    /// How long a submission waits for `admit`. A policy that takes longer is heard before the job starts instead.
    fn admission_wait(&self) -> Duration {
        Duration::from_secs(1)
    }

    /// Whether each of these jobs may be accepted and start now.
    fn admit(&self, version: &Version, jobs: &[&JobView]) -> Vec<Result<Admission, String>>;

    /// Which priority each is ordered by, where that is another than it asked for.
    fn priority(
        &self,
        version: &Version,
        jobs: &[(&JobView, &TenantView)],
    ) -> Vec<Result<Option<u32>, String>>;

    /// How unwelcome each is on each of these nodes, in thousandths of a device.
    fn score(
        &self,
        version: &Version,
        jobs: &[&JobView],
        nodes: &[NodeView],
    ) -> Vec<Result<Vec<i64>, String>>;

    /// The most that each GPU of each job may draw, in milliwatts.
    fn power(&self, version: &Version, jobs: &[&JobView]) -> Vec<Result<Option<u64>, String>>;

    /// Which of those who run may be displaced for a job.
    fn victims(
        &self,
        version: &Version,
        job: &JobView,
        candidates: &[CandidateView],
    ) -> Result<BTreeSet<JobId>, String>;

    /// The most GPUs that each of these tenants may hold.
    fn limit(
        &self,
        version: &Version,
        tenants: &[(&TenantView, &ClusterView)],
    ) -> Vec<Result<GpuLimit, String>>;

    /// Whether it starts again after a failure.
    fn retry(&self, version: &Version, job: &JobView, failure: &FailureView) -> Result<Retry, String>;
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
        let admit = |version: &Arc<Version>| interpreter.admit(version, &[&self.job]).pop();
        let said = self.asked.iter().filter_map(|version| heard(admit(version)?, version, &mut None));
        match said.fold(Admission::Yes, Admission::and) {
            Admission::Refuse { why } => Some(why),
            Admission::Yes | Admission::Wait { .. } => None,
        }
    }
}

/// What policies say of the limits of a tenant and all above it, where nobody of theirs waits and they were not asked yet.
pub fn unknown_limits(
    state: &State,
    tenant: &TenantId,
    interpreter: &dyn Interpreter,
    now: Timestamp,
) -> Vec<Limited> {
    if state.knows_limits(tenant) {
        return Vec::new();
    }
    let asking = Asking { interpreter, state, now };
    let asked = state.lineage(tenant).map(|one| &one.id);
    let asked = asked.filter(|one| state.policies.asks(Hook::Limit, one) && asking.knows_no_limit(one));
    asking.limits_of(&asked.collect::<Vec<_>>(), &ClusterView::of(state, now))
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
        for some in asking.wanted(&nodes, again, try_again).chunks(BUCKETS_TOGETHER) {
            left_out = answers.len() >= BUCKETS_MAX;
            if left_out {
                break;
            }
            answers.extend(asking.news_of(some, &nodes));
        }
        answers.extend(asking.about_victims_again(|known| again || (try_again && known.failed.is_some())));
        answers.extend(plan.claims.iter().filter_map(|room| asking.about_victims(room.job, &room.victims)));
        let limits = asking.about_limits(again, try_again);
        let retries = asking.about_failures(try_again);
        if again && !left_out {
            self.asked_at = Some(elapsed);
        }
        if try_again {
            self.tried_at = Some(elapsed);
        }
        let bundles = state.policies.in_force().iter().map(|version| version.bundle.hash.clone()).collect();
        let said = !answers.is_empty() || !limits.is_empty() || !retries.is_empty();
        said.then_some(Command::NoteAnswers { bundles, answers, limits, retries })
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
        let kinds = state.capacity.kinds().count();
        for (node, filed) in state.capacity.nodes() {
            nodes.entry(filed.kind.clone()).or_insert_with(|| node.clone());
            if nodes.len() == kinds {
                break;
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

    /// Those of whom something is not known, each with its first job: of whom nothing was answered yet, or long ago, or
    /// not of all kinds of nodes, or where a policy failed.
    fn wanted(
        &self,
        nodes: &BTreeMap<Arc<Kind>, NodeId>,
        again: bool,
        try_again: bool,
    ) -> Vec<(&Bucket, JobId)> {
        let wants = |bucket: &Bucket| {
            let known = self.state.policies.answers.of(bucket);
            let lacks =
                |known: &Answer| self.lacks(bucket, known, nodes) || (try_again && known.failed.is_some());
            (again || known.is_none_or(lacks)) && self.is_concerned(bucket)
        };
        let firsts =
            self.state.queue.buckets().filter_map(|(bucket, places)| Some((bucket, places.first()?.1)));
        firsts.filter(|(bucket, _)| wants(bucket)).collect()
    }

    /// What policies say of these buckets, where it is another than what is known.
    fn news_of(&self, some: &[(&Bucket, JobId)], nodes: &BTreeMap<Arc<Kind>, NodeId>) -> Vec<Answered> {
        let mut all: Vec<About<'_>> =
            some.iter().filter_map(|(bucket, job)| self.unheard(bucket, *job)).collect();
        self.hear_admissions(&mut all);
        self.hear_costs(&mut all, nodes);
        self.hear_caps(&mut all);
        self.hear_priorities(&mut all);
        let is_new = |bucket: &Bucket, answered: &Answered| {
            let known = self.state.policies.answers.of(bucket);
            known.is_none_or(|known| differs(known, answered, nodes))
        };
        let answered = all.into_iter().map(|about| (about.bucket, self.with_failure(about.answered)));
        answered.filter(|(bucket, answered)| is_new(bucket, answered)).map(|(_, answered)| answered).collect()
    }

    fn unheard<'b>(&self, bucket: &'b Bucket, job: JobId) -> Option<About<'b>> {
        let tenant = TenantView::of(self.state.tenants.get(&bucket.tenant)?);
        Some(About { bucket, tenant, view: self.view(bucket), answered: Answered::of(job, bucket) })
    }

    /// Where a policy failed its jobs wait, if so configured.
    fn with_failure(&self, answered: Answered) -> Answered {
        match (&answered.failed, self.state.settings.policy_failure) {
            (Some(what), PolicyFailure::Closed) => {
                let wait = Admission::Wait { why: format!("a policy failed: {what}") };
                Answered { admission: answered.admission.and(wait), ..answered }
            }
            _ => answered,
        }
    }

    /// The strictest of all.
    fn hear_admissions(&self, all: &mut [About]) {
        let ask = |version: &Version, some: &[&About]| self.interpreter.admit(version, &views(some));
        self.hear(Hook::Admit, all, ask, |about, _, said| {
            about.answered.admission = std::mem::take(&mut about.answered.admission).and(said);
        });
    }

    /// The sum of all.
    fn hear_costs(&self, all: &mut [About], nodes: &BTreeMap<Arc<Kind>, NodeId>) {
        let shown: Vec<NodeView> = nodes.iter().map(|(kind, node)| NodeView::of(node, kind)).collect();
        for about in all.iter_mut() {
            about.answered.costs = nodes.values().map(|node| (node.clone(), 0)).collect();
        }
        let ask = |version: &Version, some: &[&About]| self.interpreter.score(version, &views(some), &shown);
        self.hear(Hook::Score, all, ask, |about, _, said| {
            for ((_, sum), cost) in about.answered.costs.iter_mut().zip(said) {
                *sum = sum.saturating_add(cost);
            }
        });
    }

    /// The least of all.
    fn hear_caps(&self, all: &mut [About]) {
        let ask = |version: &Version, some: &[&About]| self.interpreter.power(version, &views(some));
        self.hear(Hook::Power, all, ask, |about, _, said| {
            about.answered.gpu_milliwatts = about.answered.gpu_milliwatts.into_iter().chain(said).min();
        });
    }

    /// Each bundle sees what the one before it left. That of a tenant can only ask for less.
    fn hear_priorities(&self, all: &mut [About]) {
        let ask = |version: &Version, some: &[&About]| {
            let pairs: Vec<_> = some.iter().map(|about| (&about.view, &about.tenant)).collect();
            self.interpreter.priority(version, &pairs)
        };
        self.hear(Hook::Priority, all, ask, |about, version, said| {
            let left = about.view.priority;
            let most = if version.scope == Scope::Cluster { u32::MAX } else { left };
            about.view.priority = said.unwrap_or(left).min(most);
            let is_other = about.view.priority != about.bucket.priority;
            about.answered.priority = is_other.then_some(about.view.priority);
        });
    }

    /// Put a question to every bundle that answers it, about all of whom it speaks, and take what it says of each.
    fn hear<T>(
        &self,
        hook: Hook,
        all: &mut [About],
        ask: impl Fn(&Version, &[&About]) -> Vec<Result<T, String>>,
        take: impl Fn(&mut About, &Version, T),
    ) {
        for version in self.state.policies.in_force() {
            let speaks_of = |about: &About| version.scope.speaks_of(&about.bucket.tenant);
            let concerned: Vec<&About> = all.iter().filter(|about| speaks_of(about)).collect();
            if concerned.is_empty() || !version.bundle.hooks.contains(&hook) {
                continue;
            }
            let said = ask(version, &concerned);
            for (one, said) in all.iter_mut().filter(|about| speaks_of(about)).zip(said) {
                if let Some(said) = heard(said, version, &mut one.answered.failed) {
                    take(one, version, said);
                }
            }
        }
    }

    fn knows_no_limit(&self, tenant: &TenantId) -> bool {
        !self.state.policies.limits.contains_key(tenant)
    }

    /// How much tenants may hold whose jobs wait, and all above them, where that is another than what is known.
    fn about_limits(&self, again: bool, try_again: bool) -> Vec<Limited> {
        let known = &self.state.policies.limits;
        let wants = |tenant: &&TenantId| {
            let is_due = |limited: &Limited| again || (try_again && limited.failed.is_some());
            known.get(tenant).is_none_or(is_due)
        };
        let wanted: Vec<&TenantId> = self.state.tenants_to_limit().into_iter().filter(wants).collect();
        if wanted.is_empty() {
            return Vec::new();
        }
        let cluster = ClusterView::of(self.state, self.now);
        let said = wanted.chunks(BUCKETS_TOGETHER).flat_map(|some| self.limits_of(some, &cluster));
        said.filter(|limited| known.get(&limited.tenant) != Some(limited)).collect()
    }

    /// How much these tenants may hold: the least that the bundles say that speak of each.
    fn limits_of(&self, tenants: &[&TenantId], cluster: &ClusterView) -> Vec<Limited> {
        let there = tenants.iter().filter_map(|tenant| self.state.tenants.get(tenant));
        let mut all: Vec<(TenantView, Limited)> =
            there.map(|tenant| (TenantView::of(tenant), Limited::of(tenant.id.clone()))).collect();
        for version in self.state.policies.in_force() {
            let speaks_of = |tenant: &TenantView| version.scope.speaks_of(&tenant.id);
            let concerned = all.iter().filter(|(tenant, _)| speaks_of(tenant));
            let concerned: Vec<_> = concerned.map(|(tenant, _)| (tenant, cluster)).collect();
            if concerned.is_empty() || !version.bundle.hooks.contains(&Hook::Limit) {
                continue;
            }
            let said = self.interpreter.limit(version, &concerned);
            for ((_, limited), said) in all.iter_mut().filter(|(tenant, _)| speaks_of(tenant)).zip(said) {
                if let Some(said) = heard(said, version, &mut limited.failed) {
                    limited.limit = std::mem::take(&mut limited.limit).and(said);
                }
            }
        }
        all.into_iter().map(|(_, limited)| self.blocked_by_failure(limited)).collect()
    }

    /// Where a policy failed nobody of the tenant or below it starts, if so configured.
    fn blocked_by_failure(&self, limited: Limited) -> Limited {
        let closed = self.state.settings.policy_failure == PolicyFailure::Closed;
        let failed = limited.failed.as_ref().filter(|_| closed);
        Limited { blocked: failed.map(|what| format!("a policy failed: {what}")), ..limited }
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

/// A bucket that is asked about, and what was heard of it.
struct About<'a> {
    bucket: &'a Bucket,
    /// Whose it is.
    tenant: TenantView,
    /// As policies see its jobs.
    view: JobView,
    answered: Answered,
}

fn views<'a>(some: &[&'a About]) -> Vec<&'a JobView> {
    some.iter().map(|about| &about.view).collect()
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

//! Port: those who run policies. And what is asked of them before jobs start.
//!
//! Policies are asked about buckets of jobs and kinds of nodes, by the planner's thread, before a round needs the answer.
//! What they say goes to the engine as a command and comes back with the journal: the planner itself runs nothing, and a
//! plan is made again from the journal alone. A policy that fails is loud: its jobs say so when they are asked why they
//! wait, the log has it, and the metrics count it.

mod metered;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use muster_core::facts::plan::Plan;
use muster_core::objects::job::Job;
use muster_core::objects::policy::{
    Admission, BundleVersion, FailureView, GpuLimit, Hook, JobAnswer, PolicyBundle, PolicyScope, Retry,
    RetryAnswer, TenantLimit,
};
use muster_core::objects::settings::PolicyFailure;
use muster_core::policy::{BucketAnswer, CandidateView, ClusterView, JobView, Moment, NodeView, TenantView};
use muster_core::queue::Bucket;
use muster_core::resources::Kind;
use muster_core::{Command, JobId, JobSpec, NodeId, State, TenantId, Timestamp};
use tracing::warn;

pub use metered::{MeteredInterpreter, PolicyCallTotals, PolicyCallMetrics};

/// Answers are asked for anew after this long: the hour changes, and so does what tenants hold.
const ANSWER_REFRESH_INTERVAL: Duration = Duration::from_secs(30);
/// Those about whom a policy failed sooner: it may have been the moment.
const FAILED_ANSWER_RETRY_INTERVAL: Duration = Duration::from_secs(3);
/// Buckets that are asked about at once.
const BUCKETS_PER_CALL: usize = 250;
/// After so many that have news, the others are asked about in the next round.
const ANSWERS_PER_ROUND_MAX: usize = 1_000;

/// Those who run policies.
pub trait Interpreter: Send + Sync {
    /// Compile files, by name, for whom they would speak. Every error says where and what.
    fn compile(
        &self,
        scope: &PolicyScope,
        files: BTreeMap<String, String>,
    ) -> Result<PolicyBundle, Vec<String>>;

    /// The tests among these files that fail, each in a line.
    fn failing_tests(&self, _: &PolicyScope, _: &BTreeMap<String, String>) -> Result<Vec<String>, String> {
        Ok(Vec::new())
    }

    /// Why a version is suspended, if it is: it is not asked, and every question to it fails.
    fn suspension_reason(&self, _: &BundleVersion) -> Option<String> {
        None
    }

    /// How long a submission waits for `admit`. A policy that takes longer is heard before the job starts instead.
    fn admission_timeout(&self) -> Duration {
        Duration::from_secs(1)
    }

    /// Whether each of these jobs may be accepted and start now.
    fn admit(&self, version: &BundleVersion, jobs: &[&JobView]) -> Vec<Result<Admission, String>>;

    /// Which priority each is ordered by, where that is another than it asked for.
    fn priority(
        &self,
        version: &BundleVersion,
        jobs: &[(&JobView, &TenantView)],
    ) -> Vec<Result<Option<u32>, String>>;

    /// How unwelcome each is on each of these nodes, in thousandths of a device.
    fn score(
        &self,
        version: &BundleVersion,
        jobs: &[&JobView],
        nodes: &[NodeView],
    ) -> Vec<Result<Vec<i64>, String>>;

    /// The most that each GPU of each job may draw, in milliwatts.
    fn power(&self, version: &BundleVersion, jobs: &[&JobView]) -> Vec<Result<Option<u64>, String>>;

    /// Which of those who run may be displaced for a job.
    fn victims(
        &self,
        version: &BundleVersion,
        job: &JobView,
        candidates: &[CandidateView],
    ) -> Result<BTreeSet<JobId>, String>;

    /// The most GPUs that each of these tenants may hold.
    fn limit(
        &self,
        version: &BundleVersion,
        tenants: &[(&TenantView, &ClusterView)],
    ) -> Vec<Result<GpuLimit, String>>;

    /// Whether it starts again after a failure.
    fn retry(&self, version: &BundleVersion, job: &JobView, failure: &FailureView) -> Result<Retry, String>;
}

/// A job that is not accepted yet, and those who are asked about it. It is made from the state and asked without it:
/// while a policy thinks, nobody waits for the state.
pub struct AdmissionCheck {
    job: JobView,
    versions: Vec<Arc<BundleVersion>>,
}

impl AdmissionCheck {
    /// One that somebody has to be asked about; nothing where nobody does.
    pub fn for_spec(state: &State, spec: &JobSpec, now: Timestamp) -> Option<AdmissionCheck> {
        let asked: Vec<_> = state.policies.bundles_answering(Hook::Admit, &spec.tenant).cloned().collect();
        let bucket = Bucket::of_spec(spec, None, &state.policies.bucket_criteria);
        let job = JobView::of(&bucket, Moment::of(now, state.settings.utc_offset_minutes));
        (!asked.is_empty()).then_some(AdmissionCheck { job, versions: asked })
    }

    /// Whether policies refuse it, and in which words.
    pub fn refusal(&self, interpreter: &dyn Interpreter) -> Option<String> {
        let admit = |version: &Arc<BundleVersion>| interpreter.admit(version, &[&self.job]).pop();
        let said = self.versions.iter().filter_map(|version| answer_or_record_failure(admit(version)?, version, &mut None));
        match said.fold(Admission::Yes, Admission::and) {
            Admission::Refuse { why } => Some(why),
            Admission::Yes | Admission::Wait { .. } => None,
        }
    }
}

/// What policies say of the limits of a tenant and all above it, where nobody of theirs waits and they were not asked yet.
pub fn query_missing_limits(
    state: &State,
    tenant: &TenantId,
    interpreter: &dyn Interpreter,
    now: Timestamp,
) -> Vec<TenantLimit> {
    if state.knows_limits(tenant) {
        return Vec::new();
    }
    let asking = QueryContext { interpreter, state, now };
    let asked = state.lineage(tenant).map(|one| &one.id);
    let asked = asked.filter(|one| state.policies.answers_hook(Hook::Limit, one) && asking.lacks_limit(one));
    asking.query_limits(&asked.collect::<Vec<_>>(), &state.cluster_view(now))
}

/// Asks what is not known, and what was known for long.
pub struct PolicyQuerier {
    interpreter: Arc<dyn Interpreter>,
    /// When everyone was asked about last.
    refreshed_at: Option<Duration>,
    /// When those were asked about again about whom a policy failed.
    failed_retried_at: Option<Duration>,
}

impl PolicyQuerier {
    /// One that has asked nothing.
    pub fn new(interpreter: Arc<dyn Interpreter>) -> PolicyQuerier {
        PolicyQuerier { interpreter, refreshed_at: None, failed_retried_at: None }
    }

    /// Whether policies refuse a job that is not accepted yet, and in which words.
    pub fn admission_refusal(&self, state: &State, spec: &JobSpec, now: Timestamp) -> Option<String> {
        AdmissionCheck::for_spec(state, spec, now)?.refusal(&*self.interpreter)
    }

    /// What is to be put on record before the next round: answers that are missing, for those who wait and for those
    /// whom a plan would displace, and those that have changed.
    pub fn new_answers(
        &mut self,
        state: &State,
        plan: &Plan,
        (now, elapsed): (Timestamp, Duration),
    ) -> Option<Command> {
        if !Hook::ALL.into_iter().any(|hook| any_active_bundle_has_hook(state, hook)) {
            return None;
        }
        let due = |at: Option<Duration>, after| at.is_none_or(|at| elapsed.saturating_sub(at) >= after);
        let (again, try_again) = (due(self.refreshed_at, ANSWER_REFRESH_INTERVAL), due(self.failed_retried_at, FAILED_ANSWER_RETRY_INTERVAL));
        let asking = QueryContext { interpreter: &*self.interpreter, state, now };
        let nodes = representative_node_by_kind(state);
        let mut answers = Vec::new();
        let mut left_out = false;
        for some in asking.buckets_to_query(&nodes, again, try_again).chunks(BUCKETS_PER_CALL) {
            left_out = answers.len() >= ANSWERS_PER_ROUND_MAX;
            if left_out {
                break;
            }
            answers.extend(asking.changed_answers(some, &nodes));
        }
        answers.extend(asking.requery_victims(|known| again || (try_again && known.failed.is_some())));
        answers
            .extend(plan.evictions.iter().filter_map(|room| asking.query_new_victims(room.job, &room.victims)));
        let limits = asking.changed_limits(again, try_again);
        let retries = asking.query_due_retries(try_again);
        if again && !left_out {
            self.refreshed_at = Some(elapsed);
        }
        if try_again {
            self.failed_retried_at = Some(elapsed);
        }
        let bundles = state.policies.active_versions().iter().map(|version| version.bundle.hash.clone()).collect();
        let said = !answers.is_empty() || !limits.is_empty() || !retries.is_empty();
        said.then_some(Command::NoteAnswers { bundles, answers, limits, retries })
    }
}

/// Whether some bundle in force answers a question.
fn any_active_bundle_has_hook(state: &State, hook: Hook) -> bool {
    state.policies.active_versions().iter().any(|version| version.bundle.hooks.contains(&hook))
}

/// A node of each kind.
fn representative_node_by_kind(state: &State) -> BTreeMap<Arc<Kind>, NodeId> {
    let mut nodes = BTreeMap::new();
    if any_active_bundle_has_hook(state, Hook::Score) {
        let kinds = state.resources.kinds().count();
        for (node, filed) in state.resources.nodes() {
            nodes.entry(filed.kind.clone()).or_insert_with(|| node.clone());
            if nodes.len() == kinds {
                break;
            }
        }
    }
    nodes
}

/// Whether an answer says something else than what is known.
fn has_answer_changed(known: &BucketAnswer, answered: &JobAnswer, nodes: &BTreeMap<Arc<Kind>, NodeId>) -> bool {
    let cost = |node: &NodeId| answered.costs.iter().find(|(one, _)| one == node).map(|(_, cost)| *cost);
    let costs = nodes.iter().any(|(kind, node)| known.costs.get(kind).copied() != cost(node));
    known.admission != answered.admission
        || known.priority != answered.priority
        || known.gpu_milliwatts != answered.gpu_milliwatts
        || known.failed != answered.failed
        || costs
}

/// One who asks about a state.
struct QueryContext<'a> {
    interpreter: &'a dyn Interpreter,
    state: &'a State,
    now: Timestamp,
}

impl QueryContext<'_> {
    /// Whether anything is to be asked about a bucket.
    fn any_bucket_hook_applies(&self, bucket: &Bucket) -> bool {
        Hook::OF_BUCKETS.into_iter().any(|hook| self.state.policies.answers_hook(hook, &bucket.tenant))
    }

    /// Whether kinds of nodes are there of which nothing was answered.
    fn lacks_node_scores(&self, bucket: &Bucket, known: &BucketAnswer, nodes: &BTreeMap<Arc<Kind>, NodeId>) -> bool {
        self.state.policies.answers_hook(Hook::Score, &bucket.tenant)
            && nodes.keys().any(|kind| !known.costs.contains_key(kind))
    }

    fn job_view(&self, bucket: &Bucket) -> JobView {
        JobView::of(bucket, Moment::of(self.now, self.state.settings.utc_offset_minutes))
    }

    /// Those of whom something is not known, each with its first job: of whom nothing was answered yet, or long ago, or
    /// not of all kinds of nodes, or where a policy failed.
    fn buckets_to_query(
        &self,
        nodes: &BTreeMap<Arc<Kind>, NodeId>,
        again: bool,
        try_again: bool,
    ) -> Vec<(&Bucket, JobId)> {
        let wants = |bucket: &Bucket| {
            let known = self.state.policies.answers.of(bucket);
            let lacks = |known: &BucketAnswer| {
                self.lacks_node_scores(bucket, known, nodes) || (try_again && known.failed.is_some())
            };
            (again || known.is_none_or(lacks)) && self.any_bucket_hook_applies(bucket)
        };
        let firsts =
            self.state.queue.buckets().filter_map(|(bucket, places)| Some((bucket, places.first()?.1)));
        firsts.filter(|(bucket, _)| wants(bucket)).collect()
    }

    /// What policies say of these buckets, where it is another than what is known.
    fn changed_answers(&self, some: &[(&Bucket, JobId)], nodes: &BTreeMap<Arc<Kind>, NodeId>) -> Vec<JobAnswer> {
        let mut all: Vec<BucketQuery<'_>> =
            some.iter().filter_map(|(bucket, job)| self.new_bucket_query(bucket, *job)).collect();
        self.query_admissions(&mut all);
        self.query_scores(&mut all, nodes);
        self.query_power_caps(&mut all);
        self.query_priorities(&mut all);
        let is_new = |bucket: &Bucket, answered: &JobAnswer| {
            let known = self.state.policies.answers.of(bucket);
            known.is_none_or(|known| has_answer_changed(known, answered, nodes))
        };
        let answered = all.into_iter().map(|about| (about.bucket, self.hold_on_failure(about.answered)));
        answered.filter(|(bucket, answered)| is_new(bucket, answered)).map(|(_, answered)| answered).collect()
    }

    fn new_bucket_query<'b>(&self, bucket: &'b Bucket, job: JobId) -> Option<BucketQuery<'b>> {
        let tenant = TenantView::of(self.state.tenants.get(&bucket.tenant)?);
        Some(BucketQuery { bucket, tenant, view: self.job_view(bucket), answered: JobAnswer::of(job, bucket.key()) })
    }

    /// Where a policy failed its jobs wait, if so configured.
    fn hold_on_failure(&self, answered: JobAnswer) -> JobAnswer {
        match (&answered.failed, self.state.settings.policy_failure) {
            (Some(what), PolicyFailure::Closed) => {
                let wait = Admission::Wait { why: format!("a policy failed: {what}") };
                JobAnswer { admission: answered.admission.and(wait), ..answered }
            }
            _ => answered,
        }
    }

    /// The strictest of all.
    fn query_admissions(&self, all: &mut [BucketQuery]) {
        let ask = |version: &BundleVersion, some: &[&BucketQuery]| self.interpreter.admit(version, &job_views(some));
        self.query_hook(Hook::Admit, all, ask, |about, _, said| {
            about.answered.admission = std::mem::take(&mut about.answered.admission).and(said);
        });
    }

    /// The sum of all.
    fn query_scores(&self, all: &mut [BucketQuery], nodes: &BTreeMap<Arc<Kind>, NodeId>) {
        let shown: Vec<NodeView> = nodes.iter().map(|(kind, node)| NodeView::of(node, kind)).collect();
        for about in all.iter_mut() {
            about.answered.costs = nodes.values().map(|node| (node.clone(), 0)).collect();
        }
        let ask =
            |version: &BundleVersion, some: &[&BucketQuery]| self.interpreter.score(version, &job_views(some), &shown);
        self.query_hook(Hook::Score, all, ask, |about, _, said| {
            for ((_, sum), cost) in about.answered.costs.iter_mut().zip(said) {
                *sum = sum.saturating_add(cost);
            }
        });
    }

    /// The least of all.
    fn query_power_caps(&self, all: &mut [BucketQuery]) {
        let ask = |version: &BundleVersion, some: &[&BucketQuery]| self.interpreter.power(version, &job_views(some));
        self.query_hook(Hook::Power, all, ask, |about, _, said| {
            about.answered.gpu_milliwatts = about.answered.gpu_milliwatts.into_iter().chain(said).min();
        });
    }

    /// Each bundle sees what the one before it left. That of a tenant can only ask for less.
    fn query_priorities(&self, all: &mut [BucketQuery]) {
        let ask = |version: &BundleVersion, some: &[&BucketQuery]| {
            let pairs: Vec<_> = some.iter().map(|about| (&about.view, &about.tenant)).collect();
            self.interpreter.priority(version, &pairs)
        };
        self.query_hook(Hook::Priority, all, ask, |about, version, said| {
            let left = about.view.priority;
            let most = if version.scope == PolicyScope::Cluster { u32::MAX } else { left };
            about.view.priority = said.unwrap_or(left).min(most);
            let is_other = about.view.priority != about.bucket.priority;
            about.answered.priority = is_other.then_some(about.view.priority);
        });
    }

    /// Put a question to every bundle that answers it, about all of whom it speaks, and take what it says of each.
    fn query_hook<T>(
        &self,
        hook: Hook,
        all: &mut [BucketQuery],
        ask: impl Fn(&BundleVersion, &[&BucketQuery]) -> Vec<Result<T, String>>,
        take: impl Fn(&mut BucketQuery, &BundleVersion, T),
    ) {
        for version in self.state.policies.active_versions() {
            let speaks_of = |about: &BucketQuery| version.scope.applies_to(&about.bucket.tenant);
            let concerned: Vec<&BucketQuery> = all.iter().filter(|about| speaks_of(about)).collect();
            if concerned.is_empty() || !version.bundle.hooks.contains(&hook) {
                continue;
            }
            let said = ask(version, &concerned);
            for (one, said) in all.iter_mut().filter(|about| speaks_of(about)).zip(said) {
                if let Some(said) = answer_or_record_failure(said, version, &mut one.answered.failed) {
                    take(one, version, said);
                }
            }
        }
    }

    fn lacks_limit(&self, tenant: &TenantId) -> bool {
        !self.state.policies.limits.contains_key(tenant)
    }

    /// How much tenants may hold whose jobs wait, and all above them, where that is another than what is known.
    fn changed_limits(&self, again: bool, try_again: bool) -> Vec<TenantLimit> {
        let known = &self.state.policies.limits;
        let wants = |tenant: &&TenantId| {
            let is_due = |limited: &TenantLimit| again || (try_again && limited.failed.is_some());
            known.get(tenant).is_none_or(is_due)
        };
        let wanted: Vec<&TenantId> = self.state.tenants_to_limit().into_iter().filter(wants).collect();
        if wanted.is_empty() {
            return Vec::new();
        }
        let cluster = self.state.cluster_view(self.now);
        let said = wanted.chunks(BUCKETS_PER_CALL).flat_map(|some| self.query_limits(some, &cluster));
        said.filter(|limited| known.get(&limited.tenant) != Some(limited)).collect()
    }

    /// How much these tenants may hold: the least that the bundles say that speak of each.
    fn query_limits(&self, tenants: &[&TenantId], cluster: &ClusterView) -> Vec<TenantLimit> {
        let there = tenants.iter().filter_map(|tenant| self.state.tenants.get(tenant));
        let mut all: Vec<(TenantView, TenantLimit)> =
            there.map(|tenant| (TenantView::of(tenant), TenantLimit::of(tenant.id.clone()))).collect();
        for version in self.state.policies.active_versions() {
            let speaks_of = |tenant: &TenantView| version.scope.applies_to(&tenant.id);
            let concerned = all.iter().filter(|(tenant, _)| speaks_of(tenant));
            let concerned: Vec<_> = concerned.map(|(tenant, _)| (tenant, cluster)).collect();
            if concerned.is_empty() || !version.bundle.hooks.contains(&Hook::Limit) {
                continue;
            }
            let said = self.interpreter.limit(version, &concerned);
            for ((_, limited), said) in all.iter_mut().filter(|(tenant, _)| speaks_of(tenant)).zip(said) {
                if let Some(said) = answer_or_record_failure(said, version, &mut limited.failed) {
                    limited.limit = std::mem::take(&mut limited.limit).and(said);
                }
            }
        }
        all.into_iter().map(|(_, limited)| self.block_on_failure(limited)).collect()
    }

    /// Where a policy failed nobody of the tenant or below it starts, if so configured.
    fn block_on_failure(&self, limited: TenantLimit) -> TenantLimit {
        let closed = self.state.settings.policy_failure == PolicyFailure::Closed;
        let failed = limited.failed.as_ref().filter(|_| closed);
        TenantLimit { blocked: failed.map(|what| format!("a policy failed: {what}")), ..limited }
    }

    /// Whether those start again who failed, where that was not asked yet.
    fn query_due_retries(&self, try_again: bool) -> Vec<RetryAnswer> {
        let failures = self.state.policies.failures.iter();
        let due = failures.filter(|(_, failure)| failure.failed.is_none() || try_again);
        due.filter_map(|(job, _)| self.query_retry(self.state.jobs.get(job)?)).take(ANSWERS_PER_ROUND_MAX).collect()
    }

    fn query_retry(&self, job: &Job) -> Option<RetryAnswer> {
        let failure = self.state.failure_of(job.id)?;
        let (view, mut failed) = (self.job_view(&self.state.bucket(job)), None);
        let mut retry = Retry::AsAsked;
        for version in self.state.policies.bundles_answering(Hook::Retry, &job.spec.tenant) {
            let said = self.interpreter.retry(version, &view, &failure.seen);
            retry = retry.and(answer_or_record_failure(said, version, &mut failed).unwrap_or_default());
        }
        let unknown = failed.is_some() && self.state.settings.policy_failure == PolicyFailure::Closed;
        let is_no = matches!(retry, Retry::No { .. });
        let retry = (!unknown || is_no).then_some(retry);
        Some(RetryAnswer { job: job.id, attempt: failure.seen.attempt, retry, failed })
    }

    /// Whether those whom a plan would displace may be, where that was not asked yet.
    fn query_new_victims(&self, job: JobId, victims: &[JobId]) -> Option<JobAnswer> {
        let bucket = self.state.bucket(self.state.jobs.get(&job)?);
        let known = self.state.policies.answers.of(&bucket).cloned().unwrap_or_default();
        let unasked = victims.iter().filter(|victim| !known.victims.contains_key(victim)).copied();
        self.query_victims((job, &bucket), &known, known.failed.clone(), unasked)
    }

    /// What was answered about victims long ago, where it is another by now: they have run on.
    fn requery_victims(&self, is_due: impl Fn(&BucketAnswer) -> bool) -> Vec<JobAnswer> {
        let again = |(bucket, known): (&Bucket, &BucketAnswer)| {
            let job = self.state.queue.bucket(bucket)?.first()?.1;
            let answered = self.query_victims((job, bucket), known, None, known.victims.keys().copied())?;
            let differs = |(job, may): &(JobId, bool)| known.victims.get(job) != Some(may);
            answered.victims.iter().any(differs).then_some(answered)
        };
        let due = self.state.policies.answers.iter().filter(|(_, known)| is_due(known));
        due.filter_map(again).collect()
    }

    fn query_victims(
        &self,
        (job, bucket): (JobId, &Bucket),
        known: &BucketAnswer,
        mut failed: Option<String>,
        victims: impl Iterator<Item = JobId>,
    ) -> Option<JobAnswer> {
        let victims = victims.filter_map(|victim| self.state.jobs.get(&victim));
        let candidates: Vec<CandidateView> =
            victims.filter_map(|victim| CandidateView::of(victim, self.now)).collect();
        let mut asked = self.state.policies.bundles_answering(Hook::Victims, &bucket.tenant).peekable();
        if candidates.is_empty() || asked.peek().is_none() {
            return None;
        }
        let view = self.job_view(bucket);
        let mut may_go: BTreeSet<JobId> = candidates.iter().map(|candidate| candidate.id).collect();
        for version in asked {
            let shown: Vec<CandidateView> =
                candidates.iter().map(|candidate| candidate.shown_to(&version.scope)).collect();
            let said = self.interpreter.victims(version, &view, &shown);
            match (answer_or_record_failure(said, version, &mut failed), self.state.settings.policy_failure) {
                (Some(said), _) => may_go = may_go.intersection(&said).copied().collect(),
                (None, PolicyFailure::Closed) => may_go.clear(),
                (None, PolicyFailure::Open) => {}
            }
        }
        let victims = candidates.iter().map(|one| (one.id, may_go.contains(&one.id))).collect();
        let (admission, priority, gpu_milliwatts) =
            (known.admission.clone(), known.priority, known.gpu_milliwatts);
        Some(JobAnswer {
            admission,
            priority,
            gpu_milliwatts,
            victims,
            failed,
            ..JobAnswer::of(job, bucket.key())
        })
    }
}

/// A bucket that is asked about, and what was heard of it.
struct BucketQuery<'a> {
    bucket: &'a Bucket,
    /// Whose it is.
    tenant: TenantView,
    /// As policies see its jobs.
    view: JobView,
    answered: JobAnswer,
}

fn job_views<'a>(some: &[&'a BucketQuery]) -> Vec<&'a JobView> {
    some.iter().map(|about| &about.view).collect()
}

/// What was said; a failure is noted and told.
fn answer_or_record_failure<T>(said: Result<T, String>, version: &BundleVersion, failed: &mut Option<String>) -> Option<T> {
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

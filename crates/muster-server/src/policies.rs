//! Port: the policy interpreter. And the queries to it: which hooks to call for which buckets, and when to call again.
//!
//! The planner's thread calls hooks for buckets of jobs and kinds of nodes before a round needs the answers. The answers
//! go to the engine as a command and return through the journal: the planner itself calls no policy, and a plan can be
//! recomputed from the journal alone. A failed hook is visible: in `muster why` of its jobs, in the log, and in the
//! metrics.

mod metered;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use muster_core::facts::plan::Plan;
use muster_core::objects::job::Job;
use muster_core::objects::policy::{
    Admission, BundleVersion, FailureView, GpuLimit, Hook, JobAnswer, PolicyBundle, PolicyScope, Retry, RetryAnswer,
    TenantLimit,
};
use muster_core::objects::settings::PolicyFailure;
use muster_core::policy::{BucketAnswer, CandidateView, ClusterView, JobView, Moment, NodeView, TenantView};
use muster_core::queue::Bucket;
use muster_core::resources::Kind;
use muster_core::{Command, JobId, JobSpec, NodeId, State, TenantId, Timestamp};
use tracing::warn;

pub use metered::{MeteredInterpreter, PolicyCallMetrics, PolicyCallTotals};

/// Age at which answers are queried again: the hour and the usage of tenants change.
const ANSWER_REFRESH_INTERVAL: Duration = Duration::from_secs(30);
/// Pause before a failed hook is called again: the failure may have been temporary.
const FAILED_ANSWER_RETRY_INTERVAL: Duration = Duration::from_secs(3);
/// Most buckets (or tenants) in one call of a hook.
const BUCKETS_PER_CALL: usize = 250;
/// Once a round has this many changed answers, the remaining buckets are left to the next round.
const ANSWERS_PER_ROUND_MAX: usize = 1_000;

/// Runs policies.
pub trait Interpreter: Send + Sync {
    /// Compile files, given by name, for a scope. Each error names its place and its cause.
    fn compile(&self, scope: &PolicyScope, files: BTreeMap<String, String>) -> Result<PolicyBundle, Vec<String>>;

    /// Run the tests in these files, and return one line per failing test.
    fn failing_tests(&self, _: &PolicyScope, _: &BTreeMap<String, String>) -> Result<Vec<String>, String> {
        Ok(Vec::new())
    }

    /// Why a version is suspended; `None` if it is not. Every call of a suspended version fails without running it.
    fn suspension_reason(&self, _: &BundleVersion) -> Option<String> {
        None
    }

    /// How long a submission waits for `admit`. If a policy takes longer, the job is accepted, and the policy is asked
    /// again before the job starts.
    fn admission_timeout(&self) -> Duration {
        Duration::from_secs(1)
    }

    /// Whether each job may be accepted and start now.
    fn admit(&self, version: &BundleVersion, jobs: &[&JobView]) -> Vec<Result<Admission, String>>;

    /// The priority of each job in the queue order; `None` keeps the submitted priority.
    fn priority(&self, version: &BundleVersion, jobs: &[(&JobView, &TenantView)]) -> Vec<Result<Option<u32>, String>>;

    /// The cost of each job on each node, in thousandths of a GPU.
    fn score(&self, version: &BundleVersion, jobs: &[&JobView], nodes: &[NodeView]) -> Vec<Result<Vec<i64>, String>>;

    /// The power cap per GPU of each job, in milliwatts; `None` for no cap.
    fn power(&self, version: &BundleVersion, jobs: &[&JobView]) -> Vec<Result<Option<u64>, String>>;

    /// The candidates that may be preempted for a job.
    fn victims(
        &self,
        version: &BundleVersion,
        job: &JobView,
        candidates: &[CandidateView],
    ) -> Result<BTreeSet<JobId>, String>;

    /// The most GPUs that each tenant may hold.
    fn limit(&self, version: &BundleVersion, tenants: &[(&TenantView, &ClusterView)]) -> Vec<Result<GpuLimit, String>>;

    /// Whether a failed job starts again.
    fn retry(&self, version: &BundleVersion, job: &JobView, failure: &FailureView) -> Result<Retry, String>;
}

/// The admission check of a job that is not accepted yet. It is created from the state and evaluated without it, so that
/// a slow policy blocks no reader of the state.
pub struct AdmissionCheck {
    job: JobView,
    versions: Vec<Arc<BundleVersion>>,
}

impl AdmissionCheck {
    /// `None` if no active bundle has the hook `admit` for the tenant.
    pub fn for_spec(state: &State, spec: &JobSpec, now: Timestamp) -> Option<AdmissionCheck> {
        let versions: Vec<_> = state.policies.bundles_answering(Hook::Admit, &spec.tenant).cloned().collect();
        let bucket = Bucket::of_spec(spec, None, &state.policies.bucket_criteria);
        let job = JobView::of(&bucket, Moment::of(now, state.settings.utc_offset_minutes));
        (!versions.is_empty()).then_some(AdmissionCheck { job, versions })
    }

    /// Why a policy refuses the job; `None` if none does.
    pub fn refusal(&self, interpreter: &dyn Interpreter) -> Option<String> {
        let admit = |version: &Arc<BundleVersion>| interpreter.admit(version, &[&self.job]).pop();
        let answers =
            self.versions.iter().filter_map(|version| answer_or_record_failure(admit(version)?, version, &mut None));
        match answers.fold(Admission::Yes, Admission::and) {
            Admission::Refuse { why } => Some(why),
            Admission::Yes | Admission::Wait { .. } => None,
        }
    }
}

/// Policy limits of a tenant and its ancestors that the state lacks because no job of theirs waits. Used by the dry run.
pub fn query_missing_limits(
    state: &State,
    tenant: &TenantId,
    interpreter: &dyn Interpreter,
    now: Timestamp,
) -> Vec<TenantLimit> {
    if state.knows_limits(tenant) {
        return Vec::new();
    }
    let context = QueryContext { interpreter, state, now };
    let tenants = state.lineage(tenant).map(|one| &one.id);
    let tenants = tenants.filter(|one| state.policies.answers_hook(Hook::Limit, one) && context.lacks_limit(one));
    context.query_limits(&tenants.collect::<Vec<_>>(), &state.cluster_view(now))
}

/// Queries the policies for missing answers, and refreshes old ones.
pub struct PolicyQuerier {
    interpreter: Arc<dyn Interpreter>,
    /// Time of the last refresh of all answers.
    refreshed_at: Option<Duration>,
    /// Time of the last retry of failed hooks.
    failed_retried_at: Option<Duration>,
}

impl PolicyQuerier {
    pub fn new(interpreter: Arc<dyn Interpreter>) -> PolicyQuerier {
        PolicyQuerier { interpreter, refreshed_at: None, failed_retried_at: None }
    }

    /// Why a policy refuses a job that is not accepted yet; `None` if none does.
    pub fn admission_refusal(&self, state: &State, spec: &JobSpec, now: Timestamp) -> Option<String> {
        AdmissionCheck::for_spec(state, spec, now)?.refusal(&*self.interpreter)
    }

    /// New and changed answers to record before the next round: for waiting buckets, for the victims of the plan, for
    /// tenant limits and for retries.
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
        let refresh = due(self.refreshed_at, ANSWER_REFRESH_INTERVAL);
        let retry_failed = due(self.failed_retried_at, FAILED_ANSWER_RETRY_INTERVAL);
        let context = QueryContext { interpreter: &*self.interpreter, state, now };
        let nodes = representative_node_by_kind(state);
        let mut answers = Vec::new();
        let mut is_incomplete = false;
        for buckets in context.buckets_to_query(&nodes, refresh, retry_failed).chunks(BUCKETS_PER_CALL) {
            is_incomplete = answers.len() >= ANSWERS_PER_ROUND_MAX;
            if is_incomplete {
                break;
            }
            answers.extend(context.changed_answers(buckets, &nodes));
        }
        answers.extend(context.requery_victims(|known| refresh || (retry_failed && known.failed.is_some())));
        let evictions = plan.evictions.iter();
        answers.extend(evictions.filter_map(|eviction| context.query_new_victims(eviction.job, &eviction.victims)));
        let limits = context.changed_limits(refresh, retry_failed);
        let retries = context.query_due_retries(retry_failed);
        if refresh && !is_incomplete {
            self.refreshed_at = Some(elapsed);
        }
        if retry_failed {
            self.failed_retried_at = Some(elapsed);
        }
        let bundles = state.policies.active_versions().iter().map(|version| version.bundle.hash.clone()).collect();
        let has_news = !answers.is_empty() || !limits.is_empty() || !retries.is_empty();
        has_news.then_some(Command::NoteAnswers { bundles, answers, limits, retries })
    }
}

fn any_active_bundle_has_hook(state: &State, hook: Hook) -> bool {
    state.policies.active_versions().iter().any(|version| version.bundle.hooks.contains(&hook))
}

/// One node of each kind; empty if no active bundle has the hook `score`.
fn representative_node_by_kind(state: &State) -> BTreeMap<Arc<Kind>, NodeId> {
    let mut nodes = BTreeMap::new();
    if any_active_bundle_has_hook(state, Hook::Score) {
        let kinds = state.resources.kinds().count();
        for (node, entry) in state.resources.nodes() {
            nodes.entry(entry.kind.clone()).or_insert_with(|| node.clone());
            if nodes.len() == kinds {
                break;
            }
        }
    }
    nodes
}

/// Whether a new answer differs from the recorded one.
fn has_answer_changed(known: &BucketAnswer, answered: &JobAnswer, nodes: &BTreeMap<Arc<Kind>, NodeId>) -> bool {
    let cost = |node: &NodeId| answered.costs.iter().find(|(one, _)| one == node).map(|(_, cost)| *cost);
    let costs = nodes.iter().any(|(kind, node)| known.costs.get(kind).copied() != cost(node));
    known.admission != answered.admission
        || known.priority != answered.priority
        || known.gpu_milliwatts != answered.gpu_milliwatts
        || known.failed != answered.failed
        || costs
}

/// An interpreter and the state it is queried about.
struct QueryContext<'a> {
    interpreter: &'a dyn Interpreter,
    state: &'a State,
    now: Timestamp,
}

impl QueryContext<'_> {
    fn any_bucket_hook_applies(&self, bucket: &Bucket) -> bool {
        Hook::OF_BUCKETS.into_iter().any(|hook| self.state.policies.answers_hook(hook, &bucket.tenant))
    }

    /// Whether there are kinds of nodes without a score for the bucket.
    fn lacks_node_scores(&self, bucket: &Bucket, known: &BucketAnswer, nodes: &BTreeMap<Arc<Kind>, NodeId>) -> bool {
        self.state.policies.answers_hook(Hook::Score, &bucket.tenant)
            && nodes.keys().any(|kind| !known.costs.contains_key(kind))
    }

    fn job_view(&self, bucket: &Bucket) -> JobView {
        JobView::of(bucket, Moment::of(self.now, self.state.settings.utc_offset_minutes))
    }

    /// Buckets to query, each with its first job: never answered, answer older than [`ANSWER_REFRESH_INTERVAL`], no score
    /// for some node kind, or a failed hook due for retry.
    fn buckets_to_query(
        &self,
        nodes: &BTreeMap<Arc<Kind>, NodeId>,
        refresh: bool,
        retry_failed: bool,
    ) -> Vec<(&Bucket, JobId)> {
        let is_due = |bucket: &Bucket| {
            let known = self.state.policies.answers.of(bucket);
            let lacks = |known: &BucketAnswer| {
                self.lacks_node_scores(bucket, known, nodes) || (retry_failed && known.failed.is_some())
            };
            (refresh || known.is_none_or(lacks)) && self.any_bucket_hook_applies(bucket)
        };
        let firsts = self.state.queue.buckets().filter_map(|(bucket, jobs)| Some((bucket, jobs.first()?.1)));
        firsts.filter(|(bucket, _)| is_due(bucket)).collect()
    }

    /// The answers for these buckets that differ from the recorded ones.
    fn changed_answers(&self, buckets: &[(&Bucket, JobId)], nodes: &BTreeMap<Arc<Kind>, NodeId>) -> Vec<JobAnswer> {
        let mut queries: Vec<BucketQuery<'_>> =
            buckets.iter().filter_map(|(bucket, job)| self.new_bucket_query(bucket, *job)).collect();
        self.query_admissions(&mut queries);
        self.query_scores(&mut queries, nodes);
        self.query_power_caps(&mut queries);
        self.query_priorities(&mut queries);
        let is_new = |bucket: &Bucket, answered: &JobAnswer| {
            let known = self.state.policies.answers.of(bucket);
            known.is_none_or(|known| has_answer_changed(known, answered, nodes))
        };
        let answered = queries.into_iter().map(|query| (query.bucket, self.hold_on_failure(query.answered)));
        answered.filter(|(bucket, answered)| is_new(bucket, answered)).map(|(_, answered)| answered).collect()
    }

    fn new_bucket_query<'b>(&self, bucket: &'b Bucket, job: JobId) -> Option<BucketQuery<'b>> {
        let tenant = TenantView::of(self.state.tenants.get(&bucket.tenant)?);
        Some(BucketQuery { bucket, tenant, view: self.job_view(bucket), answered: JobAnswer::of(job, bucket.key()) })
    }

    /// Let the jobs of a failed hook wait, if `scheduler.policy_failure` is `closed`.
    fn hold_on_failure(&self, answered: JobAnswer) -> JobAnswer {
        match (&answered.failed, self.state.settings.policy_failure) {
            (Some(what), PolicyFailure::Closed) => {
                let wait = Admission::Wait { why: format!("a policy failed: {what}") };
                JobAnswer { admission: answered.admission.and(wait), ..answered }
            }
            _ => answered,
        }
    }

    /// The strictest answer of all bundles counts.
    fn query_admissions(&self, queries: &mut [BucketQuery]) {
        let call = |version: &BundleVersion, some: &[&BucketQuery]| self.interpreter.admit(version, &job_views(some));
        self.query_hook(Hook::Admit, queries, call, |query, _, admission| {
            query.answered.admission = std::mem::take(&mut query.answered.admission).and(admission);
        });
    }

    /// The sum of all bundles counts.
    fn query_scores(&self, queries: &mut [BucketQuery], nodes: &BTreeMap<Arc<Kind>, NodeId>) {
        let views: Vec<NodeView> = nodes.iter().map(|(kind, node)| NodeView::of(node, kind)).collect();
        for query in queries.iter_mut() {
            query.answered.costs = nodes.values().map(|node| (node.clone(), 0)).collect();
        }
        let call =
            |version: &BundleVersion, some: &[&BucketQuery]| self.interpreter.score(version, &job_views(some), &views);
        self.query_hook(Hook::Score, queries, call, |query, _, costs| {
            for ((_, sum), cost) in query.answered.costs.iter_mut().zip(costs) {
                *sum = sum.saturating_add(cost);
            }
        });
    }

    /// The lowest cap of all bundles counts.
    fn query_power_caps(&self, queries: &mut [BucketQuery]) {
        let call = |version: &BundleVersion, some: &[&BucketQuery]| self.interpreter.power(version, &job_views(some));
        self.query_hook(Hook::Power, queries, call, |query, _, cap| {
            query.answered.gpu_milliwatts = query.answered.gpu_milliwatts.into_iter().chain(cap).min();
        });
    }

    /// Each bundle sees the priority that the bundle before it set. A tenant's bundle can only lower it.
    fn query_priorities(&self, queries: &mut [BucketQuery]) {
        let call = |version: &BundleVersion, some: &[&BucketQuery]| {
            let pairs: Vec<_> = some.iter().map(|query| (&query.view, &query.tenant)).collect();
            self.interpreter.priority(version, &pairs)
        };
        self.query_hook(Hook::Priority, queries, call, |query, version, priority| {
            let current = query.view.priority;
            let most = if version.scope == PolicyScope::Cluster { u32::MAX } else { current };
            query.view.priority = priority.unwrap_or(current).min(most);
            let is_changed = query.view.priority != query.bucket.priority;
            query.answered.priority = is_changed.then_some(query.view.priority);
        });
    }

    /// Call one hook of every active bundle that has it, for all buckets in its scope, and merge each answer.
    fn query_hook<T>(
        &self,
        hook: Hook,
        queries: &mut [BucketQuery],
        call: impl Fn(&BundleVersion, &[&BucketQuery]) -> Vec<Result<T, String>>,
        merge: impl Fn(&mut BucketQuery, &BundleVersion, T),
    ) {
        for version in self.state.policies.active_versions() {
            let is_in_scope = |query: &BucketQuery| version.scope.applies_to(&query.bucket.tenant);
            let in_scope: Vec<&BucketQuery> = queries.iter().filter(|query| is_in_scope(query)).collect();
            if in_scope.is_empty() || !version.bundle.hooks.contains(&hook) {
                continue;
            }
            let answers = call(version, &in_scope);
            for (query, answer) in queries.iter_mut().filter(|query| is_in_scope(query)).zip(answers) {
                if let Some(answer) = answer_or_record_failure(answer, version, &mut query.answered.failed) {
                    merge(query, version, answer);
                }
            }
        }
    }

    fn lacks_limit(&self, tenant: &TenantId) -> bool {
        !self.state.policies.limits.contains_key(tenant)
    }

    /// Changed limits of tenants with waiting jobs and of their ancestors.
    fn changed_limits(&self, refresh: bool, retry_failed: bool) -> Vec<TenantLimit> {
        let known = &self.state.policies.limits;
        let is_due = |tenant: &&TenantId| {
            let is_stale = |limit: &TenantLimit| refresh || (retry_failed && limit.failed.is_some());
            known.get(tenant).is_none_or(is_stale)
        };
        let due: Vec<&TenantId> = self.state.tenants_to_limit().into_iter().filter(is_due).collect();
        if due.is_empty() {
            return Vec::new();
        }
        let cluster = self.state.cluster_view(self.now);
        let limits = due.chunks(BUCKETS_PER_CALL).flat_map(|some| self.query_limits(some, &cluster));
        limits.filter(|limit| known.get(&limit.tenant) != Some(limit)).collect()
    }

    /// The limits of these tenants: for each the lowest of all bundles in whose scope it is.
    fn query_limits(&self, tenants: &[&TenantId], cluster: &ClusterView) -> Vec<TenantLimit> {
        let existing = tenants.iter().filter_map(|tenant| self.state.tenants.get(tenant));
        let mut limits: Vec<(TenantView, TenantLimit)> =
            existing.map(|tenant| (TenantView::of(tenant), TenantLimit::of(tenant.id.clone()))).collect();
        for version in self.state.policies.active_versions() {
            let is_in_scope = |tenant: &TenantView| version.scope.applies_to(&tenant.id);
            let in_scope = limits.iter().filter(|(tenant, _)| is_in_scope(tenant));
            let in_scope: Vec<_> = in_scope.map(|(tenant, _)| (tenant, cluster)).collect();
            if in_scope.is_empty() || !version.bundle.hooks.contains(&Hook::Limit) {
                continue;
            }
            let answers = self.interpreter.limit(version, &in_scope);
            for ((_, limit), answer) in limits.iter_mut().filter(|(tenant, _)| is_in_scope(tenant)).zip(answers) {
                if let Some(answer) = answer_or_record_failure(answer, version, &mut limit.failed) {
                    limit.limit = std::mem::take(&mut limit.limit).and(answer);
                }
            }
        }
        limits.into_iter().map(|(_, limit)| self.block_on_failure(limit)).collect()
    }

    /// Block the tenant of a failed hook and all tenants below it, if `scheduler.policy_failure` is `closed`.
    fn block_on_failure(&self, limit: TenantLimit) -> TenantLimit {
        let closed = self.state.settings.policy_failure == PolicyFailure::Closed;
        let failed = limit.failed.as_ref().filter(|_| closed);
        TenantLimit { blocked: failed.map(|what| format!("a policy failed: {what}")), ..limit }
    }

    /// Whether failed jobs start again, for those without an answer so far.
    fn query_due_retries(&self, retry_failed: bool) -> Vec<RetryAnswer> {
        let failures = self.state.policies.failures.iter();
        let due = failures.filter(|(_, failure)| failure.failed.is_none() || retry_failed);
        due.filter_map(|(job, _)| self.query_retry(self.state.jobs.get(job)?)).take(ANSWERS_PER_ROUND_MAX).collect()
    }

    fn query_retry(&self, job: &Job) -> Option<RetryAnswer> {
        let failure = self.state.failure_of(job.id)?;
        let (view, mut failed) = (self.job_view(&self.state.bucket(job)), None);
        let mut retry = Retry::ByRestartRule;
        for version in self.state.policies.bundles_answering(Hook::Retry, &job.spec.tenant) {
            let answer = self.interpreter.retry(version, &view, &failure.seen);
            retry = retry.and(answer_or_record_failure(answer, version, &mut failed).unwrap_or_default());
        }
        let unknown = failed.is_some() && self.state.settings.policy_failure == PolicyFailure::Closed;
        let is_no = matches!(retry, Retry::No { .. });
        let retry = (!unknown || is_no).then_some(retry);
        Some(RetryAnswer { job: job.id, attempt: failure.seen.attempt, retry, failed })
    }

    /// Whether the victims of a proposed eviction may be preempted, for those without an answer so far.
    fn query_new_victims(&self, job: JobId, victims: &[JobId]) -> Option<JobAnswer> {
        let bucket = self.state.bucket(self.state.jobs.get(&job)?);
        let known = self.state.policies.answers.of(&bucket).cloned().unwrap_or_default();
        let unanswered = victims.iter().filter(|victim| !known.victims.contains_key(victim)).copied();
        self.query_victims(job, &bucket, &known, known.failed.clone(), unanswered)
    }

    /// Changed answers about victims that were answered long ago: the victims have run on since.
    fn requery_victims(&self, is_due: impl Fn(&BucketAnswer) -> bool) -> Vec<JobAnswer> {
        let requery = |(bucket, known): (&Bucket, &BucketAnswer)| {
            let job = self.state.queue.bucket(bucket)?.first()?.1;
            let answered = self.query_victims(job, bucket, known, None, known.victims.keys().copied())?;
            let differs = |(job, may): &(JobId, bool)| known.victims.get(job) != Some(may);
            answered.victims.iter().any(differs).then_some(answered)
        };
        let due = self.state.policies.answers.iter().filter(|(_, known)| is_due(known));
        due.filter_map(requery).collect()
    }

    fn query_victims(
        &self,
        job: JobId,
        bucket: &Bucket,
        known: &BucketAnswer,
        mut failed: Option<String>,
        victims: impl Iterator<Item = JobId>,
    ) -> Option<JobAnswer> {
        let victims = victims.filter_map(|victim| self.state.jobs.get(&victim));
        let candidates: Vec<CandidateView> = victims.filter_map(|victim| CandidateView::of(victim, self.now)).collect();
        let mut versions = self.state.policies.bundles_answering(Hook::Victims, &bucket.tenant).peekable();
        if candidates.is_empty() || versions.peek().is_none() {
            return None;
        }
        let view = self.job_view(bucket);
        let mut allowed: BTreeSet<JobId> = candidates.iter().map(|candidate| candidate.id).collect();
        for version in versions {
            let views: Vec<CandidateView> =
                candidates.iter().map(|candidate| candidate.shown_to(&version.scope)).collect();
            let answer = self.interpreter.victims(version, &view, &views);
            match (answer_or_record_failure(answer, version, &mut failed), self.state.settings.policy_failure) {
                (Some(answer), _) => allowed = allowed.intersection(&answer).copied().collect(),
                (None, PolicyFailure::Closed) => allowed.clear(),
                (None, PolicyFailure::Open) => {}
            }
        }
        let victims = candidates.iter().map(|one| (one.id, allowed.contains(&one.id))).collect();
        let (admission, priority, gpu_milliwatts) = (known.admission.clone(), known.priority, known.gpu_milliwatts);
        Some(JobAnswer { admission, priority, gpu_milliwatts, victims, failed, ..JobAnswer::of(job, bucket.key()) })
    }
}

/// A bucket that is queried, and the merged answer so far.
struct BucketQuery<'a> {
    bucket: &'a Bucket,
    tenant: TenantView,
    /// A job of the bucket as policies see it.
    view: JobView,
    answered: JobAnswer,
}

fn job_views<'a>(some: &[&'a BucketQuery]) -> Vec<&'a JobView> {
    some.iter().map(|query| &query.view).collect()
}

/// The answer of a hook. A failure is logged, and the first one is kept in `failed`.
fn answer_or_record_failure<T>(
    answer: Result<T, String>,
    version: &BundleVersion,
    failed: &mut Option<String>,
) -> Option<T> {
    match answer {
        Ok(answer) => Some(answer),
        Err(what) => {
            warn!(version = version.number, scope = %version.scope, %what, "a policy failed");
            failed.get_or_insert(what);
            None
        }
    }
}

#[cfg(test)]
mod tests;

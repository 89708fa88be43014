//! Policies: putting bundles into force, and what they answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::command::Actor;
use crate::event::{Event, Next};
use crate::ids::{JobId, NodeId, TenantId};
use crate::job::{Attempt, Exit, Job, Outcome, StopCause};
use crate::nearest::nearest;
use crate::node::Node;
use crate::policy::{
    Answer, Answered, Bundle, COST_MILLI_MAX, Failure, FailureView, Given, Hook, Limited, Policies, Retried,
    Retry, Scope, Version, Wear,
};
use crate::queue::Bucket;
use crate::refusal::Refusal;
use crate::settings::PRIORITY_MAX;
use crate::state::State;
use crate::state::decide::Decision;
use crate::state::report::told;
use crate::time::Timestamp;

/// Files of one bundle.
const FILES_MAX: usize = 64;
/// Bytes of all files of one bundle.
const BYTES_MAX: usize = 256 << 10;

impl State {
    pub(super) fn decide_apply_policy(
        &self,
        (by, why): (&Actor, &str),
        scope: &Scope,
        bundle: &Arc<Bundle>,
        now: Timestamp,
    ) -> Result<Decision, Refusal> {
        if let Scope::Tenant(tenant) = scope {
            self.tenant(tenant)?;
        }
        check_bundle(scope, bundle)?;
        self.check_pools(scope, bundle)?;
        let in_force = self.policies.active(scope).map(|version| version.bundle.hash.as_str());
        if in_force == Some(&bundle.hash) || (in_force.is_none() && bundle.files.is_empty()) {
            return Ok(Decision::done(Vec::new()));
        }
        Ok(Decision::done(vec![self.applied((by, why), scope, bundle, now)]))
    }

    pub(super) fn decide_roll_back_policy(
        &self,
        (by, why): (&Actor, &str),
        scope: &Scope,
        number: Option<u64>,
        now: Timestamp,
    ) -> Result<Decision, Refusal> {
        let of_scope = self.policies.versions().into_iter().filter(|version| version.scope == *scope);
        let of_scope: Vec<&Arc<Version>> = of_scope.collect();
        let wanted = match number {
            Some(number) => of_scope.iter().find(|version| version.number == number),
            None => of_scope.iter().rev().nth(1),
        };
        let Some(wanted) = wanted else {
            return Err(Refusal::UnknownPolicy { number, scope: scope.clone() });
        };
        self.decide_apply_policy((by, why), scope, &wanted.bundle, now)
    }

    /// That a tenant has no policies any more, if it has some.
    pub(super) fn policies_taken(&self, by: &Actor, tenant: &TenantId, now: Timestamp) -> Option<Event> {
        let scope = Scope::Tenant(tenant.clone());
        self.policies.active(&scope)?;
        Some(self.applied((by, "the tenant was deleted"), &scope, &Arc::default(), now))
    }

    fn applied(
        &self,
        (by, why): (&Actor, &str),
        scope: &Scope,
        bundle: &Arc<Bundle>,
        at: Timestamp,
    ) -> Event {
        let version = Version {
            number: self.policies.next_number(),
            scope: scope.clone(),
            bundle: bundle.clone(),
            by: by.name.clone(),
            why: why.to_string(),
            at,
        };
        Event::PolicyApplied { version: Box::new(version) }
    }

    /// Nobody who waits may lose the pool they named: they would wait for ever.
    fn check_pools(&self, scope: &Scope, bundle: &Bundle) -> Result<(), Refusal> {
        if *scope != Scope::Cluster {
            return Ok(());
        }
        let lost = |pool: &&String| !bundle.rules.pools.contains_key(*pool);
        let waiting = self.jobs.values().filter(|job| job.attempt().is_none());
        let mut without = waiting.filter_map(|job| Some((job.id, job.spec.pool.as_ref().filter(lost)?)));
        match without.next() {
            Some((job, pool)) => Err(Refusal::PoolInUse { pool: pool.clone(), job }),
            None => Ok(()),
        }
    }

    /// What is still true of what was answered: of jobs that wait or have failed and of tenants whose jobs wait, by the bundles
    /// that are in force.
    pub(super) fn decide_answers(
        &self,
        bundles: &[String],
        (answers, limits, retries): (&[Answered], &[Limited], &[Retried]),
        now: Timestamp,
    ) -> Result<Decision, Refusal> {
        // All of them and no other: who was not asked, because it was put into force since, may have something to say.
        let in_force = self.policies.in_force();
        if !in_force.iter().map(|version| &version.bundle.hash).eq(bundles) {
            return Err(Refusal::Invalid { field: "bundles", problem: "are no longer in force".to_string() });
        }
        let waits = |answered: &&Answered| {
            let job = self.jobs.get(&answered.job).filter(|job| job.is_ready());
            let concerned = |job: &&Job| self.policies.speak_of(&job.spec.tenant);
            job.filter(concerned).is_some_and(|job| self.bucket(job).key() == answered.bucket)
        };
        let answers: Vec<Answered> =
            answers.iter().filter(waits).cloned().map(|one| self.bounded(one)).collect();
        let limited = self.tenants_to_limit();
        let limits: Vec<Limited> =
            limits.iter().filter(|one| limited.contains(&one.tenant)).cloned().collect();
        let mut events = match answers.is_empty() && limits.is_empty() {
            true => Vec::new(),
            false => vec![Event::PolicyAnswered { bundles: bundles.to_vec(), answers, limits, at: now }],
        };
        let known = retries.iter().filter_map(|answer| Some((answer, self.failure_of(answer.job)?)));
        let known = known.filter(|(answer, failure)| answer.attempt == failure.seen.attempt);
        // The first word counts: a job that is told twice not to start again ends once.
        let mut settled = BTreeSet::new();
        for (answer, failure) in known.filter(|(answer, _)| settled.insert(answer.job)) {
            self.decide_retry((bundles, answer), failure, now, &mut events);
        }
        self.settle_ends(&mut events, now);
        Ok(Decision::done(events))
    }

    /// A job that failed goes on sleeping as long as was said, or has ended.
    fn decide_retry(
        &self,
        (bundles, answer): (&[String], &Retried),
        failure: &Failure,
        now: Timestamp,
        events: &mut Vec<Event>,
    ) {
        let Some(asleep) = self.jobs.get(&answer.job).and_then(|job| job.wakes_at) else { return };
        if answer.retry.is_none() && answer.failed == failure.failed {
            return;
        }
        let wakes_at = answer.retry.as_ref().map_or(asleep, |retry| retry.wakes_at(asleep, now));
        events.push(Event::RetryAnswered {
            bundles: bundles.to_vec(),
            answer: answer.clone(),
            wakes_at,
            at: now,
        });
        if let Some(Retry::No { why }) = &answer.retry {
            let why = format!("{}; a policy does not start it again: {why}", told(&failure.seen.exit));
            events.push(Event::JobEnded { job: answer.job, outcome: Outcome::Failed, why, at: now });
        }
    }

    /// How a job failed, while it sleeps until policies have said whether it starts again.
    pub fn failure_of(&self, job: JobId) -> Option<&Failure> {
        let asleep = self.jobs.get(&job).filter(|_| !self.policies.failures.is_empty())?;
        self.policies.failure(job, &asleep.spec.tenant)
    }

    /// Keep how a job failed that comes back, if policies are asked about that. Who was stopped did not fail by itself.
    pub(super) fn keep_failure(
        &mut self,
        (job, tenant): (JobId, &TenantId),
        attempt: &Attempt,
        (next, exit): (&Next, &Exit),
        at: Timestamp,
    ) {
        let cause = attempt.stopping.as_ref().map(|stopping| &stopping.cause);
        let by_itself = matches!(cause, None | Some(StopCause::GangFailed));
        let comes_back = matches!(next, Next::Queued { wakes_at: Some(_), .. });
        if by_itself && comes_back && self.policies.asks(Hook::Retry, tenant) {
            let seen = FailureView {
                exit: exit.clone(),
                attempt: attempt.number,
                failures: self.jobs.get(&job).map_or(0, |job| job.restarts),
                ran_ms: at.since(attempt.started_at.unwrap_or(attempt.placed_at)),
                nodes: attempt.nodes().into_iter().collect(),
            };
            self.policies.failures.insert(job, Failure { seen, failed: None });
        }
    }

    /// Take what was answered of a failure: the job is no longer asked about, or will be again.
    pub(super) fn take_retry(&mut self, answer: &Retried, wakes_at: Timestamp, at: Timestamp) {
        match (&answer.retry, self.policies.failures.get_mut(&answer.job)) {
            (None, Some(failure)) => failure.failed.clone_from(&answer.failed),
            _ => drop(self.policies.failures.remove(&answer.job)),
        }
        self.move_job(answer.job, at, |job| job.wakes_at = Some(wakes_at));
    }

    /// An answer within what policies may say at all.
    fn bounded(&self, answered: Answered) -> Answered {
        let asked = self.jobs.get(&answered.job).map_or(0, |job| job.spec.priority);
        // Where only a tenant was asked, it can ask for less and for no more.
        let most = if self.policies.cluster_answers(Hook::Priority) { PRIORITY_MAX } else { asked };
        let known = |(node, _): &(NodeId, i64)| self.nodes.contains_key(node);
        let cost = |(node, cost): (NodeId, i64)| (node, cost.clamp(-COST_MILLI_MAX, COST_MILLI_MAX));
        Answered {
            priority: answered.priority.map(|priority| priority.min(most)),
            costs: answered.costs.into_iter().filter(known).map(cost).collect(),
            ..answered
        }
    }

    pub(super) fn apply_policy(&mut self, version: &Version) {
        self.clock = self.clock.max(version.at);
        self.policies.put(version.clone());
        // Jobs are told apart by what the new policies look at, and devices belong to the pools they register.
        self.derive();
    }

    pub(super) fn take_answers(&mut self, answers: &[Answered], limits: &[Limited], at: Timestamp) {
        self.clock = self.clock.max(at);
        self.restore_answers(answers);
        let by_tenant = limits.iter().map(|limited| (limited.tenant.clone(), limited.clone()));
        self.policies.limits.extend(by_tenant);
    }

    /// No job of a tenant is ready any longer, perhaps. Limits nobody waits under are forgotten: the hour changes and so does
    /// what others hold, so policies are asked again before the next job starts.
    pub(super) fn forget_limits(&mut self, tenant: &TenantId) {
        if !self.queue.has_tenant(tenant) {
            self.retain_limits();
        }
    }

    /// Keep the limits of tenants whose jobs, or jobs below them, are ready.
    pub(super) fn retain_limits(&mut self) {
        if self.policies.limits.is_empty() {
            return;
        }
        let waiting: BTreeSet<TenantId> = self.tenants_waiting().into_iter().cloned().collect();
        self.policies.limits.retain(|tenant, _| waiting.contains(tenant));
    }

    /// Tenants with jobs that are ready and all tenants above them, each once.
    pub(super) fn tenants_waiting(&self) -> BTreeSet<&TenantId> {
        self.queue.tenants().flat_map(|tenant| self.lineage(tenant)).map(|tenant| &tenant.id).collect()
    }

    /// Those of them that policies are asked about. O(tenants with jobs that are ready), and nothing where no policy limits
    /// tenants.
    pub fn tenants_to_limit(&self) -> BTreeSet<&TenantId> {
        let asked = |tenant: &&TenantId| self.policies.asks(Hook::Limit, tenant);
        match self.policies.limit_tenants() {
            true => self.tenants_waiting().into_iter().filter(asked).collect(),
            false => BTreeSet::new(),
        }
    }

    /// A copy with what policies answered of further tenants, to look ahead from: nobody of them waits yet.
    pub fn with_limits(&self, limits: Vec<Limited>) -> State {
        let mut copy = self.clone();
        copy.policies.limits.extend(limits.into_iter().map(|limited| (limited.tenant.clone(), limited)));
        copy
    }

    /// Take answers as events and savepoints tell them.
    pub(super) fn restore_answers(&mut self, answers: &[Answered]) {
        for answered in answers {
            let Some(job) = self.jobs.get(&answered.job) else { continue };
            let kind = |(node, cost): &(NodeId, i64)| Some((self.capacity.filed(node)?.kind.clone(), *cost));
            let costs = answered.costs.iter().filter_map(kind).collect();
            let given = Given { bucket: self.bucket(job), answered: answered.clone(), costs };
            self.policies.answers.put(given);
        }
    }

    /// All answers as events tell them: each bucket by its first job, each kind by its first node.
    pub fn answered(&self) -> Vec<Answered> {
        if self.policies.is_empty() {
            return Vec::new();
        }
        let mut nodes = BTreeMap::new();
        for node in self.nodes.keys() {
            if let Some(filed) = self.capacity.filed(node) {
                nodes.entry(filed.kind.clone()).or_insert_with(|| node.clone());
            }
        }
        let of_bucket = |(bucket, answer): (&Bucket, &Answer)| {
            let job = self.queue.bucket(bucket)?.first()?.1;
            let costs =
                answer.costs.iter().filter_map(|(kind, cost)| Some((nodes.get(kind)?.clone(), *cost)));
            Some(Answered {
                job,
                bucket: bucket.key(),
                admission: answer.admission.clone(),
                priority: answer.priority,
                gpu_milliwatts: answer.gpu_milliwatts,
                costs: costs.collect(),
                victims: answer.victims.iter().map(|(job, may)| (*job, *may)).collect(),
                failed: answer.failed.clone(),
            })
        };
        self.policies.answers.iter().filter_map(of_bucket).collect()
    }

    /// The pool that a job names must be there.
    pub(super) fn check_pool(&self, pool: Option<&str>) -> Result<(), Refusal> {
        let Some(pool) = pool else { return Ok(()) };
        if self.policies.pool(pool).is_some() {
            return Ok(());
        }
        let pools = self.policies.rules().into_iter().flat_map(|rules| rules.pools.keys());
        let meant = nearest(pool, pools.map(String::as_str)).map(str::to_string);
        Err(Refusal::UnknownPool { pool: pool.to_string(), meant })
    }
}

fn check_bundle(scope: &Scope, bundle: &Bundle) -> Result<(), Refusal> {
    let invalid = |problem: String| Err(Refusal::Invalid { field: "files", problem });
    let bytes: usize = bundle.files.values().map(String::len).sum();
    if bundle.files.len() > FILES_MAX {
        return invalid(format!("a bundle has at most {FILES_MAX} files, not {}", bundle.files.len()));
    }
    if bytes > BYTES_MAX {
        return invalid(format!("a bundle has at most {BYTES_MAX} bytes, not {bytes}"));
    }
    if let Some(excess) = bundle.rules.excess() {
        return invalid(excess);
    }
    let registers = !bundle.rules.pools.is_empty() || !bundle.rules.schedules.is_empty();
    if registers && *scope != Scope::Cluster {
        let pools = bundle.rules.pools.keys().map(|name| format!("the pool `{name}`"));
        let rulesets = bundle.rules.schedules.keys().map(|name| format!("the ruleset `{name}`"));
        let registered = pools.chain(rulesets).collect::<Vec<_>>().join(", ");
        let why = "the policies of a tenant register nothing: pools and rulesets count for everyone";
        return invalid(format!("{why}; leave out {registered}"));
    }
    Ok(())
}

/// The pools that each device of a node belongs to now.
pub(super) fn pools_of(node: &Node, policies: &Policies) -> Vec<BTreeMap<String, bool>> {
    if policies.rules().is_none_or(|rules| rules.pools.is_empty()) {
        return Vec::new();
    }
    let devices = node.facts.gpus.iter().zip(&node.gpu_health);
    let of_device = |(gpu, health): (&crate::node::GpuFacts, &crate::node::GpuHealth)| {
        let wear = Wear { temperature_c: health.temperature_c, health_milli: health.word.health_milli() };
        policies.pools_of(&gpu.model, gpu.memory_mib, wear)
    };
    devices.map(of_device).collect()
}

//! Policies in steps 4 and 6: decide and apply the activation of bundles, and the answers of their hooks about waiting
//! jobs, tenants and failed attempts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::facts::command::Actor;
use crate::facts::event::{Event, NextPhase};
use crate::facts::refusal::Refusal;
use crate::ids::{JobId, NodeId, TenantId};
use crate::nearest::nearest;
use crate::objects::job::{Attempt, Exit, Job, Outcome, StopCause};
use crate::objects::node::Node;
use crate::objects::policy::{
    BundleVersion, FailedAttempt, FailureView, Hook, JobAnswer, POLICY_COST_MILLI_MAX, PolicyBundle, PolicyScope,
    Retry, RetryAnswer, TenantLimit,
};
use crate::objects::settings::PRIORITY_MAX;
use crate::policy::{BucketAnswer, DeviceCondition, Policies, ResolvedAnswer};
use crate::queue::Bucket;
use crate::state::State;
use crate::state::decision::Decision;
use crate::state::report::exit_text;
use crate::time::Timestamp;

/// Files of one bundle.
const FILES_MAX: usize = 64;
/// Bytes of all files of one bundle.
const BYTES_MAX: usize = 256 << 10;

/// An attempt that ended, with the next phase of its job.
pub(super) struct AttemptEnd<'a> {
    pub attempt: &'a Attempt,
    pub next: &'a NextPhase,
    pub exit: &'a Exit,
    /// When its processes were gone.
    pub at: Timestamp,
}

impl State {
    pub(super) fn decide_apply_policy(
        &self,
        by: &Actor,
        why: &str,
        scope: &PolicyScope,
        bundle: &Arc<PolicyBundle>,
        now: Timestamp,
    ) -> Result<Decision, Refusal> {
        if let PolicyScope::Tenant(tenant) = scope {
            self.tenant(tenant)?;
        }
        check_bundle(scope, bundle)?;
        self.check_pools(scope, bundle)?;
        let active = self.policies.active(scope).map(|version| version.bundle.hash.as_str());
        if active == Some(&bundle.hash) || (active.is_none() && bundle.files.is_empty()) {
            return Ok(Decision::done(Vec::new()));
        }
        Ok(Decision::done(vec![self.applied(by, why, scope, bundle, now)]))
    }

    pub(super) fn decide_roll_back_policy(
        &self,
        by: &Actor,
        why: &str,
        scope: &PolicyScope,
        number: Option<u64>,
        now: Timestamp,
    ) -> Result<Decision, Refusal> {
        let of_scope = self.policies.versions().into_iter().filter(|version| version.scope == *scope);
        let of_scope: Vec<&Arc<BundleVersion>> = of_scope.collect();
        let version = match number {
            Some(number) => of_scope.iter().find(|version| version.number == number),
            None => of_scope.iter().rev().nth(1),
        };
        let Some(version) = version else {
            return Err(Refusal::UnknownPolicy { number, scope: scope.clone() });
        };
        self.decide_apply_policy(by, why, scope, &version.bundle, now)
    }

    /// The event that deactivates the policies of a deleted tenant, if it has any.
    pub(super) fn tenant_policies_removed(&self, by: &Actor, tenant: &TenantId, now: Timestamp) -> Option<Event> {
        let scope = PolicyScope::Tenant(tenant.clone());
        self.policies.active(&scope)?;
        Some(self.applied(by, "the tenant was deleted", &scope, &Arc::default(), now))
    }

    fn applied(&self, by: &Actor, why: &str, scope: &PolicyScope, bundle: &Arc<PolicyBundle>, at: Timestamp) -> Event {
        let version = BundleVersion {
            number: self.policies.next_number(),
            scope: scope.clone(),
            bundle: bundle.clone(),
            by: by.name.clone(),
            why: why.to_string(),
            at,
        };
        Event::PolicyApplied { version: Box::new(version) }
    }

    /// No waiting job may lose the pool that it names: it would wait forever.
    fn check_pools(&self, scope: &PolicyScope, bundle: &PolicyBundle) -> Result<(), Refusal> {
        if *scope != PolicyScope::Cluster {
            return Ok(());
        }
        let unregistered = |pool: &&String| !bundle.rules.pools.contains_key(*pool);
        let waiting = self.jobs.values().filter(|job| job.attempt().is_none());
        let mut stranded = waiting.filter_map(|job| Some((job.id, job.spec.pool.as_ref().filter(unregistered)?)));
        match stranded.next() {
            Some((job, pool)) => Err(Refusal::PoolInUse { pool: pool.clone(), job }),
            None => Ok(()),
        }
    }

    /// Record the answers of the active bundles that still apply: about jobs that wait or have failed, and about
    /// tenants whose jobs wait.
    pub(super) fn decide_answers(
        &self,
        bundles: &[String],
        answers: &[JobAnswer],
        limits: &[TenantLimit],
        retries: &[RetryAnswer],
        now: Timestamp,
    ) -> Result<Decision, Refusal> {
        // Exactly the active bundles must have answered: a bundle activated since has not been called.
        let active = self.policies.active_versions();
        if !active.iter().map(|version| &version.bundle.hash).eq(bundles) {
            return Err(Refusal::Invalid { field: "bundles", problem: "are no longer active".to_string() });
        }
        let still_applies = |answer: &&JobAnswer| {
            let job = self.jobs.get(&answer.job).filter(|job| job.is_ready());
            let has_policies = |job: &&Job| self.policies.apply_to(&job.spec.tenant);
            job.filter(has_policies).is_some_and(|job| self.bucket(job).key() == answer.bucket)
        };
        let answers: Vec<JobAnswer> =
            answers.iter().filter(still_applies).cloned().map(|answer| self.bounded(answer)).collect();
        let tenants = self.tenants_to_limit();
        let limits: Vec<TenantLimit> = limits.iter().filter(|limit| tenants.contains(&limit.tenant)).cloned().collect();
        let mut events = match answers.is_empty() && limits.is_empty() {
            true => Vec::new(),
            false => vec![Event::PolicyAnswered { bundles: bundles.to_vec(), answers, limits, at: now }],
        };
        let failed = retries.iter().filter_map(|answer| Some((answer, self.failure_of(answer.job)?)));
        let failed = failed.filter(|(answer, failure)| answer.attempt == failure.seen.attempt);
        // Only the first answer about a job counts, so that a job whose restart is refused twice ends once.
        let mut answered = BTreeSet::new();
        for (answer, failure) in failed.filter(|(answer, _)| answered.insert(answer.job)) {
            self.decide_retry(bundles, answer, failure, now, &mut events);
        }
        self.settle_ends(&mut events, now);
        Ok(Decision::done(events))
    }

    /// A failed job sleeps for the answered delay, or ends.
    fn decide_retry(
        &self,
        bundles: &[String],
        answer: &RetryAnswer,
        failure: &FailedAttempt,
        now: Timestamp,
        events: &mut Vec<Event>,
    ) {
        let Some(planned) = self.jobs.get(&answer.job).and_then(|job| job.wakes_at) else { return };
        if answer.retry.is_none() && answer.failed == failure.failed {
            return;
        }
        let wakes_at = answer.retry.as_ref().map_or(planned, |retry| retry.wakes_at(planned, now));
        events.push(Event::RetryAnswered { bundles: bundles.to_vec(), answer: answer.clone(), wakes_at, at: now });
        if let Some(Retry::No { why }) = &answer.retry {
            let why = format!("{}; a policy refused the restart: {why}", exit_text(&failure.seen.exit));
            events.push(Event::JobEnded { job: answer.job, outcome: Outcome::Failed, why, at: now });
        }
    }

    /// The failed attempt of a job that sleeps until the `retry` hook has answered.
    pub fn failure_of(&self, job: JobId) -> Option<&FailedAttempt> {
        let failed = self.jobs.get(&job).filter(|_| !self.policies.failures.is_empty())?;
        self.policies.failure(job, &failed.spec.tenant)
    }

    /// Keep a failed attempt whose job restarts, if a policy has the `retry` hook. An attempt that was ordered to stop
    /// did not fail by itself.
    pub(super) fn keep_failure(&mut self, job: JobId, tenant: &TenantId, end: &AttemptEnd) {
        let AttemptEnd { attempt, next, exit, at } = *end;
        let cause = attempt.stopping.as_ref().map(|stopping| &stopping.cause);
        let by_itself = matches!(cause, None | Some(StopCause::GangFailed));
        let restarts = matches!(next, NextPhase::Queued { wakes_at: Some(_), .. });
        if by_itself && restarts && self.policies.answers_hook(Hook::Retry, tenant) {
            let seen = FailureView {
                exit: exit.clone(),
                attempt: attempt.number,
                failures: self.jobs.get(&job).map_or(0, |job| job.restarts),
                ran_ms: at.since(attempt.started_at.unwrap_or(attempt.placed_at)),
                nodes: attempt.nodes().into_iter().collect(),
            };
            self.policies.failures.insert(job, FailedAttempt { seen, failed: None });
        }
    }

    /// Apply an answer of the `retry` hook. The hook is called again if it failed.
    pub(super) fn take_retry(&mut self, answer: &RetryAnswer, wakes_at: Timestamp, at: Timestamp) {
        match (&answer.retry, self.policies.failures.get_mut(&answer.job)) {
            (None, Some(failure)) => failure.failed.clone_from(&answer.failed),
            _ => drop(self.policies.failures.remove(&answer.job)),
        }
        self.move_job(answer.job, at, |job| job.wakes_at = Some(wakes_at));
    }

    /// An answer clamped to what policies may decide.
    fn bounded(&self, answer: JobAnswer) -> JobAnswer {
        let requested = self.jobs.get(&answer.job).map_or(0, |job| job.spec.priority);
        // A tenant's bundle may lower the priority of a job and not raise it.
        let most = if self.policies.cluster_answers(Hook::Priority) { PRIORITY_MAX } else { requested };
        let known = |(node, _): &(NodeId, i64)| self.nodes.contains_key(node);
        let cost = |(node, cost): (NodeId, i64)| (node, cost.clamp(-POLICY_COST_MILLI_MAX, POLICY_COST_MILLI_MAX));
        JobAnswer {
            priority: answer.priority.map(|priority| priority.min(most)),
            costs: answer.costs.into_iter().filter(known).map(cost).collect(),
            ..answer
        }
    }

    pub(super) fn apply_policy(&mut self, version: &BundleVersion) {
        self.clock = self.clock.max(version.at);
        self.policies.activate(version.clone());
        // Buckets depend on the attributes that the policies read, and the pools of devices on the registered pools.
        self.derive();
    }

    pub(super) fn take_answers(&mut self, answers: &[JobAnswer], limits: &[TenantLimit], at: Timestamp) {
        self.clock = self.clock.max(at);
        self.restore_answers(answers);
        let by_tenant = limits.iter().map(|limit| (limit.tenant.clone(), limit.clone()));
        self.policies.limits.extend(by_tenant);
    }

    /// Drop the limits of a tenant that has no ready job any more. The time of day and the usage of other tenants
    /// change, so policies are called again before its next job starts.
    pub(super) fn forget_limits(&mut self, tenant: &TenantId) {
        if !self.queue.has_tenant(tenant) {
            self.retain_limits();
        }
    }

    /// Keep only the limits of tenants with ready jobs and of their ancestors.
    pub(super) fn retain_limits(&mut self) {
        if self.policies.limits.is_empty() {
            return;
        }
        let waiting: BTreeSet<TenantId> = self.tenants_waiting().into_iter().cloned().collect();
        self.policies.limits.retain(|tenant, _| waiting.contains(tenant));
    }

    /// Tenants with ready jobs and all their ancestors.
    pub(super) fn tenants_waiting(&self) -> BTreeSet<&TenantId> {
        self.queue.tenants().flat_map(|tenant| self.lineage(tenant)).map(|tenant| &tenant.id).collect()
    }

    /// The waiting tenants for which a policy has the `limit` hook. O(tenants with ready jobs); free of cost without
    /// such a policy.
    pub fn tenants_to_limit(&self) -> BTreeSet<&TenantId> {
        let has_hook = |tenant: &&TenantId| self.policies.answers_hook(Hook::Limit, tenant);
        match self.policies.limit_tenants() {
            true => self.tenants_waiting().into_iter().filter(has_hook).collect(),
            false => BTreeSet::new(),
        }
    }

    /// A copy with policy limits of further tenants, for a dry run: no job of these tenants waits yet.
    pub fn with_limits(&self, limits: Vec<TenantLimit>) -> State {
        let mut copy = self.clone();
        copy.policies.limits.extend(limits.into_iter().map(|limit| (limit.tenant.clone(), limit)));
        copy
    }

    /// Apply the answers of an event or a savepoint.
    pub(super) fn restore_answers(&mut self, answers: &[JobAnswer]) {
        for answer in answers {
            let Some(job) = self.jobs.get(&answer.job) else { continue };
            let kind = |(node, cost): &(NodeId, i64)| Some((self.resources.entry(node)?.kind.clone(), *cost));
            let costs = answer.costs.iter().filter_map(kind).collect();
            let resolved = ResolvedAnswer { bucket: self.bucket(job), answered: answer.clone(), costs };
            self.policies.answers.put(resolved);
        }
    }

    /// All answers in the form of events: each bucket by its first job, each kind by its first node.
    pub fn answered(&self) -> Vec<JobAnswer> {
        if self.policies.is_empty() {
            return Vec::new();
        }
        let mut nodes = BTreeMap::new();
        for node in self.nodes.keys() {
            if let Some(entry) = self.resources.entry(node) {
                nodes.entry(entry.kind.clone()).or_insert_with(|| node.clone());
            }
        }
        let of_bucket = |(bucket, answer): (&Bucket, &BucketAnswer)| {
            let job = self.queue.bucket(bucket)?.first()?.1;
            let costs = answer.costs.iter().filter_map(|(kind, cost)| Some((nodes.get(kind)?.clone(), *cost)));
            Some(JobAnswer {
                job,
                bucket: bucket.key(),
                admission: answer.admission.clone(),
                priority: answer.priority,
                gpu_milliwatts: answer.gpu_milliwatts,
                costs: costs.collect(),
                victims: answer.victims.iter().map(|(job, allowed)| (*job, *allowed)).collect(),
                failed: answer.failed.clone(),
            })
        };
        self.policies.answers.iter().filter_map(of_bucket).collect()
    }

    /// The pool that a job names must be registered.
    pub(super) fn check_pool(&self, pool: Option<&str>) -> Result<(), Refusal> {
        let Some(pool) = pool else { return Ok(()) };
        if self.policies.pool(pool).is_some() {
            return Ok(());
        }
        let pools = self.policies.rules().into_iter().flat_map(|rules| rules.pools.keys());
        let suggestion = nearest(pool, pools.map(String::as_str)).map(str::to_string);
        Err(Refusal::UnknownPool { pool: pool.to_string(), suggestion })
    }
}

fn check_bundle(scope: &PolicyScope, bundle: &PolicyBundle) -> Result<(), Refusal> {
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
    if registers && *scope != PolicyScope::Cluster {
        let pools = bundle.rules.pools.keys().map(|name| format!("the pool `{name}`"));
        let rulesets = bundle.rules.schedules.keys().map(|name| format!("the ruleset `{name}`"));
        let registered = pools.chain(rulesets).collect::<Vec<_>>().join(", ");
        let why = "policies of a tenant may not register pools or rulesets, because these apply to all tenants";
        return invalid(format!("{why}; leave out {registered}"));
    }
    Ok(())
}

/// The pools of each device of a node, each with whether the pool admits the device in its current condition.
pub(super) fn pools_of(node: &Node, policies: &Policies) -> Vec<BTreeMap<String, bool>> {
    if policies.rules().is_none_or(|rules| rules.pools.is_empty()) {
        return Vec::new();
    }
    let devices = node.facts.gpus.iter().zip(&node.gpu_health);
    let of_device = |(gpu, health): (&crate::gpu::device::GpuFacts, &crate::gpu::device::GpuHealth)| {
        let condition =
            DeviceCondition { temperature_c: health.temperature_c, health_milli: health.status.health_milli() };
        policies.pools_of(&gpu.model, gpu.memory_mib, condition)
    };
    devices.map(of_device).collect()
}

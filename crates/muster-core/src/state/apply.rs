//! Step 6, apply: change the state by an event. It cannot fail: the event has been decided, and a contradiction is a
//! bug that panics.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::accounting::ledger::LeaseEnd;
use crate::accounting::preemption_loss::{kept_ms, lost_gpu_ms};
use crate::accounting::tenant::Tenant;
use crate::estimate::expected_end::planned_end;
use crate::estimate::gittins::ClassHistory;
use crate::facts::command::IdempotencyRecord;
use crate::facts::command::{ArraySpec, IdempotencyKey, JobChange};
use crate::facts::event::{Event, NextPhase, RequeueCause};
use crate::gpu::device::GpuHealth;
use crate::gpu::partition::Partition;
use crate::ids::{JobId, NodeId, TenantId};
use crate::objects::charge::Charge;
use crate::objects::job::{
    Attempt, Dependency, Exit, Job, JobSpec, NodeReport, Outcome, Phase, PlacedTask, StopCause, Stopping, Unkillable,
};
use crate::objects::node::{
    HealthFailure, Node, NodeFacts, NodeState, NodeStatus, OperatorLabels, PowerAction, PowerFailure, Recorded,
};
use crate::objects::tenant::TenantConfig;
use crate::state::gang::{hold_port, release_port};
use crate::state::policies::{AttemptEnd, pools_of};
use crate::state::usage::budgets::budgeted;
use crate::state::{ArrayState, Claim, EndedJob, State};
use crate::time::Timestamp;

impl State {
    /// Apply an event.
    pub fn apply(&mut self, event: &Event) {
        self.seq += 1;
        match event {
            Event::JobSubmitted { job, spec, array, held_by, key, open_dependencies, at } => {
                self.clock = self.clock.max(*at);
                let submission = Submission { spec, held_by: held_by.as_deref(), open_dependencies, at: *at };
                self.accept(*job, array.as_ref(), &submission);
                self.remember_key(*job, &spec.tenant, key.as_ref(), *at);
            }
            Event::JobHeld { job, by, why, at } => {
                let (by, why) = (by.clone(), why.clone());
                self.move_job(*job, *at, |job| job.phase = Phase::Held { by, why, since: *at });
            }
            Event::JobReleased { job, at, .. } => self.move_job(*job, *at, |job| {
                job.phase = Phase::Queued { preempted: false, returning: false, since: *at };
                // A release by a person resets the count.
                job.requeues = 0;
            }),
            Event::JobWoken { job, at } => self.move_job(*job, *at, |job| job.wakes_at = None),
            Event::JobChanged { job, change, at } => self.change(*job, change, *at),
            Event::JobEnded { job, outcome, at, .. } => self.end_job(*job, *outcome, *at),

            Event::JobPlaced {
                job,
                attempt,
                epoch,
                tasks,
                effective_priority,
                expected_ms,
                revocable,
                score,
                self_fence,
                master_port,
                start_bound_ms,
                at,
                ..
            } => {
                let attempt = Attempt {
                    effective_priority: *effective_priority,
                    expected_ms: *expected_ms,
                    revocable: *revocable,
                    score: score.clone(),
                    self_fence: *self_fence,
                    master_port: *master_port,
                    start_bound_ms: *start_bound_ms,
                    ..Attempt::placed(*attempt, *epoch, tasks, *at)
                };
                self.place(*job, attempt);
            }
            Event::AttemptStarted { job, node, whole, at, .. } => self.start(*job, node, *whole, *at),
            Event::AttemptStopping { job, cause, grace_ms, at, .. } => {
                if let StopCause::Preempted { .. } = cause {
                    self.count_preemption_loss(*job, *at);
                }
                let stopping = Stopping { cause: cause.clone(), since: *at, grace_ms: *grace_ms };
                self.move_job(*job, *at, |job| attempt_mut(job).stopping = Some(stopping));
            }
            Event::NodePartEnded { job, node, exit, stopped, ended_at, prolog_failed, at, .. } => {
                let (exit, stopped, prolog_failed) = (exit.clone(), *stopped, *prolog_failed);
                let part = NodeReport::Ended { exit, stopped, ended_at: *ended_at, prolog_failed };
                self.move_job(*job, *at, |job| attempt_mut(job).reports.insert(node, part));
            }
            Event::AttemptSignalled { job, at, .. } => {
                self.move_job(*job, *at, |job| attempt_mut(job).signalled_at = Some(*at));
            }
            Event::AttemptUnkillable { job, node, processes, at, .. } => {
                let unkillable = Unkillable { node: node.clone(), processes: processes.clone(), since: *at };
                self.move_job(*job, *at, |job| attempt_mut(job).unkillable = Some(Box::new(unkillable)));
            }
            Event::AttemptEnded { job, next, exit, charge, charged_until, at, .. } => {
                let end = LeaseEnd { charged_until: charged_until.unwrap_or(*at), released_at: *at };
                self.settle(*job, next, exit, *charge, end);
            }

            Event::CheckpointSaved { job, grace_ms, at, .. } => self.move_job(*job, *at, |job| {
                let attempt = attempt_mut(job);
                attempt.saved_at = Some(*at);
                if let (Some(stopping), Some(grace_ms)) = (&mut attempt.stopping, grace_ms) {
                    stopping.grace_ms = *grace_ms;
                }
            }),

            Event::StartForecast { job, range, at } => {
                self.clock = self.clock.max(*at);
                let Some(job) = self.jobs.get_mut(job) else { panic!("{job} does not exist") };
                job.first_forecast = Some(Box::new(*range));
            }

            Event::ClaimMade { job, tasks, victims, at, until } => {
                self.clock = self.clock.max(*at);
                let claim = Claim { tasks: tasks.clone(), victims: victims.clone(), until: *until };
                let former = self.claims.insert(*job, claim);
                assert!(former.is_none(), "{job} has two claims");
            }
            Event::ClaimEnded { job, at, .. } => {
                self.clock = self.clock.max(*at);
                let claim = self.claims.remove(job);
                assert!(claim.is_some(), "{job} has no claim to end");
            }
            Event::PlanAdopted { .. } => {}

            Event::TenantCreated { id, config, at } => self.create_tenant(id, config, *at),
            Event::TenantChanged { id, config, at } => self.change_tenant(id, config, *at),
            Event::TenantDeleted { id, at } => {
                self.clock = self.clock.max(*at);
                let tenant = self.tenants.remove(id);
                assert!(tenant.is_some_and(|tenant| tenant.live_jobs == 0), "{id} is gone or busy");
                self.policies.forget(id);
                self.policies.bucket_criteria.exact_limits = Arc::new(budgeted(self));
            }

            Event::NodeRegistered { node, facts, at } => self.register(node, facts, *at),
            Event::NodeDeclared { node, facts, at, .. } => self.declare(node, facts, *at),
            Event::NodeLabelled { node, labels, taints, at, .. } => {
                let operator = OperatorLabels { labels: labels.clone(), taints: taints.clone() };
                self.change_node(node, *at, |node| node.operator = operator);
            }
            Event::NodeStateChanged { node, status, by, why, at } => {
                let single = Recorded { status: *status, by: by.clone(), why: why.clone(), since: *at };
                self.change_node(node, *at, |node| {
                    node.state = NodeState::of_single_status(single);
                    node.drain = None;
                });
            }
            Event::NodeServiceChanged { node, service, by, why, drain, at } => {
                let service = Recorded { status: *service, by: by.clone(), why: why.clone(), since: *at };
                self.change_node(node, *at, |node| {
                    node.state.service = service;
                    node.drain = drain.clone();
                });
            }
            Event::NodeSightChanged { node, sight, silent_since, by, why, at } => {
                self.change_node(node, *at, |node| {
                    // A new leader restarts the silence of a node that was lost before.
                    let known = &node.state.sight;
                    let since = if known.status == *sight { known.since } else { *at };
                    node.state.sight = Recorded { status: *sight, by: by.clone(), why: why.clone(), since };
                    node.state.silent_since = *silent_since;
                });
            }
            Event::NodeHealthChanged { node, failure, at } => {
                let failure = failure.clone().map(|why| HealthFailure { why, since: *at });
                self.change_node(node, *at, |node| node.health_failure = failure);
            }
            Event::NodePowerReported { node, action, failure, at } => {
                self.change_node(node, *at, |node| note_power(node, *action, failure.as_deref(), *at));
            }
            Event::NodeRemoved { node, at } => self.remove_node(node, *at),
            Event::GpuHealthChanged {
                gpu, status, why, cooling_until, temperature_c, declared, reading, at, ..
            } => {
                let health = GpuHealth {
                    status: *status,
                    why: why.clone(),
                    since: *at,
                    cooling_until: *cooling_until,
                    temperature_c: *temperature_c,
                    declared: declared.clone(),
                    reading: *reading,
                };
                self.change_node(&gpu.node, *at, |node| node.gpu_health[usize::from(gpu.index)] = health);
            }

            Event::GpuPartitioned { gpu, instances, at, .. } => {
                let partition = Partition { instances: instances.clone(), since: *at };
                self.change_node(&gpu.node, *at, |node| {
                    assert!(!node.is_held(usize::from(gpu.index)), "{gpu} was partitioned while it is held");
                    node.partitions.insert(gpu.index, partition);
                });
            }

            Event::WindowOpened { window, at } => {
                self.clock = self.clock.max(*at);
                self.windows.insert(window.name.clone(), (**window).clone());
            }
            Event::WindowClosed { name, at, .. } => {
                self.clock = self.clock.max(*at);
                self.windows.remove(name);
            }

            Event::SecretSet { secret, at } => {
                self.clock = self.clock.max(*at);
                self.secrets.insert(secret.id.clone(), (**secret).clone());
            }
            Event::SecretRemoved { id, at } => {
                self.clock = self.clock.max(*at);
                self.secrets.remove(id);
            }

            Event::Configured { settings, at } => {
                self.clock = self.clock.max(*at);
                let half_life_ms = self.settings.usage_half_life_ms;
                if settings.usage_half_life_ms != half_life_ms {
                    self.tenants.values_mut().for_each(|tenant| tenant.advance_all(*at, half_life_ms));
                }
                self.settings = (**settings).clone();
            }
            Event::PolicyApplied { version } => self.apply_policy(version),
            Event::PolicyAnswered { answers, limits, at, .. } => self.take_answers(answers, limits, *at),
            Event::RetryAnswered { answer, wakes_at, at, .. } => self.take_retry(answer, *wakes_at, *at),
            Event::TokenAdded { token, at } => {
                self.clock = self.clock.max(*at);
                self.tokens.insert(token.id.clone(), token.clone());
            }
            Event::TokenRevoked { id, at } => {
                self.clock = self.clock.max(*at);
                self.tokens.remove(id);
            }
            Event::JoinTokenAdded { token, at } => {
                self.clock = self.clock.max(*at);
                self.join_tokens.insert(token.id.clone(), (**token).clone());
            }
            Event::JoinTokenEnded { id, at, .. } => {
                self.clock = self.clock.max(*at);
                self.join_tokens.remove(id);
            }
            Event::NodeEnrolled { node, token, at } => {
                self.clock = self.clock.max(*at);
                self.enrol(node, token, *at);
            }
            Event::ClusterCaChosen { fingerprint, at } => {
                self.clock = self.clock.max(*at);
                self.cluster_ca = Some(fingerprint.clone());
            }
            Event::Acted { at, .. } | Event::WaitNoted { at, .. } => self.clock = self.clock.max(*at),
            Event::Forgotten { before, trimmed_before } => self.forget_before(*before, *trimmed_before),
        }
    }

    // Submission.

    fn accept(&mut self, id: JobId, array: Option<&ArraySpec>, submission: &Submission) {
        assert_eq!(id, JobId::single(self.next_job), "job numbers are consecutive");
        self.next_job += 1;
        let jobs = array.map_or(1, |array| array.indexes.len() as u64);
        if self.workload_mix.add(submission.spec, jobs) {
            self.resources.set_mix(self.workload_mix.snapshot());
        }
        match array {
            None => self.add_job(id, submission),
            Some(array) => {
                let live = array.indexes.len() as u32;
                let record = ArrayState { running_max: array.running_max, live, active: 0, all_done: true };
                self.arrays.insert(id.number, record);
                for index in &array.indexes {
                    self.add_job(JobId::of_array(id.number, *index), submission);
                }
            }
        }
    }

    fn add_job(&mut self, id: JobId, submission: &Submission) {
        let Submission { spec, held_by, open_dependencies, at } = *submission;
        let phase = match held_by {
            Some(by) => Phase::Held { by: by.to_string(), why: "held at submission".into(), since: at },
            None => Phase::Queued { preempted: false, returning: false, since: at },
        };
        let class_number = self.class_history_mut(spec).add_submitted();
        let job = Job {
            id,
            spec: spec.clone(),
            submitted_at: at,
            phase,
            attempts: 0,
            restarts: 0,
            preemptions: 0,
            requeues: 0,
            ran_ms: 0,
            class_number,
            wakes_at: spec.start_after.filter(|start| *start > at),
            open_dependencies: open_dependencies.clone(),
            first_forecast: None,
        };
        for dependency in &job.open_dependencies {
            self.dependents.entry(dependency.job).or_default().insert(id);
        }
        self.tenant_mut(&job.spec.tenant).add_job(&job.spec.user);
        self.ledger.account_mut(&job.spec.tenant).submitted += 1;
        self.index_job(&job);
        let former = self.jobs.insert(id, job);
        assert!(former.is_none(), "{id} exists twice");
    }

    fn remember_key(&mut self, job: JobId, tenant: &TenantId, key: Option<&IdempotencyKey>, at: Timestamp) {
        if let Some(key) = key {
            let used = IdempotencyRecord { job, body_hash: key.body_hash.clone(), at };
            self.keys.entry(tenant.clone()).or_default().insert(key.key.clone(), used);
        }
    }

    // Changes of live jobs.

    /// Change one job, and update the indexes that contain it: the queue, the deadlines and the planned ends.
    pub(super) fn move_job(&mut self, id: JobId, at: Timestamp, change: impl FnOnce(&mut Job)) {
        self.clock = self.clock.max(at);
        let Some(mut job) = self.jobs.remove(&id) else { panic!("{id} does not exist") };
        self.unindex_job(&job);
        change(&mut job);
        self.index_job(&job);
        self.forget_limits(&job.spec.tenant);
        self.jobs.insert(id, job);
    }

    fn index_job(&mut self, job: &Job) {
        if job.is_queued() {
            self.queue.add(job, self.has_array_limit(job.id), &self.policies.bucket_criteria);
        }
        if let Some(deadline) = deadline(job) {
            self.deadlines.insert((deadline, job.id));
        }
        if let Some(attempt) = job.attempt() {
            self.ends.insert((planned_end(job, attempt), job.id));
        }
    }

    fn unindex_job(&mut self, job: &Job) {
        if job.is_queued()
            && let Some(bucket) = self.queue.remove(job, self.has_array_limit(job.id), &self.policies.bucket_criteria)
        {
            self.policies.answers.forget(&bucket);
        }
        if let Some(deadline) = deadline(job) {
            self.deadlines.remove(&(deadline, job.id));
        }
        if let Some(attempt) = job.attempt() {
            self.ends.remove(&(planned_end(job, attempt), job.id));
        }
    }

    fn change(&mut self, id: JobId, change: &JobChange, at: Timestamp) {
        self.move_job(id, at, |job| {
            let mut spec = (*job.spec).clone();
            spec.name = change.name.clone().unwrap_or(spec.name);
            spec.priority = change.priority.unwrap_or(spec.priority);
            spec.time_limit_ms = change.time_limit_ms.unwrap_or(spec.time_limit_ms);
            spec.labels = change.labels.clone().unwrap_or(spec.labels);
            job.spec = Arc::new(spec);
        });
    }

    // Attempts.

    fn place(&mut self, id: JobId, mut attempt: Attempt) {
        let Some(job) = self.jobs.get(&id) else { panic!("{id} does not exist") };
        attempt.milliwatts = self.milliwatts_of(&attempt.tasks);
        attempt.gpu_milliwatts_max = self.bucket_answer(&self.bucket(job)).and_then(|answer| answer.gpu_milliwatts);
        let (spec, forecast, at) = (job.spec.clone(), job.first_forecast.clone(), attempt.placed_at);
        let demand = attempt.demand(&spec);
        for task in &attempt.tasks {
            self.take_slots(id, &spec, task);
            self.node_mut(&task.node).placed_at = at;
        }
        hold_port(&mut self.master_ports, &attempt);
        if let Some(range) = forecast {
            self.calibration.add(*range, at);
        }
        self.move_job(id, at, |job| {
            assert!(job.is_queued(), "{id} was placed while {}", job.phase_name());
            job.first_forecast = None;
            job.attempts = attempt.number;
            job.phase = Phase::Active(Box::new(attempt));
        });
        let half_life_ms = self.settings.usage_half_life_ms;
        self.tenant_mut(&spec.tenant).take(&spec.user, demand, at, half_life_ms);
        self.count_array(id, |array| array.active += 1);
    }

    fn take_slots(&mut self, id: JobId, spec: &JobSpec, task: &PlacedTask) {
        let each = &spec.tasks[task.group as usize].each;
        let node = self.node_mut(&task.node);
        node.take_leases(id, task);
        node.cpus_held += u64::from(each.cpus);
        node.memory_mib_held += each.memory_mib;
        node.jobs.insert(id);
        self.refresh_node(&task.node);
    }

    fn give_slots_back(&mut self, id: JobId, spec: &JobSpec, task: &PlacedTask) {
        let each = &spec.tasks[task.group as usize].each;
        let node = self.node_mut(&task.node);
        node.end_leases(id, task);
        node.cpus_held -= u64::from(each.cpus);
        node.memory_mib_held -= each.memory_mib;
        node.jobs.remove(&id);
        self.refresh_node(&task.node);
    }

    fn start(&mut self, id: JobId, node: &NodeId, whole: bool, at: Timestamp) {
        self.move_job(id, at, |job| {
            let attempt = attempt_mut(job);
            attempt.reports.insert(node, NodeReport::Started);
            if attempt.start_bound_ms.is_some() {
                attempt.first_started_at.get_or_insert(at);
            }
            if whole {
                attempt.started_at = Some(at);
            }
        });
        if whole {
            let Some(job) = self.jobs.get(&id) else { panic!("{id} does not exist") };
            let (spec, number) = (job.spec.clone(), job.class_number);
            self.class_history_mut(&spec).add_started(number, at);
        }
    }

    /// Count the unsaved work of a preempted job against the loss limits of its tenant and all ancestors.
    fn count_preemption_loss(&mut self, id: JobId, at: Timestamp) {
        let Some(job) = self.jobs.get(&id) else { panic!("{id} does not exist") };
        let lost = job.attempt().map_or(0, |attempt| lost_gpu_ms(job, attempt, at));
        let lineage: Vec<TenantId> = self.lineage(&job.spec.tenant).map(|tenant| tenant.id.clone()).collect();
        for id in lineage {
            let tenant = self.tenant_mut(&id);
            if let Some(per_day) = tenant.config.preemption_loss_gpu_ms_per_day {
                tenant.preemption_loss.add(lost, per_day, at);
            }
        }
    }

    /// End the leases of an attempt, charge its usage, and move the job to its next phase.
    fn settle(&mut self, id: JobId, next: &NextPhase, exit: &Exit, charge: Charge, end: LeaseEnd) {
        let at = end.released_at;
        let Some(job) = self.jobs.get(&id) else { panic!("{id} does not exist") };
        let Some(attempt) = job.attempt().cloned() else { panic!("{id} has no attempt to end") };
        let spec = job.spec.clone();
        for task in &attempt.tasks {
            self.give_slots_back(id, &spec, task);
        }
        release_port(&mut self.master_ports, &attempt);
        let half_life_ms = self.settings.usage_half_life_ms;
        self.tenant_mut(&spec.tenant).give_back(
            &spec.user,
            (attempt.demand(&spec), attempt.placed_at),
            end,
            half_life_ms,
        );
        self.ledger.account_mut(&spec.tenant).used += charge;
        if !self.policies.is_empty() {
            self.policies.answers.forget_victim(id);
            let end = AttemptEnd { attempt: &attempt, next, exit, at: end.charged_until };
            self.keep_failure(id, &spec.tenant, &end);
        }
        let ran_ms = self.record_runtime(id, &attempt, next, end.charged_until);
        self.count_array(id, |array| array.active -= 1);
        match next {
            NextPhase::Ended { outcome, .. } => self.end_job(id, *outcome, at),
            NextPhase::Queued { cause, wakes_at } => self.move_job(id, at, |job| {
                let preempted = *cause == RequeueCause::Preempted;
                let lost_node = matches!(exit, Exit::Unknown { .. });
                let returning = (lost_node && *cause == RequeueCause::Requeued) || *cause == RequeueCause::NodeFault;
                job.phase = Phase::Queued { preempted, returning, since: at };
                job.wakes_at = *wakes_at;
                job.ran_ms = ran_ms;
                match cause {
                    RequeueCause::Preempted => job.preemptions += 1,
                    RequeueCause::Restarted => job.restarts += 1,
                    RequeueCause::Requeued => job.requeues += 1,
                    RequeueCause::NodeFault => {}
                }
            }),
            NextPhase::Held { by, why } => self.move_job(id, at, |job| {
                job.phase = Phase::Held { by: by.clone(), why: why.clone(), since: at };
                job.ran_ms = ran_ms;
            }),
        }
    }

    /// Record the runtime of an attempt until its processes were gone: a server outage that delayed the report does not
    /// count. Returns the runtime of the job over all attempts, without lost work.
    fn record_runtime(&mut self, id: JobId, attempt: &Attempt, next: &NextPhase, at: Timestamp) -> i64 {
        let Some(job) = self.jobs.get(&id) else { panic!("{id} does not exist") };
        let (spec, number) = (job.spec.clone(), job.class_number);
        // Only a job that ended by itself shows its full runtime.
        if let (NextPhase::Ended { .. }, Some(started), None) = (next, attempt.started_at, &attempt.stopping) {
            // A start reported after the end says nothing about the start: the placement is the better estimate.
            let began = if at < started { attempt.placed_at } else { started };
            let ran_ms = job.ran_ms.saturating_add(at.since(began));
            self.recent_runtimes.add(ran_ms);
            let tenant = self.tenant_mut(&spec.tenant);
            tenant.note_runtime(&spec.user, ran_ms, spec.time_limit_ms);
            tenant.runtimes.add(&spec.name, ran_ms, at);
            self.class_history_mut(&spec).add_ended(number, ran_ms);
            return ran_ms;
        }
        let ran_ms = job.ran_ms.saturating_add(kept_ms(job, attempt, at));
        self.class_history_mut(&spec).add_stopped(number, ran_ms);
        ran_ms
    }

    fn class_history_mut(&mut self, spec: &JobSpec) -> &mut ClassHistory {
        self.tenant_mut(&spec.tenant).class_history_mut(&spec.user, spec.demand().gpu_milli)
    }

    // Ends of jobs.

    fn end_job(&mut self, id: JobId, outcome: Outcome, at: Timestamp) {
        self.clock = self.clock.max(at);
        let Some(job) = self.jobs.remove(&id) else { panic!("{id} does not exist") };
        self.unindex_job(&job);
        self.forget_limits(&job.spec.tenant);
        self.policies.failures.remove(&id);
        for dependency in &job.open_dependencies {
            self.forget_dependent(dependency.job, id);
        }
        self.tenant_mut(&job.spec.tenant).end_job(&job.spec.user);
        let account = self.ledger.account_mut(&job.spec.tenant);
        match outcome {
            Outcome::Done => account.done += 1,
            Outcome::Failed => account.failed += 1,
            Outcome::Cancelled => account.cancelled += 1,
        }
        self.remember_end(id, outcome, at);
        self.end_array_task(id, outcome, at);
    }

    /// Record the outcome of a job or array, and resolve the dependencies on it.
    fn remember_end(&mut self, id: JobId, outcome: Outcome, at: Timestamp) {
        let former = self.ended.insert(id, EndedJob { outcome, at });
        assert!(former.is_none(), "{id} ended twice");
        for dependent in self.dependents.remove(&id).into_iter().flatten() {
            self.move_job(dependent, at, |job| {
                job.open_dependencies.retain(|open| open.job != id || !outcome.satisfies(open.when));
            });
            // A dependency that can no longer be met stays open until the next event ends its job.
            if self.jobs[&dependent].open_dependencies.iter().any(|open| open.job == id) {
                self.dependents.entry(id).or_default().insert(dependent);
            }
        }
    }

    fn end_array_task(&mut self, id: JobId, outcome: Outcome, at: Timestamp) {
        let mut whole = None;
        self.count_array(id, |array| {
            array.live -= 1;
            array.all_done &= outcome == Outcome::Done;
            whole = (array.live == 0).then(|| array.outcome());
        });
        if let Some(outcome) = whole {
            self.arrays.remove(&id.number);
            self.remember_end(JobId::single(id.number), outcome, at);
        }
    }

    fn count_array(&mut self, id: JobId, count: impl FnOnce(&mut ArrayState)) {
        if id.index.is_some()
            && let Some(array) = self.arrays.get_mut(&id.number)
        {
            count(array);
        }
    }

    fn forget_dependent(&mut self, id: JobId, dependent: JobId) {
        if let Some(dependents) = self.dependents.get_mut(&id) {
            dependents.remove(&dependent);
            if dependents.is_empty() {
                self.dependents.remove(&id);
            }
        }
    }

    fn forget_before(&mut self, before: Timestamp, trimmed_before: Option<Timestamp>) {
        self.forgotten_before = before;
        self.trimmed_before = trimmed_before.unwrap_or(self.trimmed_before);
        let kept_from = before.max(self.trimmed_before);
        self.ended.retain(|_, ended| ended.at >= kept_from);
        for keys in self.keys.values_mut() {
            keys.retain(|_, used| used.at >= kept_from);
        }
        self.keys.retain(|_, keys| !keys.is_empty());
        for tenant in self.tenants.values_mut() {
            tenant.forget_idle(before, self.settings.usage_half_life_ms);
        }
    }

    // Tenants and nodes.

    fn create_tenant(&mut self, id: &TenantId, config: &TenantConfig, at: Timestamp) {
        self.clock = self.clock.max(at);
        let former = self.tenants.insert(id.clone(), Tenant::new(id.clone(), config.clone()));
        assert!(former.is_none(), "tenant {id} exists twice");
        self.policies.bucket_criteria.exact_limits = Arc::new(budgeted(self));
    }

    fn change_tenant(&mut self, id: &TenantId, config: &TenantConfig, at: Timestamp) {
        self.clock = self.clock.max(at);
        let half_life_ms = self.settings.usage_half_life_ms;
        let tenant = self.tenant_mut(id);
        if tenant.config.decay_milli_per_day != config.decay_milli_per_day {
            tenant.advance_all(at, half_life_ms);
        }
        let regroups =
            (tenant.config.budget.is_set(), &tenant.config.parent) != (config.budget.is_set(), &config.parent);
        tenant.config = config.clone();
        if regroups {
            self.regroup_by_limits();
            self.retain_limits();
        }
    }

    /// Rebuild the buckets if the set of budgeted tenants changed: jobs under a budget are grouped by their exact time
    /// limit.
    fn regroup_by_limits(&mut self) {
        let exact_limits = budgeted(self);
        if *self.policies.bucket_criteria.exact_limits == exact_limits {
            return;
        }
        let jobs = std::mem::take(&mut self.jobs);
        jobs.values().for_each(|job| self.unindex_job(job));
        self.policies.bucket_criteria.exact_limits = Arc::new(exact_limits);
        jobs.values().for_each(|job| self.index_job(job));
        self.jobs = jobs;
    }

    fn register(&mut self, id: &NodeId, facts: &NodeFacts, at: Timestamp) {
        let node = self.nodes.entry(id.clone()).or_insert_with(|| new_node(id, facts, at));
        node.facts = facts.clone();
        node.declared = false;
        let healthy = GpuHealth::healthy(at);
        node.partitions.retain(|index, _| usize::from(*index) < facts.gpus.len());
        node.gpu_health.resize(facts.gpus.len(), healthy);
        node.holders.resize(facts.gpus.len(), Vec::new());
        self.clock = self.clock.max(at);
        self.reindex_node(id);
    }

    /// A declared node has no leases, so its GPUs may change their index: health and partition follow the UUID.
    fn declare(&mut self, id: &NodeId, facts: &NodeFacts, at: Timestamp) {
        let before = self.nodes.get(id).cloned();
        self.register(id, facts, at);
        self.change_node(id, at, |node| {
            node.declared = true;
            let Some(before) = before else { return };
            node.partitions.clear();
            for (index, gpu) in facts.gpus.iter().enumerate() {
                let known = before.facts.gpus.iter().position(|old| old.uuid == gpu.uuid);
                node.gpu_health[index] = known.map_or(GpuHealth::healthy(at), |old| before.gpu_health[old].clone());
                let partition = known.and_then(|old| before.partitions.get(&(old as u8)));
                node.partitions.extend(partition.map(|partition| (index as u8, partition.clone())));
            }
        });
    }

    fn change_node(&mut self, id: &NodeId, at: Timestamp, change: impl FnOnce(&mut Node)) {
        self.clock = self.clock.max(at);
        change(self.node_mut(id));
        self.reindex_node(id);
    }

    fn remove_node(&mut self, id: &NodeId, at: Timestamp) {
        self.clock = self.clock.max(at);
        let (node, enrolment) = (self.nodes.remove(id), self.enrolments.remove(id));
        assert!(node.as_ref().is_none_or(|node| node.jobs.is_empty()), "{id} is busy");
        assert!(node.is_some() || enrolment.is_some(), "{id} is gone");
        self.resources.remove(id);
        self.forget_kinds();
    }

    pub(super) fn reindex_node(&mut self, id: &NodeId) {
        if let Some(node) = self.nodes.get_mut(id) {
            node.pools = pools_of(node, &self.policies);
            self.resources.insert(node);
        }
        self.forget_kinds();
    }

    /// Drop policy answers about kinds that no node has any more.
    fn forget_kinds(&mut self) {
        if !self.policies.is_empty() {
            let resources = &self.resources;
            self.policies.answers.retain_kinds(|kind| resources.has(kind));
        }
    }

    /// Update the index after a change of leases on a node; its facts and state are the same.
    fn refresh_node(&mut self, id: &NodeId) {
        if let Some(node) = self.nodes.get(id) {
            self.resources.refresh(node);
        }
    }

    fn tenant_mut(&mut self, id: &TenantId) -> &mut Tenant {
        self.tenants.get_mut(id).unwrap_or_else(|| panic!("tenant {id} does not exist"))
    }

    fn node_mut(&mut self, id: &NodeId) -> &mut Node {
        self.nodes.get_mut(id).unwrap_or_else(|| panic!("node {id} does not exist"))
    }
}

/// The common part of all jobs of one submission.
struct Submission<'a> {
    spec: &'a Arc<JobSpec>,
    held_by: Option<&'a str>,
    open_dependencies: &'a BTreeSet<Dependency>,
    at: Timestamp,
}

fn attempt_mut(job: &mut Job) -> &mut Attempt {
    let id = job.id;
    match &mut job.phase {
        Phase::Active(attempt) => attempt,
        Phase::Queued { .. } | Phase::Held { .. } => panic!("{id} has no attempt"),
    }
}

/// When the time limit of a running job ends, when its early signal is due, or when a gang that has started in part is
/// stopped; `None` once the attempt is stopping.
pub(super) fn deadline(job: &Job) -> Option<Timestamp> {
    let attempt = job.attempt().filter(|attempt| attempt.stopping.is_none())?;
    if let start_deadline @ Some(_) = attempt.start_deadline() {
        return start_deadline;
    }
    let ends_at = time_limit_end(job)?;
    let early = job.spec.early_signal.filter(|_| attempt.signalled_at.is_none());
    Some(early.map_or(ends_at, |early| ends_at.plus(-early.before_ms)))
}

/// When the time limit of a running job ends.
pub(super) fn time_limit_end(job: &Job) -> Option<Timestamp> {
    Some(job.attempt()?.started_at?.plus(job.spec.time_limit_ms?))
}

fn note_power(node: &mut Node, action: PowerAction, failure: Option<&str>, at: Timestamp) {
    let earlier = node.power_failure.as_ref().filter(|known| known.action == action).map_or(0, |known| known.times);
    node.power_failure = failure.map(|why| {
        let times = earlier.saturating_add(1);
        Box::new(PowerFailure { action, why: why.to_string(), times, since: at })
    });
    let reboot = node.drain.as_mut().and_then(|drain| drain.reboot.as_mut());
    if let Some(reboot) = reboot.filter(|_| action == PowerAction::Reboot && failure.is_none()) {
        reboot.confirmed = true;
    }
}

fn new_node(id: &NodeId, facts: &NodeFacts, at: Timestamp) -> Node {
    Node {
        id: id.clone(),
        facts: facts.clone(),
        state: NodeState::of_single_status(Recorded {
            status: NodeStatus::Ready,
            by: "muster".to_string(),
            why: "registered".to_string(),
            since: at,
        }),
        gpu_health: Vec::new(),
        partitions: BTreeMap::new(),
        registered_at: at,
        declared: false,
        operator: OperatorLabels::default(),
        holders: Vec::new(),
        cpus_held: 0,
        memory_mib_held: 0,
        jobs: BTreeSet::new(),
        health_failure: None,
        drain: None,
        power_failure: None,
        placed_at: Timestamp(0),
        pools: Vec::new(),
    }
}

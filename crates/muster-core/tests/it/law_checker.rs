//! The law checker reads the events of a story, keeps its own records and compares them with the state.
//!
//! `State::check` checks one state; the law checker checks transitions, and recomputes from the events alone what the
//! state derives.

mod eviction;
mod gangs;
mod past_usage;
mod placement;
mod transition;

use std::collections::{BTreeMap, BTreeSet};

use muster_core::facts::event::NextPhase;
use muster_core::objects::charge::Charge;
use muster_core::objects::job::{Job, PlacedTask, StopCause};
use muster_core::{Event, JobId, State, TenantId, Timestamp};

use crate::law_checker::eviction::check_eviction;
use crate::law_checker::gangs::Gangs;
use crate::law_checker::past_usage::PastUsage;
use crate::law_checker::transition::{
    check_partition, check_policy_answer, check_retry, check_shorter_grace, check_wakeup,
};

/// Leases, charges and past usage, recomputed from the events alone.
#[derive(Default)]
pub struct LawChecker {
    leases: BTreeMap<JobId, Lease>,
    ended: BTreeSet<JobId>,
    used: BTreeMap<TenantId, Charge>,
    /// For attempts that ended on some nodes: whether all reports had an end time, and the last of these times.
    part_ends: BTreeMap<JobId, (bool, Timestamp)>,
    clock: Timestamp,
    past: PastUsage,
    gangs: Gangs,
}

struct Lease {
    attempt: u32,
    at: Timestamp,
    milliwatts: u64,
    /// Each with its cores and memory.
    tasks: Vec<(PlacedTask, (u64, u64))>,
}

impl LawChecker {
    /// Check an event against the state before it.
    pub fn check_event(&mut self, before: &State, event: &Event) {
        assert!(before.clock >= self.clock, "time ran backwards");
        self.clock = before.clock;
        match event {
            Event::JobSubmitted { array, .. } => {
                let more = array.as_ref().map_or(1, |array| array.indexes.len() as u64);
                let limit = before.settings.queue_size_max;
                assert!(before.queue.len() + more <= limit, "the queue grew beyond {limit}");
            }
            Event::JobPlaced { job, attempt, tasks, master_port, start_bound_ms, at, .. } => {
                self.gangs.check_placement(before, *job, tasks, (*master_port, *start_bound_ms));
                self.check_placement(before, *job, *attempt, tasks, *at)
            }
            Event::AttemptStarted { job, node, at, .. } => self.gangs.start(*job, node, *at),
            Event::AttemptStopping { job, cause: StopCause::LateStart { nodes, .. }, at, .. } => {
                self.gangs.check_late(before, *job, nodes, *at);
            }
            Event::ClaimMade { job, tasks, victims, at, .. } => check_eviction(before, *job, tasks, victims, *at),
            Event::AttemptStopping { job, cause: StopCause::Preempted { by }, .. } => {
                let is_victim = before.claims.get(by).is_some_and(|claim| claim.victims.contains(job));
                assert!(is_victim, "{job} was evicted, but not for a claim of {by}");
            }
            Event::CheckpointSaved { job, grace_ms: Some(grace_ms), at, .. } => {
                check_shorter_grace(before, *job, *grace_ms, *at);
            }
            Event::NodePartEnded { job, ended_at, at, .. } => {
                let end = ended_at.unwrap_or(*at);
                assert!(end <= *at && end >= self.leases[job].at, "a part of {job} ended at {end:?}");
                let (known, last) = self.part_ends.entry(*job).or_insert((true, end));
                (*known, *last) = (*known && ended_at.is_some(), end.max(*last));
            }
            Event::AttemptEnded { job, attempt, next, charge, charged_until, at, .. } => {
                self.gangs.end(*job);
                self.check_charged_until(*job, *charged_until, *at);
                self.check_attempt_end(before, (*job, *attempt), *charge, charged_until.unwrap_or(*at), *at);
                if matches!(next, NextPhase::Ended { .. }) {
                    self.check_end(*job);
                }
            }
            Event::JobEnded { job, .. } => self.check_end(*job),
            Event::JobWoken { job, at } => check_wakeup(before, *job, *at),
            Event::RetryAnswered { answer, wakes_at, at, .. } => check_retry(before, answer, *wakes_at, *at),
            Event::PolicyAnswered { answers, .. } => answers.iter().for_each(|one| check_policy_answer(before, one)),
            Event::GpuPartitioned { gpu, instances, why, .. } => check_partition(before, gpu, instances, why),
            _ => {}
        }
    }

    /// Usage is charged from the placement until the last node has ended, and not beyond the release.
    fn check_charged_until(&mut self, id: JobId, until: Option<Timestamp>, at: Timestamp) {
        let parts = self.part_ends.remove(&id);
        let Some(until) = until else { return };
        assert!(self.leases[&id].at <= until && until <= at, "{id} was charged until {until:?}");
        assert!(parts.is_none_or(|(known, last)| known && last <= until), "{id}: parts end after {until:?}");
    }

    fn check_attempt_end(
        &mut self,
        before: &State,
        (id, attempt): (JobId, u32),
        charge: Charge,
        until: Timestamp,
        at: Timestamp,
    ) {
        let lease = self.leases.remove(&id).unwrap_or_else(|| panic!("{id} had no lease to end"));
        assert_eq!(lease.attempt, attempt, "another attempt of {id} ended");
        let ms = until.since(lease.at) as u64;
        let gpu_milli = |task: &PlacedTask| u64::from(fraction_of(task).0) * task.gpus.len() as u64;
        let gpu_milli: u64 = lease.tasks.iter().map(|(task, _)| gpu_milli(task)).sum();
        let own = Charge {
            gpu_ms: gpu_milli * ms / 1_000,
            cpu_ms: lease.tasks.iter().map(|(_, (cpus, _))| cpus).sum::<u64>() * ms,
            memory_gib_ms: lease.tasks.iter().map(|(_, (_, mib))| mib).sum::<u64>() * ms / 1_024,
            cost_micro: 0,
            energy_mj: lease.milliwatts * ms / 1_000,
        };
        assert_eq!(charge, own, "{id} was charged wrongly");
        let spec = &before.jobs[&id].spec;
        *self.used.entry(spec.tenant.clone()).or_default() += own;
        for user in [None, Some(spec.user.clone())] {
            self.past.unused.push(((spec.tenant.clone(), user), gpu_milli, at.since(until)));
        }
    }

    fn check_end(&mut self, job: JobId) {
        assert!(self.ended.insert(job), "{job} ended twice");
        assert!(!self.leases.contains_key(&job), "{job} ended while it ran");
    }

    /// Laws of the state after each step.
    pub fn check_state(&mut self, state: &State) {
        self.past.check(state);
        let live = state.jobs.keys().find(|job| self.ended.contains(job));
        assert_eq!(live, None, "an ended job is live");
        let running: BTreeSet<JobId> =
            state.jobs.values().filter(|job| job.attempt().is_some()).map(|job| job.id).collect();
        assert_eq!(running, self.leases.keys().copied().collect(), "leases and attempts differ");
        for (tenant, account) in state.ledger.accounts() {
            let own = self.used.get(tenant).copied().unwrap_or_default();
            assert_eq!(account.used, own, "the ledger of {tenant} is not the sum of its leases");
        }
    }
}

/// The fraction of each device that a task holds, in thousandths of compute and of memory.
fn fraction_of(task: &PlacedTask) -> (u32, u32) {
    task.share.as_ref().map_or((1_000, 1_000), |share| (share.compute_milli, share.memory_milli))
}

/// Cores and memory of one task.
fn host_demand(job: &Job, task: &PlacedTask) -> (u64, u64) {
    let each = &job.spec.tasks[task.group as usize].each;
    (u64::from(each.cpus), each.memory_mib)
}

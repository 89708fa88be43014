//! Who runs where, as preemption looks at it: who may be displaced at what loss, and what is about to be free.

use std::collections::BTreeMap;

use crate::capacity::Free;
use crate::ids::{JobId, NodeId};
use crate::job::{Attempt, Job, Stopping};
use crate::plan::claims::{coming_for, mask, used_on};
use crate::plan::order::effective_priority;
use crate::state::State;
use crate::time::{MINUTE, Timestamp};

/// Processes that were told to stop are killed after their grace. An attempt that is still there this long
/// after that hangs, and nobody should count on its space.
const HANGS_AFTER_MS: i64 = MINUTE;

/// A running job that may be displaced.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    pub job: JobId,
    /// The priority it asked for.
    pub priority: u32,
    /// The priority it was ordered by when it was placed.
    pub effective: u32,
    /// GPU-milliseconds since it was placed.
    pub lost_gpu_ms: u64,
    /// What it would give back on this node.
    pub space: Free,
}

/// Attempts by node.
#[derive(Debug, Default)]
pub(super) struct Running {
    /// Least loss first, then lower priority, then id.
    candidates: BTreeMap<NodeId, Vec<Candidate>>,
    /// What attempts that are stopping will give back and nobody has claimed.
    pub leaving: BTreeMap<NodeId, Leaving>,
    /// The lowest priority of all candidates.
    lowest: Option<u32>,
}

/// Space that will be free soon.
#[derive(Debug, Clone, Default)]
pub(super) struct Leaving {
    pub space: Free,
    pub jobs: Vec<JobId>,
}

impl Running {
    pub fn of(state: &State, now: Timestamp) -> Running {
        let mut running = Running::default();
        for node in state.nodes.values() {
            for job in node.jobs.iter().filter_map(|job| state.jobs.get(job)) {
                running.add(state, now, &node.id, job);
            }
        }
        for candidates in running.candidates.values_mut() {
            candidates.sort_by_key(|candidate| (candidate.lost_gpu_ms, candidate.priority, candidate.job));
        }
        running.take_claimed(state);
        running
    }

    fn add(&mut self, state: &State, now: Timestamp, node: &NodeId, job: &Job) {
        let Some(attempt) = job.attempt() else { return };
        match &attempt.stopping {
            Some(stopping) if will_end(stopping, now) => {
                let leaving = self.leaving.entry(node.clone()).or_default();
                leaving.space = leaving.space.with(used_on(job, node));
                leaving.jobs.push(job.id);
            }
            Some(_) => {}
            None if may_go(state, now, job, attempt) => {
                let candidate = candidate(state, now, node, job, attempt);
                self.lowest = Some(self.lowest.unwrap_or(u32::MAX).min(candidate.priority));
                self.candidates.entry(node.clone()).or_default().push(candidate);
            }
            None => {}
        }
    }

    /// Space that victims will give back belongs to whoever displaced them.
    fn take_claimed(&mut self, state: &State) {
        for (id, claim) in &state.claims {
            let Some(leaving) = self.leaving.get_mut(&claim.node) else { continue };
            let wanted = state.jobs.get(id).map(|job| job.spec.demand()).unwrap_or_default();
            let coming = coming_for(state, claim);
            leaving.space = leaving.space.without(Free {
                gpus: mask(&claim.gpus),
                cpus: wanted.cpus.min(coming.cpus),
                memory_mib: wanted.memory_mib.min(coming.memory_mib),
            });
        }
    }

    /// Whether anyone at all runs at a lower priority.
    pub fn any_below(&self, priority: u32) -> bool {
        self.lowest.is_some_and(|lowest| lowest < priority)
    }

    /// Who may be displaced on a node, least loss first.
    pub fn on(&self, node: &NodeId) -> &[Candidate] {
        self.candidates.get(node).map_or(&[], Vec::as_slice)
    }

    /// These were displaced; nobody can be displaced twice. A gang may sit on several nodes.
    pub fn displace(&mut self, victims: &[JobId]) {
        for candidates in self.candidates.values_mut() {
            candidates.retain(|candidate| !victims.contains(&candidate.job));
        }
    }
}

fn will_end(stopping: &Stopping, now: Timestamp) -> bool {
    now.since(stopping.since) <= stopping.grace_ms.saturating_add(HANGS_AFTER_MS)
}

fn may_go(state: &State, now: Timestamp, job: &Job, attempt: &Attempt) -> bool {
    let Some(tenant) = state.tenants.get(&job.spec.tenant) else { return false };
    let spared = tenant.config.preemptions_per_job_max.is_some_and(|max| job.preemptions >= max);
    let young = now.since(attempt.placed_at) < state.settings.preemption_min_runtime_ms;
    tenant.config.may_be_preempted && !spared && !young
}

fn candidate(state: &State, now: Timestamp, node: &NodeId, job: &Job, attempt: &Attempt) -> Candidate {
    let waited_ms = attempt.placed_at.since(job.submitted_at);
    let ran_ms = now.since(attempt.placed_at) as u64;
    Candidate {
        job: job.id,
        priority: job.spec.priority,
        effective: effective_priority(&state.settings, job.spec.priority, waited_ms),
        lost_gpu_ms: ran_ms.saturating_mul(u64::from(job.spec.gpus())),
        space: used_on(job, node),
    }
}

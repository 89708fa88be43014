//! Who runs where, as preemption looks at it: who may be displaced and at what loss.

use std::collections::BTreeMap;

use crate::capacity::Free;
use crate::guarantee;
use crate::ids::{JobId, NodeId};
use crate::job::Job;
use crate::loss::lost_gpu_ms;
use crate::node::Node;
use crate::plan::leaving::Leaving;
use crate::plan::order::Turn;
use crate::state::State;
use crate::time::Timestamp;

/// A running job that may be displaced.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    pub job: JobId,
    /// The priority it asked for.
    pub priority: u32,
    /// The priority it was ordered by when it was placed.
    pub effective: i64,
    /// GPU-milliseconds since it last saved its work.
    pub lost_gpu_ms: u64,
    /// When it was placed, if it has its space on loan and its time is over.
    pub overstays: Option<Timestamp>,
    /// GPU-milliseconds that are left of it, if it may give way to a smaller job.
    pub left_gpu_ms: Option<u64>,
    /// What it is worth that it goes on, if it loses next to nothing by giving way.
    pub worth: Option<u64>,
    /// What it would give back on this node.
    pub space: Free,
}

/// A node where someone may be displaced.
#[derive(Debug)]
pub(super) struct Here {
    /// Least loss first, then lower priority, then id.
    pub candidates: Vec<Candidate>,
    /// Devices that may be given out once nobody holds them.
    pub usable: u64,
    /// What was given out, or is kept for claims, beyond what there is: the machine came back smaller. Victims fill that
    /// hole first.
    pub overdrawn: Free,
}

impl Here {
    /// What is free once something is given back.
    pub fn after(&self, free: Free, freed: Free) -> Free {
        free.with(freed.on_devices(self.usable)).without(self.overdrawn)
    }
}

/// Attempts by node, on nodes that take work.
#[derive(Debug)]
pub(super) struct Running {
    pub nodes: BTreeMap<NodeId, Here>,
    /// Attempts that are stopping already.
    pub leaving: Leaving,
    /// What tenants will hold less for it.
    pub fewer: guarantee::Leaving,
    /// Priorities of all candidates, as asked for and as ordered by, each ascending.
    priorities: Vec<u32>,
    effectives: Vec<i64>,
    /// When those were placed who have their space on loan and should be gone, ascending.
    overstayed: Vec<Timestamp>,
}

/// How many candidates are weaker by either priority. Two jobs with the same reach may displace the same
/// candidates, and one with less reach a part of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reach {
    priority: usize,
    effective: usize,
    /// How many overstay who passed it.
    overstayed: usize,
}

impl Reach {
    /// Whether it reaches nobody that `other` does not.
    pub fn is_within(self, other: Reach) -> bool {
        self.priority <= other.priority
            && self.effective <= other.effective
            && self.overstayed <= other.overstayed
    }

    /// Whether it reaches nobody at all.
    pub fn is_nothing(self) -> bool {
        (self.priority == 0 || self.effective == 0) && self.overstayed == 0
    }
}

impl Running {
    pub fn of(state: &State, now: Timestamp) -> Running {
        let open = state.nodes.values().filter(|node| node.takes_work());
        let nodes = open.filter_map(|node| Some((node.id.clone(), here(state, now, node)?)));
        let mut nodes: BTreeMap<NodeId, Here> = nodes.collect();
        for (node, kept) in state.claimed() {
            if let Some(here) = nodes.get_mut(&node) {
                here.overdrawn = here.overdrawn.with(missing(state, &node, &kept));
            }
        }
        let candidates = || nodes.values().flat_map(|here| &here.candidates);
        let mut priorities: Vec<u32> = candidates().map(|one| one.priority).collect();
        let mut effectives: Vec<i64> = candidates().map(|one| one.effective).collect();
        priorities.sort_unstable();
        effectives.sort_unstable();
        let mut overstayed: Vec<Timestamp> = candidates().filter_map(|one| one.overstays).collect();
        overstayed.sort_unstable();
        let fewer = guarantee::Leaving::of(state, now);
        Running { nodes, leaving: Leaving::of(state, now), fewer, priorities, effectives, overstayed }
    }

    /// Whom a job could displace.
    pub fn reach(&self, turn: &Turn) -> Reach {
        let (priority, effective) = turn.strength();
        let before = self.overstayed.partition_point(|placed| !turn.was_passed(*placed));
        Reach {
            overstayed: self.overstayed.len() - before,
            priority: self.priorities.partition_point(|weaker| *weaker < priority),
            effective: self.effectives.partition_point(|weaker| *weaker < effective),
        }
    }

    /// Nobody can be displaced twice. A gang may sit on several nodes; all of them are returned.
    pub fn displace(&mut self, state: &State, victims: &[JobId]) -> Vec<NodeId> {
        for victim in victims.iter().filter_map(|victim| state.jobs.get(victim)) {
            self.fewer.add(state, victim);
        }
        let attempts = victims.iter().filter_map(|victim| state.jobs.get(victim)?.attempt());
        let nodes: Vec<NodeId> = attempts.flat_map(|attempt| attempt.nodes()).collect();
        for node in &nodes {
            if let Some(here) = self.nodes.get_mut(node) {
                here.candidates.retain(|candidate| !victims.contains(&candidate.job));
            }
        }
        nodes
    }
}

fn here(state: &State, now: Timestamp, node: &Node) -> Option<Here> {
    let jobs = node.jobs.iter().filter_map(|job| state.jobs.get(job));
    let mut candidates: Vec<Candidate> =
        jobs.filter_map(|job| candidate(state, now, &node.id, job)).collect();
    candidates.sort_by_key(|candidate| (candidate.lost_gpu_ms, candidate.priority, candidate.job));
    let here = || Here { candidates, usable: state.usable_gpus(&node.id), overdrawn: overdrawn(node) };
    Some(here()).filter(|here| !here.candidates.is_empty())
}

/// The job as a candidate, if it may be displaced at all.
fn candidate(state: &State, now: Timestamp, node: &NodeId, job: &Job) -> Option<Candidate> {
    let attempt = job.attempt().filter(|_| state.may_be_displaced(job, now))?;
    Some(Candidate {
        job: job.id,
        priority: job.spec.priority,
        effective: attempt.effective.unwrap_or(i64::from(job.spec.priority)),
        lost_gpu_ms: lost_gpu_ms(job, attempt, now),
        overstays: state.overstays(job, now),
        left_gpu_ms: state.left_of(job, now),
        worth: state.worth_of(job, now),
        space: Free::used_on(node, job),
    })
}

/// Cores and memory that are kept for claims and not free.
fn missing(state: &State, node: &NodeId, kept: &[(JobId, Free)]) -> Free {
    let free = state.capacity.filed(node).map(|filed| filed.free).unwrap_or_default();
    let kept = kept.iter().fold(Free::default(), |sum, (_, space)| sum.with(*space));
    kept.without(free).host()
}

pub(super) fn overdrawn(node: &Node) -> Free {
    Free {
        cpus: node.cpus_held.saturating_sub(u64::from(node.facts.cpus)),
        memory_mib: node.memory_mib_held.saturating_sub(node.facts.memory_mib),
        ..Free::default()
    }
}

//! Who runs where, as preemption looks at it: who may be displaced and at what loss.

use std::collections::BTreeMap;

use crate::accounting::preemption_loss::lost_gpu_ms;
use crate::ids::{JobId, NodeId};
use crate::objects::job::Job;
use crate::objects::node::Node;
use crate::planner::order::QueueHead;
use crate::planner::preempt::releasing::Releasing;
use crate::resources::ResourceVec;
use crate::state::State;
use crate::state::usage::guarantee;
use crate::time::Timestamp;

/// A running job that may be displaced.
#[derive(Debug, Clone)]
pub(crate) struct Candidate {
    pub job: JobId,
    /// The priority it asked for.
    pub priority: u32,
    /// The priority it was ordered by when it was placed.
    pub effective_priority: i64,
    /// GPU-milliseconds since it last saved its work.
    pub lost_gpu_ms: u64,
    /// When it was placed, if it has its space on loan and its time is over.
    pub overran_since: Option<Timestamp>,
    /// GPU-milliseconds that are left of it, if it may give way to a smaller job.
    pub remaining_gpu_ms: Option<u64>,
    /// What it is worth that it goes on, if it loses next to nothing by giving way.
    pub srpt_index: Option<u64>,
    /// What it would give back on this node.
    pub space: ResourceVec,
}

/// A node where someone may be displaced.
#[derive(Debug)]
pub(crate) struct NodeCandidates {
    /// Least loss first, then lower priority, then id.
    pub candidates: Vec<Candidate>,
    /// Devices that may be given out once nobody holds them.
    pub usable: u64,
    /// What was given out, or is kept for claims, beyond what there is: the machine came back smaller. Victims fill that
    /// hole first.
    pub overdrawn: ResourceVec,
}

impl NodeCandidates {
    /// What is free once something is given back.
    pub fn after(&self, free: ResourceVec, freed: ResourceVec) -> ResourceVec {
        free.plus(freed.on_devices(self.usable)).minus(self.overdrawn)
    }
}

/// Attempts by node, on nodes that take work.
#[derive(Debug)]
pub(crate) struct Candidates {
    pub nodes: BTreeMap<NodeId, NodeCandidates>,
    /// Attempts that are stopping already.
    pub releasing: Releasing,
    /// What tenants will hold less for it.
    pub pending: guarantee::PendingReleases,
    /// Priorities of all candidates, as asked for and as ordered by, each ascending.
    priorities: Vec<u32>,
    effectives: Vec<i64>,
    /// When those were placed who have their space on loan and should be gone, ascending.
    overran: Vec<Timestamp>,
}

/// How many candidates are weaker by either priority. Two jobs with the same reach may displace the same
/// candidates, and one with less reach a part of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PreemptionReach {
    priority: usize,
    effective: usize,
    /// How many overstay who passed it.
    overran: usize,
}

impl PreemptionReach {
    /// Whether it reaches nobody that `other` does not.
    pub fn is_within(self, other: PreemptionReach) -> bool {
        self.priority <= other.priority && self.effective <= other.effective && self.overran <= other.overran
    }

    /// Whether it reaches nobody at all.
    pub fn is_nothing(self) -> bool {
        (self.priority == 0 || self.effective == 0) && self.overran == 0
    }
}

impl Candidates {
    pub fn of(state: &State, now: Timestamp) -> Candidates {
        let open = state.nodes.values().filter(|node| node.is_schedulable());
        let nodes = open.filter_map(|node| Some((node.id.clone(), node_candidates(state, now, node)?)));
        let mut nodes: BTreeMap<NodeId, NodeCandidates> = nodes.collect();
        for (node, kept) in state.claimed_space() {
            if let Some(here) = nodes.get_mut(&node) {
                here.overdrawn = here.overdrawn.plus(missing(state, &node, &kept));
            }
        }
        let candidates = || nodes.values().flat_map(|here| &here.candidates);
        let mut priorities: Vec<u32> = candidates().map(|one| one.priority).collect();
        let mut effectives: Vec<i64> = candidates().map(|one| one.effective_priority).collect();
        priorities.sort_unstable();
        effectives.sort_unstable();
        let mut overstayed: Vec<Timestamp> = candidates().filter_map(|one| one.overran_since).collect();
        overstayed.sort_unstable();
        let fewer = guarantee::PendingReleases::of(state, now);
        Candidates {
            nodes,
            releasing: Releasing::of(state, now),
            pending: fewer,
            priorities,
            effectives,
            overran: overstayed,
        }
    }

    /// Whom a job could displace.
    pub fn reach(&self, turn: &QueueHead) -> PreemptionReach {
        let (priority, effective) = turn.priorities();
        let before = self.overran.partition_point(|placed| !turn.was_waiting_at(*placed));
        PreemptionReach {
            overran: self.overran.len() - before,
            priority: self.priorities.partition_point(|weaker| *weaker < priority),
            effective: self.effectives.partition_point(|weaker| *weaker < effective),
        }
    }

    /// Nobody can be displaced twice. A gang may sit on several nodes; all of them are returned.
    pub fn evict(&mut self, state: &State, victims: &[JobId]) -> Vec<NodeId> {
        for victim in victims.iter().filter_map(|victim| state.jobs.get(victim)) {
            self.pending.add(state, victim);
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

fn node_candidates(state: &State, now: Timestamp, node: &Node) -> Option<NodeCandidates> {
    let jobs = node.jobs.iter().filter_map(|job| state.jobs.get(job));
    let mut candidates: Vec<Candidate> =
        jobs.filter_map(|job| candidate(state, now, &node.id, job)).collect();
    candidates.sort_by_key(|candidate| (candidate.lost_gpu_ms, candidate.priority, candidate.job));
    let here =
        || NodeCandidates { candidates, usable: state.usable_gpus(&node.id), overdrawn: overdrawn(node) };
    Some(here()).filter(|here| !here.candidates.is_empty())
}

/// The job as a candidate, if it may be displaced at all.
fn candidate(state: &State, now: Timestamp, node: &NodeId, job: &Job) -> Option<Candidate> {
    let attempt = job.attempt().filter(|_| state.may_be_evicted(job, now))?;
    Some(Candidate {
        job: job.id,
        priority: job.spec.priority,
        effective_priority: attempt.effective_priority.unwrap_or(i64::from(job.spec.priority)),
        lost_gpu_ms: lost_gpu_ms(job, attempt, now),
        overran_since: state.overran(job, now),
        remaining_gpu_ms: state.remaining_gpu_ms_of_victim(job, now),
        srpt_index: state.srpt_index_of_victim(job, now),
        space: ResourceVec::used_on(node, job),
    })
}

/// Cores and memory that are kept for claims and not free.
fn missing(state: &State, node: &NodeId, kept: &[(JobId, ResourceVec)]) -> ResourceVec {
    let free = state.resources.entry(node).map(|filed| filed.free).unwrap_or_default();
    let kept = kept.iter().fold(ResourceVec::default(), |sum, (_, space)| sum.plus(*space));
    kept.minus(free).host()
}

pub(crate) fn overdrawn(node: &Node) -> ResourceVec {
    ResourceVec {
        cpus: node.cpus_held.saturating_sub(u64::from(node.facts.cpus)),
        memory_mib: node.memory_mib_held.saturating_sub(node.facts.memory_mib),
        ..ResourceVec::default()
    }
}

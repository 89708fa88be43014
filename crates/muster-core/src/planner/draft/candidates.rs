//! The preemption candidates: the running jobs that may be evicted, by node, and the loss of each. Built once in a
//! planning round (step 7).

use std::collections::BTreeMap;

use crate::accounting::preemption_loss::lost_gpu_ms;
use crate::ids::{JobId, NodeId};
use crate::objects::job::Job;
use crate::objects::node::Node;
use crate::planner::draft::releasing::Releasing;
use crate::planner::order::QueueHead;
use crate::resources::ResourceVec;
use crate::state::State;
use crate::state::usage::guarantee;
use crate::time::Timestamp;

/// A running job that may be evicted.
#[derive(Debug, Clone)]
pub(crate) struct Candidate {
    pub job: JobId,
    /// The requested priority.
    pub priority: u32,
    /// The effective priority at the time of placement.
    pub effective_priority: i64,
    /// GPU-milliseconds of work since the last checkpoint.
    pub lost_gpu_ms: u64,
    /// The time of placement, if the job is revocable and overran.
    pub overran_since: Option<Timestamp>,
    /// Remaining GPU-milliseconds, if the job may yield to a smaller one.
    pub remaining_gpu_ms: Option<u64>,
    /// The SRPT index, if the job loses almost no work by yielding.
    pub srpt_index: Option<u64>,
    /// What the job would release on this node.
    pub space: ResourceVec,
}

/// The candidates of one node; there is at least one when the round begins.
#[derive(Debug)]
pub(crate) struct NodeCandidates {
    /// Least loss first, then lower priority, then id.
    pub candidates: Vec<Candidate>,
    /// Devices that may be allocated once they are free, as bits.
    pub usable: u64,
    /// What is held or claimed beyond what the node has, because it registered again with less. Released space covers
    /// this first.
    pub overdrawn: ResourceVec,
}

impl NodeCandidates {
    /// What is free after `freed` is released.
    pub fn after(&self, free: ResourceVec, freed: ResourceVec) -> ResourceVec {
        free.plus(freed.on_devices(self.usable)).minus(self.overdrawn)
    }
}

/// Candidates and releasing attempts by node, on nodes that take work.
#[derive(Debug)]
pub(crate) struct Candidates {
    pub nodes: BTreeMap<NodeId, NodeCandidates>,
    /// Space of attempts that are stopping already.
    pub releasing: Releasing,
    /// Usage each tenant releases once pending stops complete.
    pub pending: guarantee::PendingReleases,
    /// Requested priorities of all candidates, ascending.
    priorities: Vec<u32>,
    /// Effective priorities of all candidates, ascending.
    effectives: Vec<i64>,
    /// Times of placement of the revocable candidates that overran, ascending.
    overran: Vec<Timestamp>,
}

/// How many candidates are weaker by either priority. Two preemptors with the same reach may evict the same candidates,
/// and a preemptor with less reach a part of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PreemptionReach {
    priority: usize,
    effective: usize,
    /// Revocable candidates that overran and were placed while the preemptor waited.
    overran: usize,
}

impl PreemptionReach {
    /// True if every candidate in this reach is also in `other`.
    pub fn is_within(self, other: PreemptionReach) -> bool {
        self.priority <= other.priority && self.effective <= other.effective && self.overran <= other.overran
    }

    /// True if no candidate is in reach.
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
            if let Some(on_node) = nodes.get_mut(&node) {
                on_node.overdrawn = on_node.overdrawn.plus(missing(state, &node, &kept));
            }
        }
        let candidates = || nodes.values().flat_map(|on_node| &on_node.candidates);
        let mut priorities: Vec<u32> = candidates().map(|one| one.priority).collect();
        let mut effectives: Vec<i64> = candidates().map(|one| one.effective_priority).collect();
        priorities.sort_unstable();
        effectives.sort_unstable();
        let mut overran: Vec<Timestamp> = candidates().filter_map(|one| one.overran_since).collect();
        overran.sort_unstable();
        Candidates {
            nodes,
            releasing: Releasing::of(state, now),
            pending: guarantee::PendingReleases::of(state, now),
            priorities,
            effectives,
            overran,
        }
    }

    /// How many candidates a queue head may evict.
    pub fn reach(&self, head: &QueueHead) -> PreemptionReach {
        let (priority, effective) = head.priorities();
        let before = self.overran.partition_point(|placed| !head.was_waiting_at(*placed));
        PreemptionReach {
            overran: self.overran.len() - before,
            priority: self.priorities.partition_point(|weaker| *weaker < priority),
            effective: self.effectives.partition_point(|weaker| *weaker < effective),
        }
    }

    /// Remove victims from the candidates: no job is evicted twice. Returns all nodes of the victims.
    pub fn evict(&mut self, state: &State, victims: &[JobId]) -> Vec<NodeId> {
        for victim in victims.iter().filter_map(|victim| state.jobs.get(victim)) {
            self.pending.add(state, victim);
        }
        let attempts = victims.iter().filter_map(|victim| state.jobs.get(victim)?.attempt());
        let nodes: Vec<NodeId> = attempts.flat_map(|attempt| attempt.nodes()).collect();
        for node in &nodes {
            if let Some(on_node) = self.nodes.get_mut(node) {
                on_node.candidates.retain(|candidate| !victims.contains(&candidate.job));
            }
        }
        nodes
    }
}

fn node_candidates(state: &State, now: Timestamp, node: &Node) -> Option<NodeCandidates> {
    let jobs = node.jobs.iter().filter_map(|job| state.jobs.get(job));
    let mut candidates: Vec<Candidate> = jobs.filter_map(|job| candidate(state, now, &node.id, job)).collect();
    candidates.sort_by_key(|candidate| (candidate.lost_gpu_ms, candidate.priority, candidate.job));
    let on_node = || NodeCandidates { candidates, usable: state.usable_gpus(&node.id), overdrawn: overdrawn(node) };
    Some(on_node()).filter(|on_node| !on_node.candidates.is_empty())
}

/// The job as a candidate. `None` if it may not be evicted.
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

/// Cores and memory that claims keep and that are not free.
fn missing(state: &State, node: &NodeId, kept: &[(JobId, ResourceVec)]) -> ResourceVec {
    let free = state.resources.entry(node).map(|entry| entry.free).unwrap_or_default();
    let kept = kept.iter().fold(ResourceVec::default(), |sum, (_, space)| sum.plus(*space));
    kept.minus(free).host()
}

/// Cores and memory that attempts hold beyond what the node has.
pub(crate) fn overdrawn(node: &Node) -> ResourceVec {
    ResourceVec {
        cpus: node.cpus_held.saturating_sub(u64::from(node.facts.cpus)),
        memory_mib: node.memory_mib_held.saturating_sub(node.facts.memory_mib),
        ..ResourceVec::default()
    }
}

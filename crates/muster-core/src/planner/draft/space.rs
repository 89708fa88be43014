//! Space of a planning round (step 7): the free, earmarked and promised resources if the plan so far were adopted.

use std::collections::BTreeMap;

use crate::gpu::device::GpuStatus;
use crate::ids::{JobId, NodeId};
use crate::resources::{ResourceIndex, ResourceVec};
use crate::state::State;
use crate::time::Timestamp;

/// A gang that this round starts.
#[derive(Debug)]
pub(crate) struct StartedGang {
    /// The expected end.
    pub end: Timestamp,
    pub taken: BTreeMap<NodeId, ResourceVec>,
}

/// Free, earmarked and promised space.
pub(crate) struct Space {
    /// Free space minus earmarked space. Reservations are not subtracted: see `Draft::usable`.
    pub resources: ResourceIndex,
    /// GPUs that are allocated only if no better GPU is free, as bits.
    degraded_gpus: BTreeMap<NodeId, u64>,
    /// GPUs that are warm or have had an error, as bits.
    warning_gpus: BTreeMap<NodeId, u64>,
    /// Free space kept for single jobs: the free part of a claim, or of a placement that waits for stopping jobs.
    pub earmarked: BTreeMap<JobId, BTreeMap<NodeId, ResourceVec>>,
    /// Space that stopping jobs release and that already belongs to a preemptor.
    pub promised: BTreeMap<NodeId, ResourceVec>,
    pub started: BTreeMap<JobId, StartedGang>,
    /// Nodes whose space has changed, in order. Caches read the tail that they have not seen.
    pub dirty_nodes: Vec<NodeId>,
}

impl Space {
    pub fn of(state: &State) -> Space {
        Space {
            resources: state.resources.clone(),
            degraded_gpus: gpus_with_status(state, GpuStatus::Degraded),
            warning_gpus: gpus_with_status(state, GpuStatus::Warning),
            earmarked: BTreeMap::new(),
            promised: BTreeMap::new(),
            started: BTreeMap::new(),
            dirty_nodes: Vec::new(),
        }
    }

    /// Free space of a node that is not earmarked.
    pub fn free_on(&self, node: &NodeId) -> Option<ResourceVec> {
        self.resources.entry(node).map(|entry| entry.free)
    }

    /// Take free space on a node.
    pub fn take(&mut self, node: &NodeId, taken: ResourceVec) {
        if let Some(free) = self.free_on(node) {
            self.set_free(node, free.minus(taken));
        }
    }

    fn set_free(&mut self, node: &NodeId, free: ResourceVec) {
        self.resources.set_free(node, free);
        self.dirty_nodes.push(node.clone());
    }

    /// Keep the free part of `wanted` for one job.
    pub fn earmark(&mut self, job: JobId, node: &NodeId, wanted: ResourceVec) {
        let Some(free) = self.free_on(node) else { return };
        let space = free.intersection(wanted);
        self.take(node, space);
        self.earmarked.entry(job).or_default().insert(node.clone(), space);
    }

    /// Release the space earmarked for a job.
    pub fn release_earmarked(&mut self, job: JobId) {
        for (node, space) in self.earmarked.remove(&job).into_iter().flatten() {
            if let Some(free) = self.free_on(&node) {
                self.set_free(&node, free.plus(space));
            }
        }
    }

    /// Promise space that stopping jobs release on a node to a preemptor.
    pub fn promise(&mut self, node: &NodeId, space: ResourceVec) {
        let promised = self.promised.entry(node.clone()).or_default();
        *promised = promised.plus(space);
    }

    /// GPUs of a node that are warm or have had an error, as bits.
    pub fn warning_gpus_on(&self, node: &NodeId) -> u64 {
        self.warning_gpus.get(node).copied().unwrap_or_default()
    }

    pub fn has_degraded_gpus(&self) -> bool {
        !self.degraded_gpus.is_empty()
    }

    /// Space without the degraded GPUs of a node.
    pub fn without_degraded(&self, node: &NodeId, free: ResourceVec) -> ResourceVec {
        let degraded = self.degraded_gpus.get(node).copied().unwrap_or_default();
        if degraded == 0 { free } else { free.on_devices(!degraded) }
    }
}

fn gpus_with_status(state: &State, status: GpuStatus) -> BTreeMap<NodeId, u64> {
    let mut found = BTreeMap::new();
    for node in state.nodes.values() {
        let gpus = (0..).zip(&node.gpu_health).filter(|(_, health)| health.status == status);
        let mask = gpus.fold(0u64, |mask, (index, _): (u32, _)| mask | 1 << index);
        if mask != 0 {
            found.insert(node.id.clone(), mask);
        }
    }
    found
}

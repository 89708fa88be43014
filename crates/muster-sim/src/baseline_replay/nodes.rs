//! The nodes of the cluster: GPUs that are free, and who holds the others.

use std::collections::BTreeMap;

/// GPUs of each node in the published runs.
const GPUS_PER_NODE: u32 = 8;

/// Nodes that are alike. Nothing but GPUs binds.
#[derive(Debug, Clone)]
pub struct UniformNodes {
    /// GPUs of each.
    gpus_per_node: u32,
    free_gpus_by_node: Vec<u32>,
    /// For each job its nodes, and how many GPUs it has there.
    gpus_by_job: BTreeMap<usize, Vec<(usize, u32)>>,
}

impl UniformNodes {
    /// So many nodes of 8 GPUs, all free.
    pub fn new(count: usize) -> UniformNodes {
        UniformNodes::with_gpus_per_node(count, GPUS_PER_NODE)
    }

    /// So many nodes with so many GPUs each, all free.
    pub fn with_gpus_per_node(count: usize, each: u32) -> UniformNodes {
        UniformNodes { gpus_per_node: each, free_gpus_by_node: vec![each; count], gpus_by_job: BTreeMap::new() }
    }

    /// How many GPUs there are in all.
    pub fn gpus(&self) -> u32 {
        self.free_gpus_by_node.len() as u32 * self.gpus_per_node
    }

    /// Free GPUs of all nodes together.
    pub fn free_gpus(&self) -> u32 {
        self.free_gpus_by_node.iter().sum()
    }

    /// Free GPUs of each node.
    pub fn free_by_node(&self) -> &[u32] {
        &self.free_gpus_by_node
    }

    /// Everyone leaves.
    pub fn release_all(&mut self) {
        self.free_gpus_by_node.fill(self.gpus_per_node);
        self.gpus_by_job.clear();
    }

    /// Seat a gang, if it fits: on the first node that has room for all of it; what needs more than a node on nodes that
    /// are free, and the rest on the first other node with room.
    pub fn place_gang(&mut self, job: usize, gpus: u32) -> bool {
        let Some(seats) = self.find_placement(gpus) else { return false };
        seats.iter().for_each(|(node, gpus)| self.free_gpus_by_node[*node] -= gpus);
        self.gpus_by_job.insert(job, seats);
        true
    }

    /// Whether a gang fits. Where one does not, no larger one does.
    pub fn fits(&self, gpus: u32) -> bool {
        self.find_placement(gpus).is_some()
    }

    fn find_placement(&self, gpus: u32) -> Option<Vec<(usize, u32)>> {
        let each = self.gpus_per_node;
        let (whole, rest) = if gpus <= each { (0, gpus) } else { (gpus / each, gpus % each) };
        let empty = (0..self.free_gpus_by_node.len()).filter(|node| self.free_gpus_by_node[*node] == each);
        let mut seats: Vec<(usize, u32)> = empty.take(whole as usize).map(|node| (node, each)).collect();
        if seats.len() < whole as usize {
            return None;
        }
        if rest > 0 {
            let other = |node: &usize| self.free_gpus_by_node[*node] >= rest && seats.iter().all(|(seat, _)| seat != node);
            let node = (0..self.free_gpus_by_node.len()).find(other)?;
            seats.push((node, rest));
        }
        Some(seats)
    }

    /// A job leaves; nothing happens if it has no seat.
    pub fn release(&mut self, job: usize) {
        for (node, gpus) in self.gpus_by_job.remove(&job).into_iter().flatten() {
            self.free_gpus_by_node[node] += gpus;
        }
    }
}

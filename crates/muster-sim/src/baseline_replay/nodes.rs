//! The nodes of a baseline replay: free GPUs, and the GPUs that each job holds.

use std::collections::BTreeMap;

/// GPUs per node in the published runs.
const GPUS_PER_NODE: u32 = 8;

/// Equal nodes. GPUs are the only resource.
#[derive(Debug, Clone)]
pub struct UniformNodes {
    gpus_per_node: u32,
    free_gpus_by_node: Vec<u32>,
    /// The nodes of each job, and its GPUs on each node.
    gpus_by_job: BTreeMap<usize, Vec<(usize, u32)>>,
}

impl UniformNodes {
    /// Nodes with 8 GPUs each, all free.
    pub fn new(count: usize) -> UniformNodes {
        UniformNodes::with_gpus_per_node(count, GPUS_PER_NODE)
    }

    /// Nodes with the given number of GPUs each, all free.
    pub fn with_gpus_per_node(count: usize, gpus_per_node: u32) -> UniformNodes {
        UniformNodes { gpus_per_node, free_gpus_by_node: vec![gpus_per_node; count], gpus_by_job: BTreeMap::new() }
    }

    /// The number of GPUs of all nodes.
    pub fn gpus(&self) -> u32 {
        self.free_gpus_by_node.len() as u32 * self.gpus_per_node
    }

    /// The number of free GPUs of all nodes.
    pub fn free_gpus(&self) -> u32 {
        self.free_gpus_by_node.iter().sum()
    }

    /// The number of free GPUs of each node.
    pub fn free_by_node(&self) -> &[u32] {
        &self.free_gpus_by_node
    }

    /// Releases the GPUs of every job.
    pub fn release_all(&mut self) {
        self.free_gpus_by_node.fill(self.gpus_per_node);
        self.gpus_by_job.clear();
    }

    /// Places a gang, if it fits: on the first node with enough free GPUs. A gang larger than a node gets whole empty
    /// nodes, and its rest the first other node with enough free GPUs.
    pub fn place_gang(&mut self, job: usize, gpus: u32) -> bool {
        let Some(placement) = self.find_placement(gpus) else { return false };
        placement.iter().for_each(|(node, gpus)| self.free_gpus_by_node[*node] -= gpus);
        self.gpus_by_job.insert(job, placement);
        true
    }

    /// True if a gang fits. If a gang does not fit, no larger one does.
    pub fn fits(&self, gpus: u32) -> bool {
        self.find_placement(gpus).is_some()
    }

    fn find_placement(&self, gpus: u32) -> Option<Vec<(usize, u32)>> {
        let gpus_per_node = self.gpus_per_node;
        let (whole, rest) =
            if gpus <= gpus_per_node { (0, gpus) } else { (gpus / gpus_per_node, gpus % gpus_per_node) };
        let empty = (0..self.free_gpus_by_node.len()).filter(|node| self.free_gpus_by_node[*node] == gpus_per_node);
        let mut placement: Vec<(usize, u32)> = empty.take(whole as usize).map(|node| (node, gpus_per_node)).collect();
        if placement.len() < whole as usize {
            return None;
        }
        if rest > 0 {
            let other =
                |node: &usize| self.free_gpus_by_node[*node] >= rest && placement.iter().all(|(used, _)| used != node);
            let node = (0..self.free_gpus_by_node.len()).find(other)?;
            placement.push((node, rest));
        }
        Some(placement)
    }

    /// Releases the GPUs of a job; does nothing if the job is not placed.
    pub fn release(&mut self, job: usize) {
        for (node, gpus) in self.gpus_by_job.remove(&job).into_iter().flatten() {
            self.free_gpus_by_node[node] += gpus;
        }
    }
}

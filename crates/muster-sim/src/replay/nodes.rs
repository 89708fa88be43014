//! The nodes of the cluster: GPUs that are free, and who holds the others.

use std::collections::BTreeMap;

/// GPUs of each node.
const GPUS: u32 = 8;

/// Nodes of 8 GPUs each. Nothing but GPUs binds.
#[derive(Debug, Clone)]
pub struct Nodes {
    free: Vec<u32>,
    /// For each job its nodes, and how many GPUs it has there.
    held: BTreeMap<usize, Vec<(usize, u32)>>,
}

impl Nodes {
    /// So many nodes, all free.
    pub fn new(count: usize) -> Nodes {
        Nodes { free: vec![GPUS; count], held: BTreeMap::new() }
    }

    /// How many GPUs there are in all.
    pub fn gpus(&self) -> u32 {
        self.free.len() as u32 * GPUS
    }

    /// Free GPUs of all nodes together.
    pub fn free_gpus(&self) -> u32 {
        self.free.iter().sum()
    }

    /// Everyone leaves.
    pub fn clear(&mut self) {
        self.free.fill(GPUS);
        self.held.clear();
    }

    /// Seat a gang, if it fits: on the first node that has room for all of it; what needs more than a node on nodes that
    /// are free, and the rest on the first other node with room.
    pub fn seat(&mut self, job: usize, gpus: u32) -> bool {
        let (whole, rest) = if gpus <= GPUS { (0, gpus) } else { (gpus / GPUS, gpus % GPUS) };
        let empty = (0..self.free.len()).filter(|node| self.free[*node] == GPUS);
        let mut seats: Vec<(usize, u32)> = empty.take(whole as usize).map(|node| (node, GPUS)).collect();
        if seats.len() < whole as usize {
            return false;
        }
        if rest > 0 {
            let other = |node: &usize| self.free[*node] >= rest && seats.iter().all(|(seat, _)| seat != node);
            let Some(node) = (0..self.free.len()).find(other) else { return false };
            seats.push((node, rest));
        }
        seats.iter().for_each(|(node, gpus)| self.free[*node] -= gpus);
        self.held.insert(job, seats);
        true
    }

    /// A job leaves; nothing happens if it has no seat.
    pub fn release(&mut self, job: usize) {
        for (node, gpus) in self.held.remove(&job).into_iter().flatten() {
            self.free[node] += gpus;
        }
    }
}

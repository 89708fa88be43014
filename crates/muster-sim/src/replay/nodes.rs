//! The nodes of the cluster: GPUs that are free, and who holds the others.

use std::collections::BTreeMap;

/// GPUs of each node in the published runs.
const GPUS: u32 = 8;

/// Nodes that are alike. Nothing but GPUs binds.
#[derive(Debug, Clone)]
pub struct Nodes {
    /// GPUs of each.
    each: u32,
    free: Vec<u32>,
    /// For each job its nodes, and how many GPUs it has there.
    held: BTreeMap<usize, Vec<(usize, u32)>>,
}

impl Nodes {
    /// So many nodes of 8 GPUs, all free.
    pub fn new(count: usize) -> Nodes {
        Nodes::of(count, GPUS)
    }

    /// So many nodes with so many GPUs each, all free.
    pub fn of(count: usize, each: u32) -> Nodes {
        Nodes { each, free: vec![each; count], held: BTreeMap::new() }
    }

    /// How many GPUs there are in all.
    pub fn gpus(&self) -> u32 {
        self.free.len() as u32 * self.each
    }

    /// Free GPUs of all nodes together.
    pub fn free_gpus(&self) -> u32 {
        self.free.iter().sum()
    }

    /// Free GPUs of each node.
    pub fn free_by_node(&self) -> &[u32] {
        &self.free
    }

    /// Everyone leaves.
    pub fn clear(&mut self) {
        self.free.fill(self.each);
        self.held.clear();
    }

    /// Seat a gang, if it fits: on the first node that has room for all of it; what needs more than a node on nodes that
    /// are free, and the rest on the first other node with room.
    pub fn seat(&mut self, job: usize, gpus: u32) -> bool {
        let Some(seats) = self.seats(gpus) else { return false };
        seats.iter().for_each(|(node, gpus)| self.free[*node] -= gpus);
        self.held.insert(job, seats);
        true
    }

    /// Whether a gang fits. Where one does not, no larger one does.
    pub fn fits(&self, gpus: u32) -> bool {
        self.seats(gpus).is_some()
    }

    fn seats(&self, gpus: u32) -> Option<Vec<(usize, u32)>> {
        let each = self.each;
        let (whole, rest) = if gpus <= each { (0, gpus) } else { (gpus / each, gpus % each) };
        let empty = (0..self.free.len()).filter(|node| self.free[*node] == each);
        let mut seats: Vec<(usize, u32)> = empty.take(whole as usize).map(|node| (node, each)).collect();
        if seats.len() < whole as usize {
            return None;
        }
        if rest > 0 {
            let other = |node: &usize| self.free[*node] >= rest && seats.iter().all(|(seat, _)| seat != node);
            let node = (0..self.free.len()).find(other)?;
            seats.push((node, rest));
        }
        Some(seats)
    }

    /// A job leaves; nothing happens if it has no seat.
    pub fn release(&mut self, job: usize) {
        for (node, gpus) in self.held.remove(&job).into_iter().flatten() {
            self.free[node] += gpus;
        }
    }
}

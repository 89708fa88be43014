//! Which GPUs stand free, and whether anyone who waits could use them.

use std::collections::BTreeMap;

use muster_core::job::PlacedTask;
use muster_core::{JobId, NodeId};

use super::Site;
use crate::history::{Free, FreeSum};

/// The GPUs of the cluster, and who waits for some.
pub struct Floor {
    places: BTreeMap<NodeId, usize>,
    /// How many hold each device, by node.
    holders: Vec<Vec<u32>>,
    /// GPUs that nobody holds, by node.
    free: Vec<usize>,
    /// How many nodes have so many of them.
    nodes_by_free: Vec<u64>,
    held: BTreeMap<JobId, Vec<(usize, u8)>>,
    /// How many wait whose smallest task needs so many GPUs.
    waiting: BTreeMap<u32, usize>,
    sum: FreeSum,
}

impl Floor {
    /// All free, and nobody waits.
    pub fn new(site: &Site) -> Floor {
        let mut floor = Floor {
            places: BTreeMap::new(),
            holders: Vec::new(),
            free: Vec::new(),
            nodes_by_free: Vec::new(),
            held: BTreeMap::new(),
            waiting: BTreeMap::new(),
            sum: FreeSum::default(),
        };
        for (place, (node, facts)) in site.nodes().iter().enumerate() {
            let gpus = facts.gpus.len();
            floor.places.insert(node.clone(), place);
            floor.holders.push(vec![0; gpus]);
            floor.free.push(gpus);
            floor.nodes_by_free.resize(floor.nodes_by_free.len().max(gpus + 1), 0);
            floor.nodes_by_free[gpus] += 1;
        }
        floor
    }

    /// One more waits, whose smallest task needs so many GPUs.
    pub fn waits(&mut self, least_gpus: u32) {
        *self.waiting.entry(least_gpus).or_default() += 1;
    }

    /// It does not wait any more.
    pub fn waits_no_more(&mut self, least_gpus: u32) {
        let count = self.waiting.get_mut(&least_gpus).map(|count| {
            *count -= 1;
            *count
        });
        if count == Some(0) {
            self.waiting.remove(&least_gpus);
        }
    }

    /// A job takes its devices.
    pub fn take(&mut self, job: JobId, tasks: &[PlacedTask]) {
        let places = &self.places;
        let seats = tasks.iter().flat_map(PlacedTask::devices);
        let seats: Vec<(usize, u8)> = seats.map(|(node, gpu)| (places[node], gpu)).collect();
        for (node, gpu) in &seats {
            let holders = &mut self.holders[*node][usize::from(*gpu)];
            *holders += 1;
            if *holders == 1 {
                self.set_free(*node, self.free[*node] - 1);
            }
        }
        self.held.insert(job, seats);
    }

    /// A job gives them back.
    pub fn give_back(&mut self, job: JobId) {
        for (node, gpu) in self.held.remove(&job).into_iter().flatten() {
            let holders = &mut self.holders[node][usize::from(gpu)];
            *holders -= 1;
            if *holders == 0 {
                self.set_free(node, self.free[node] + 1);
            }
        }
    }

    fn set_free(&mut self, node: usize, free: usize) {
        self.nodes_by_free[self.free[node]] -= 1;
        self.nodes_by_free[free] += 1;
        self.free[node] = free;
    }

    /// From now on it is as it is.
    pub fn note_free(&mut self, now_ms: i64) {
        let Some(least) = self.waiting.keys().next().map(|least| *least as usize) else {
            return self.sum.set(now_ms, 0, Some(0));
        };
        let gpus = |(free, nodes): (usize, &u64)| free as u64 * nodes;
        let all = self.nodes_by_free.iter().enumerate().map(gpus).sum();
        let fragments = self.nodes_by_free.iter().enumerate().take(least).map(gpus).sum();
        self.sum.set(now_ms, all, Some(fragments));
    }

    /// What stood free while someone waited.
    pub fn free(&self) -> Free {
        self.sum.sum()
    }
}

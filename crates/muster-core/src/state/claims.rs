//! Claims: space that is held for a preemptor until the jobs it preempts have stopped.

use std::collections::BTreeMap;

use crate::ids::{JobId, NodeId};
use crate::objects::job::{Job, PlacedTask};
use crate::resources::{ResourceVec, mask};
use crate::state::{Claim, State};
use crate::time::Timestamp;

impl State {
    /// What the victims of a claim still hold on a node. A victim that runs again does not count.
    pub fn releasing_for(&self, claim: &Claim, node: &NodeId) -> ResourceVec {
        let victims = claim.victims.iter().filter_map(|victim| self.jobs.get(victim));
        let stopping = |job: &&Job| job.attempt().is_some_and(|attempt| attempt.stopping.is_some());
        let stopping = victims.filter(stopping);
        stopping.fold(ResourceVec::default(), |sum, job| sum.plus(ResourceVec::used_on(node, job)))
    }

    /// What a claim withholds from other jobs, by node: its devices, and the cores and memory beyond those that its
    /// stopping victims will release.
    pub fn kept_by_claim(&self, id: JobId, claim: &Claim) -> Vec<(NodeId, ResourceVec)> {
        let Some(job) = self.jobs.get(&id) else { return Vec::new() };
        let wanted = ResourceVec::by_node(&job.spec, &claim.tasks).into_iter();
        let kept = wanted.map(|(node, wanted)| {
            let releasing = self.releasing_for(claim, node);
            (node.clone(), wanted.minus(releasing.divisible()))
        });
        kept.collect()
    }

    /// True if everything that a claim holds may be given to the preemptor once it is free.
    pub fn is_claim_usable(&self, job: &Job, claim: &Claim, now: Timestamp) -> bool {
        let open = |node: &NodeId| self.resources.entry(node).is_some_and(|entry| entry.open);
        let healthy = |task: &PlacedTask| mask(&task.gpus) & !self.usable_gpus(&task.node) == 0;
        let admitted = |task: &PlacedTask| self.windows_admit(job, &task.node, now);
        let in_pool = |task: &PlacedTask| self.is_in_pool(job.spec.pool.as_deref(), task);
        let usable = |task: &PlacedTask| open(&task.node) && healthy(task) && admitted(task) && in_pool(task);
        !claim.tasks.is_empty() && claim.tasks.iter().all(usable)
    }

    /// True if a pool admits the devices of a task in their current condition.
    fn is_in_pool(&self, pool: Option<&str>, task: &PlacedTask) -> bool {
        let Some(pool) = pool else { return true };
        let pools = self.nodes.get(&task.node).map(|node| &node.pools[..]).unwrap_or_default();
        let admits = |gpu: &u8| pools.get(usize::from(*gpu)).and_then(|pools| pools.get(pool)) == Some(&true);
        task.gpus.iter().all(admits)
    }

    /// What claims hold, by node.
    pub fn claimed_space(&self) -> BTreeMap<NodeId, Vec<(JobId, ResourceVec)>> {
        let mut nodes: BTreeMap<NodeId, Vec<(JobId, ResourceVec)>> = BTreeMap::new();
        for (id, claim) in &self.claims {
            for (node, space) in self.kept_by_claim(*id, claim) {
                nodes.entry(node).or_default().push((*id, space));
            }
        }
        nodes
    }

    /// Devices of a node that may be leased once they are free, as bits.
    pub fn usable_gpus(&self, node: &NodeId) -> u64 {
        let Some(node) = self.nodes.get(node) else { return 0 };
        (0..node.facts.gpus.len()).filter(|index| node.gpu_usable(*index)).fold(0, |mask, index| mask | 1 << index)
    }
}

//! Defragmentation: migrating a running job so that a blocked job fits.

use std::collections::BTreeMap;

use muster_core::facts::plan::Eviction;
use muster_core::objects::job::{Job, PlacedTask};
use muster_core::{JobId, NodeId};

use crate::naive_planner::NaivePlanner;
use crate::naive_planner::devices::is_degraded;
use crate::naive_planner::expected_end::irrevocable;
use crate::recompute::held_by;

impl<'a> NaivePlanner<'a> {
    /// Migrate a checkpointing job so that a blocked job fits, if that gains twice what it costs. Only the first eight
    /// blocked jobs are considered.
    pub(super) fn defragment(&mut self, blocked: Vec<&'a Job>) {
        for job in blocked.into_iter().take(8).filter(|_| self.state.settings.defragment) {
            let at = self
                .reservations
                .iter()
                .find(|reservation| reservation.job == job.id)
                .map(|reservation| reservation.at);
            let Some(at) = at.filter(|_| self.may_preempt(job) && self.admits(job)) else { continue };
            let grace = self.state.settings.stop_grace_ms;
            let gained = (at.since(self.now) - grace).max(0) as u64 * job.spec.demand().gpu_milli / 1_000;
            let mut best: Option<((u64, JobId), &Job, Vec<PlacedTask>)> = None;
            for node in self.free.keys() {
                for victim in self.candidates(node) {
                    let lost = self.preemption_loss(victim) + grace as u64 * held_by(victim).gpu_milli / 1_000;
                    let may_move = self.writes_checkpoints(victim)
                        && victim.preemptions == 0
                        && victim.spec.priority <= job.spec.priority;
                    let better = best.as_ref().is_none_or(|(known, _, _)| (lost, victim.id) < *known);
                    if !may_move
                        || !self.policies_allow_eviction(job, victim)
                        || !better
                        || gained == 0
                        || gained < 2 * lost
                    {
                        continue;
                    }
                    let space = self.space_after_except(Some(job.id), node, &[victim]);
                    let tasks = space.and_then(|space| self.fit_on_node(job, node, &space));
                    let tasks = tasks.filter(|_| self.fits_elsewhere(victim, node));
                    let holds = |tasks: &Vec<PlacedTask>| {
                        let (tasks, victims) = (tasks.clone(), vec![victim.id]);
                        self.state.would_adopt(&Eviction { job: job.id, tasks, victims }, self.now)
                    };
                    if let Some(tasks) = tasks.filter(holds) {
                        best = Some(((lost, victim.id), victim, tasks));
                    }
                }
            }
            if let Some((_, victim, tasks)) = best {
                self.record_eviction(job, vec![victim], tasks);
            }
        }
    }

    /// True if a running gang would fit now without the node `apart`.
    pub(super) fn fits_elsewhere(&self, victim: &Job, apart: &NodeId) -> bool {
        let mut spaces = BTreeMap::new();
        for (id, free) in self.free.iter().filter(|(id, _)| *id != apart) {
            let mut usable = free.clone();
            usable.gpus.retain(|gpu, _| !is_degraded(&self.state.nodes[id], *gpu));
            usable.instances.retain(|(gpu, _)| !is_degraded(&self.state.nodes[id], *gpu));
            let expected_end = irrevocable(self.expected_end(victim));
            let usable = self.unreserved(id, &usable, expected_end, Some(&victim.spec.tenant));
            spaces.extend(usable.map(|usable| (id.clone(), (free.whole(), usable))));
        }
        self.best_placement(victim, &spaces).is_some()
    }
}

//! Claims and pending stops: space that is held for a preemptor.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::objects::job::{Job, PlacedTask, Stopping};
use muster_core::state::Claim;
use muster_core::time::MINUTE;
use muster_core::{JobId, NodeId};

use crate::naive_planner::NaivePlanner;
use crate::naive_planner::devices::{has_current_share, is_eligible};
use crate::naive_planner::expected_end::NO_KNOWN_END;
use crate::naive_planner::space::{Space, Spaces, free_on, space_by_node, space_of_task, still_needed, usable};
use crate::recompute::is_ready;

impl<'a> NaivePlanner<'a> {
    pub(super) fn count_pending_stops(&mut self) {
        for job in self.state.jobs.values() {
            let Some(attempt) = job.attempt() else { continue };
            let trusted = |stopping: &Stopping| self.now.since(stopping.since) <= stopping.grace_ms + MINUTE;
            if attempt.stopping.as_ref().is_some_and(trusted) {
                for task in &attempt.tasks {
                    self.releasing.entry(task.node.clone()).or_default().add(&space_of_task(job, task));
                }
            }
        }
    }

    pub(super) fn hold_claimed_space(&mut self) {
        let (state, now) = (self.state, self.now);
        for (id, claim) in &self.state.claims {
            let job = &self.state.jobs[id];
            for (node, all) in space_by_node(job, &claim.tasks) {
                let released = self.releases_for(claim, &node);
                if let Some(releasing) = self.releasing.get_mut(&node) {
                    releasing.take(&all.promised_of(&released));
                }
                if let Some(free) = self.free.get_mut(&node) {
                    free.take(&still_needed(&released, &all));
                }
                self.promised.entry(node).or_default().add(&all.promised_of(&released));
            }
            let is_usable = |task: &PlacedTask| {
                let node = &self.state.nodes[&task.node];
                node.is_schedulable() && task.gpus.iter().all(|gpu| node.gpu_usable(usize::from(*gpu)))
            };
            let end = job.spec.time_limit_ms.map(|limit| now.plus(limit + state.settings.stop_grace_ms));
            let in_window = |task: &PlacedTask| {
                let mut windows = self.windows_closed_to(Some(&job.spec.tenant));
                windows.any(|window| {
                    window.nodes.contains(&task.node) && now < window.until && end.is_none_or(|end| end > window.from)
                })
            };
            if is_ready(job) && claim.tasks.iter().all(|task| is_usable(task) && !in_window(task)) {
                self.claimants.insert(*id);
            }
        }
    }

    pub(super) fn releases_for(&self, claim: &Claim, node: &NodeId) -> Space {
        let mut released = Space::default();
        for victim in claim.victims.iter().filter_map(|victim| self.state.jobs.get(victim)) {
            let stopping = victim.attempt().filter(|attempt| attempt.stopping.is_some());
            let tasks = stopping.into_iter().flat_map(|attempt| &attempt.tasks);
            tasks.filter(|task| task.node == *node).for_each(|task| released.add(&space_of_task(victim, task)));
        }
        released
    }

    pub(super) fn start_claimants(&mut self) {
        let mut waiting = Vec::new();
        for id in self.claimants.clone() {
            let (job, claim) = (&self.state.jobs[&id], &self.state.claims[&id]);
            let own: BTreeMap<NodeId, Space> = space_by_node(job, &claim.tasks)
                .into_keys()
                .map(|node| (node.clone(), self.free_for_claimant(id, &node)))
                .collect();
            let fits_exactly = space_by_node(job, &claim.tasks).iter().all(|(node, space)| own[node].holds(space));
            let is_valid = |task: &PlacedTask| {
                let node = &self.state.nodes[&task.node];
                let each = &job.spec.tasks[task.group as usize].each;
                let fits = |gpu: &u8| is_eligible(each, node, *gpu) && has_current_share(each, node, *gpu, task);
                task.gpus.iter().all(fits) && self.model_allows(job, node)
            };
            let first = &claim.tasks[0].node;
            let elsewhere = || if own.len() == 1 { self.fit_on_node(job, first, &own[first]) } else { None };
            let exactly = (fits_exactly && claim.tasks.iter().all(is_valid)).then(|| claim.tasks.clone());
            match exactly.or_else(elsewhere).filter(|_| self.admits(job)) {
                Some(tasks) => {
                    own.into_iter().for_each(|(node, space)| drop(self.free.insert(node, space)));
                    self.record_start(job, tasks);
                }
                None => waiting.push(job),
            }
        }
        waiting.into_iter().for_each(|job| self.count_usage(job, &self.state.claims[&job.id].tasks));
    }

    /// Free space of a node for a claimant: without the claims of other jobs and the starts of this plan.
    pub(super) fn free_for_claimant(&self, id: JobId, node: &NodeId) -> Space {
        let mut own = free_on(&self.state.nodes[node]);
        for (job, tasks) in &self.starts {
            let job = &self.state.jobs[job];
            tasks.iter().filter(|task| task.node == *node).for_each(|task| own.take(&space_of_task(job, task)));
        }
        for (other, claim) in self.state.claims.iter().filter(|(other, _)| **other != id) {
            if self.starts.iter().any(|(started, _)| started == other) {
                continue;
            }
            if let Some(all) = space_by_node(&self.state.jobs[other], &claim.tasks).get(node) {
                own.take(&still_needed(&self.releases_for(claim, node), all));
            }
        }
        own
    }

    pub(super) fn wait_for_pending_stops(&mut self, job: &'a Job) -> bool {
        let later: Spaces = self
            .free
            .iter()
            .filter_map(|(id, free)| match self.releasing.get(id) {
                Some(releasing) => {
                    let node = &self.state.nodes[id];
                    let later = free.plus(&usable(node, releasing)).less_overdrawn(node);
                    let later = self.unreserved(id, &later, NO_KNOWN_END, None)?;
                    Some((id.clone(), (later.whole(), later)))
                }
                None => Some((id.clone(), (free.whole(), self.unreserved(id, free, NO_KNOWN_END, None)?))),
            })
            .collect();
        let mut where_space_is_released = later.iter().filter(|(id, _)| self.releasing.contains_key(*id));
        let on_one = where_space_is_released.find_map(|(id, (_, space))| self.fit_on_node(job, id, space));
        let across = || if self.releasing.is_empty() { None } else { self.place_on_several(job, &later) };
        let Some(tasks) = on_one.or_else(across) else { return false };
        for (id, taken) in space_by_node(job, &tasks) {
            let releasing = self.releasing.get(&id).cloned().unwrap_or_default();
            if let Some(releasing) = self.releasing.get_mut(&id) {
                releasing.take(&taken);
            }
            self.promised.entry(id.clone()).or_default().add(&taken.shared_with(&releasing));
            self.free.get_mut(&id).unwrap().take(&still_needed(&releasing, &taken));
        }
        self.count_usage(job, &tasks);
        true
    }

    /// Cores and memory that claims on a node need beyond what is free.
    pub(super) fn missing_for_claims(&self, id: &NodeId) -> Space {
        let mut missing = Space::default();
        for (job, claim) in &self.state.claims {
            if let Some(all) = space_by_node(&self.state.jobs[job], &claim.tasks).get(id) {
                missing.add(&still_needed(&self.releases_for(claim, id), all));
            }
        }
        missing.take(&free_on(&self.state.nodes[id]));
        Space { gpus: BTreeMap::new(), instances: BTreeSet::new(), ..missing }
    }
}

//! Preemption under the objective `fast`: SRPT without loss, with a net gain, and for a group.

use std::cmp::Reverse;

use muster_core::objects::job::{Job, PlacedTask};
use muster_core::objects::policy::Hook;
use muster_core::{NodeId, Timestamp};

use crate::naive_planner::policies::priority_values;
use crate::naive_planner::space::{Space, space_by_node, space_of_task, usable};
use crate::naive_planner::{EvictionMode, NaivePlanner};
use crate::recompute::held_by;
use crate::story_policies;

impl<'a> NaivePlanner<'a> {
    /// The expected remaining GPU time of a waiting job. The runtime model is the product's and has tests of its own.
    pub(super) fn requested_gpu_ms(&self, job: &Job) -> u64 {
        job.spec.demand().gpu_milli * self.state.remaining_ms(job, self.now) as u64 / 1_000
    }

    /// The remaining GPU time of a running job; `None` if the job does not yield.
    pub(super) fn remaining_gpu_ms(&self, victim: &Job) -> Option<u64> {
        let attempt = victim.attempt().unwrap();
        let was_overdue = attempt.placed_at.since(victim.submitted_at) > self.state.settings.max_wait_ms;
        let may_be_evicted_again = victim.preemptions == 0 || self.writes_checkpoints(victim);
        let left = self.state.remaining_ms(victim, self.now) as u64 * held_by(victim).gpu_milli / 1_000;
        (may_be_evicted_again && !was_overdue).then_some(left)
    }

    pub(super) fn writes_checkpoints(&self, victim: &Job) -> bool {
        victim.spec.checkpoint.is_some() || victim.attempt().unwrap().saved_at.is_some()
    }

    /// The SRPT index of a running job; `None` if it would lose an eighth of its remaining work or more.
    pub(super) fn srpt_index(&self, victim: &Job) -> Option<u64> {
        let left = self.remaining_gpu_ms(victim).filter(|left| *left > 0 && self.writes_checkpoints(victim))?;
        let lost = self.preemption_loss(victim);
        (lost < left / 8).then(|| (held_by(victim).gpu_milli << 40) / (left - lost))
    }

    pub(super) fn index_if_started(&self, job: &Job) -> u64 {
        (job.spec.demand().gpu_milli << 40) / self.requested_gpu_ms(job).max(1)
    }

    /// True if the indexes or sizes of the two jobs let the victim yield.
    pub(super) fn yields_to(&self, victim: &Job, to: &Job) -> bool {
        let weaker = match self.mode {
            EvictionMode::LossFree(_) => self.srpt_index(victim).is_some_and(|index| index < self.index_if_started(to)),
            _ => self.remaining_gpu_ms(victim).is_some_and(|left| self.requested_gpu_ms(to) < left),
        };
        victim.spec.priority <= self.preemption_priority(to) && weaker
    }

    /// Evict jobs that lose almost nothing, if the SRPT index of the job exceeds the sum of theirs.
    pub(super) fn srpt_loss_free(&mut self, job: &'a Job) -> bool {
        if !self.is_fast() || !self.may_preempt(job) {
            return false;
        }
        self.mode = EvictionMode::LossFree(job);
        let found = self.cheapest_eviction(job);
        self.mode = EvictionMode::ByPriority;
        let Some((victims, tasks)) = found else { return false };
        let index: u64 = victims.iter().map(|victim| self.srpt_index(victim).unwrap()).sum();
        if index >= self.index_if_started(job) {
            return false;
        }
        if !self.wait_for_pending_stops(job) {
            self.record_eviction(job, victims, tasks);
        }
        true
    }

    /// Evict longer jobs, if the job gains more time before its reservation than the victims lose.
    pub(super) fn srpt_net_gain(&mut self, job: &'a Job, at: Timestamp) -> bool {
        if !self.is_fast() || !self.may_preempt(job) {
            return false;
        }
        self.mode = EvictionMode::NetGain;
        let found = self.cheapest_eviction(job);
        self.mode = EvictionMode::ByPriority;
        let Some((victims, tasks)) = found else { return false };
        let grace = self.state.settings.stop_grace_ms;
        let gpu_milli = job.spec.demand().gpu_milli.max(1);
        let takes = (self.requested_gpu_ms(job) * 1_000 / gpu_milli) as i64 + grace;
        let lost = |victim: &&Job| self.preemption_loss(victim) * 1_000 / held_by(victim).gpu_milli;
        let costs: i64 = victims.iter().map(|victim| takes + lost(victim) as i64).sum();
        let over = |victim: &&Job| self.now.plus(self.state.remaining_ms(victim, self.now));
        let at = at.min(victims.iter().map(over).max().unwrap());
        if costs >= at.since(self.now) - grace {
            return false;
        }
        if !self.wait_for_pending_stops(job) {
            self.record_eviction(job, victims, tasks);
        }
        true
    }

    /// Evict one job that loses almost nothing, if the indexes of the group that then fits on its nodes exceed its
    /// index by a quarter.
    pub(super) fn srpt_group(&mut self, mut waiting: Vec<&'a Job>) {
        let limited = |job: &Job| {
            let mut lineage = self.state.lineage(&job.spec.tenant);
            lineage.any(|tenant| !tenant.config.maximum_by_model.is_empty())
        };
        let protected = self.state.tenants.values().any(|tenant| {
            let config = &tenant.config;
            config.preemption_loss_gpu_ms_per_day.is_some()
                || config.guaranteed.is_set()
                || config.guaranteed_by_model.values().any(|gpus| *gpus > 0)
        });
        let no_claims = self.state.claims.is_empty() && self.evictions.is_empty();
        let victims_restricted = priority_values(self.state).is_some()
            || self
                .state
                .tenants
                .keys()
                .any(|tenant| story_policies::is_hook_active(self.state, Hook::Victims, tenant));
        if !self.is_fast() || !no_claims || protected || victims_restricted {
            return;
        }
        waiting.retain(|job| self.may_preempt(job) && self.admits(job) && !limited(job));
        waiting.sort_by_key(|job| (self.requested_gpu_ms(job), job.submitted_at, job.id));
        waiting.truncate(32);
        let mut best = None;
        for victim in self.state.jobs.values().filter(|job| self.may_be_evicted(job)) {
            let Some((first, tasks, gain)) = self.group_gain(victim, &waiting) else { continue };
            let found = (gain, self.remaining_gpu_ms(victim).unwrap(), Reverse(victim.id));
            if best.as_ref().is_none_or(|(best, _, _): &(_, &Job, Vec<PlacedTask>)| found > *best) {
                best = Some((found, first, tasks));
            }
        }
        if let Some(((_, _, Reverse(victim)), first, tasks)) = best {
            self.record_eviction(first, vec![&self.state.jobs[&victim]], tasks);
        }
    }

    /// The first job of the group that replaces a victim, its placement, and the gain in SRPT index.
    pub(super) fn group_gain(&self, victim: &'a Job, waiting: &[&'a Job]) -> Option<(&'a Job, Vec<PlacedTask>, u64)> {
        let index = self.srpt_index(victim)?;
        let mut placed: Vec<(&Job, Vec<PlacedTask>)> = Vec::new();
        for job in waiting.iter().copied().filter(|job| job.spec.priority >= victim.spec.priority) {
            let nodes = victim.attempt().unwrap().nodes().into_iter();
            let mut open = nodes.filter(|node| self.free.contains_key(node));
            let tasks = open
                .find_map(|node| self.fit_on_node(job, &node, &self.space_after_group(job, &node, victim, &placed)?));
            placed.extend(tasks.map(|tasks| (job, tasks)));
        }
        let together: u64 = placed.iter().map(|(job, _)| self.index_if_started(job)).sum();
        let (first, tasks) = placed.into_iter().next()?;
        let exceeds = together > index + index / 4;
        let smaller = self.requested_gpu_ms(first) < self.remaining_gpu_ms(victim).unwrap();
        (exceeds && smaller).then(|| (first, tasks, together - index))
    }

    /// Space that a job may use on a node after the victim is gone and `placed` jobs are there.
    pub(super) fn space_after_group(
        &self,
        job: &Job,
        id: &NodeId,
        victim: &Job,
        placed: &[(&Job, Vec<PlacedTask>)],
    ) -> Option<Space> {
        let mut space = self.free[id].clone();
        let node = &self.state.nodes[id];
        let own = victim.attempt().unwrap().tasks.iter().filter(|task| task.node == *id);
        own.for_each(|task| space.add(&usable(node, &space_of_task(victim, task))));
        space = space.less_overdrawn(node);
        for (other, tasks) in placed {
            space_by_node(other, tasks).get(id).into_iter().for_each(|taken| space.take(taken));
        }
        self.unreserved_except(Some(job.id), id, &space, (self.expected_end(job), Some(&job.spec.tenant)))
    }
}

//! Preemption by priority and guarantee: candidates, victims and evictions.

use std::collections::BTreeMap;

use muster_core::objects::job::{Attempt, Job, PlacedTask};
use muster_core::{JobId, NodeId, TenantId};

use crate::naive_planner::expected_end::NO_KNOWN_END;
use crate::naive_planner::gang_eviction::GangEviction;
use crate::naive_planner::policies::is_protected_by_rule;
use crate::naive_planner::space::{Space, space_by_node, space_of_task, still_needed, usable};
use crate::naive_planner::{EvictionMode, NaivePlanner};
use crate::recompute::{held_by, is_below, model_milli};

impl<'a> NaivePlanner<'a> {
    /// The cost of a victim: its SRPT index in loss-free mode, else its preemption loss.
    pub(super) fn eviction_cost(&self, victim: &Job) -> u64 {
        match self.mode {
            EvictionMode::LossFree(_) => self.srpt_index(victim).unwrap_or(u64::MAX),
            _ => self.preemption_loss(victim),
        }
    }

    pub(super) fn may_preempt(&self, job: &Job) -> bool {
        self.state.settings.preemption
            && self.state.tenants[&job.spec.tenant].config.may_preempt
            && !self.state.claims.contains_key(&job.id)
    }

    pub(super) fn preempt(&mut self, job: &'a Job) -> bool {
        let open = |victim: &Job| {
            let nodes = victim.attempt().into_iter().flat_map(Attempt::nodes);
            nodes.into_iter().any(|node| self.state.nodes[&node].is_schedulable())
        };
        let there = || self.state.jobs.values().filter(|victim| self.may_be_evicted(victim) && open(victim));
        let weaker = there().any(|victim| victim.spec.priority < self.preemption_priority(job))
            && there().any(|victim| self.effective_priority_at_start(victim) < self.effective_priority(job));
        let passed = there().any(|victim| self.overran(victim, job));
        self.may_preempt(job)
            && (weaker || passed || self.is_guaranteed(job))
            && (self.wait_for_pending_stops(job) || self.evict(job))
    }

    pub(super) fn may_be_evicted(&self, victim: &Job) -> bool {
        let config = &self.state.tenants[&victim.spec.tenant].config;
        victim.attempt().is_some_and(|attempt| {
            let ran = self.now.since(attempt.placed_at);
            attempt.stopping.is_none()
                && ran >= self.state.settings.preemption_min_runtime_ms
                && (victim.preemptions == 0 || ran >= self.state.settings.preemption_cooldown_ms)
        }) && config.may_be_preempted
            && config.preemptions_per_job_max.is_none_or(|max| victim.preemptions < max)
            && !is_protected_by_rule(self.state, victim)
    }

    pub(super) fn evict(&mut self, job: &'a Job) -> bool {
        let Some((victims, tasks)) = self.cheapest_eviction(job) else { return false };
        self.record_eviction(job, victims, tasks);
        true
    }

    /// The victims with the least cost, and the placement of the preemptor.
    pub(super) fn cheapest_eviction(&self, job: &'a Job) -> Option<(Vec<&'a Job>, Vec<PlacedTask>)> {
        let options = self.free.keys().filter_map(|node| {
            let (victims, tasks) = self.victims_on(job, node)?;
            let lost: u64 = victims.iter().map(|victim| self.eviction_cost(victim)).sum();
            Some((lost, victims.len(), node.clone(), victims, tasks))
        });
        let best = options.min_by(|a, b| (a.0, a.1, &a.2).cmp(&(b.0, b.1, &b.2)));
        let on_one = best.map(|(_, _, _, victims, tasks)| (victims, tasks));
        on_one.or_else(|| GangEviction::of(self, job))
    }

    pub(super) fn record_eviction(&mut self, job: &'a Job, victims: Vec<&'a Job>, tasks: Vec<PlacedTask>) {
        let mut freed: BTreeMap<NodeId, Space> = BTreeMap::new();
        for victim in &victims {
            for task in &victim.attempt().unwrap().tasks {
                freed.entry(task.node.clone()).or_default().add(&space_of_task(victim, task));
            }
        }
        self.planned_devices.extend(tasks.iter().map(|task| (&job.spec.tenant, task.clone())));
        for (node, taken) in space_by_node(job, &tasks) {
            let released = freed.get(&node).cloned().unwrap_or_default();
            self.free.get_mut(&node).unwrap().take(&still_needed(&released, &taken));
            self.promised.entry(node.clone()).or_default().add(&taken.shared_with(&released));
            freed.entry(node.clone()).or_default().take(&taken);
        }
        for (node, rest) in freed {
            self.releasing.entry(node).or_default().add(&rest);
        }
        self.evicted.extend(victims.iter().map(|victim| victim.id));
        self.count_usage(job, &tasks);
        self.evictions.push((job.id, tasks, victims.iter().map(|victim| victim.id).collect()));
    }

    /// Jobs on a node that may be evicted at all, the cheapest first.
    pub(super) fn candidates(&self, node: &NodeId) -> Vec<&'a Job> {
        let mut found: Vec<&Job> = self.state.nodes[node].jobs.iter().map(|job| &self.state.jobs[job]).collect();
        found.retain(|victim| self.may_be_evicted(victim) && !self.evicted.contains(&victim.id));
        found.sort_by_key(|victim| (self.eviction_cost(victim), victim.spec.priority, victim.id));
        found
    }

    /// Free space of a node after the eviction of `victims`.
    pub(super) fn space_after(&self, id: &NodeId, victims: &[&Job]) -> Option<Space> {
        self.space_after_except(None, id, victims)
    }

    /// The same, without the reservation of the job `own`.
    pub(super) fn space_after_except(&self, own: Option<JobId>, id: &NodeId, victims: &[&Job]) -> Option<Space> {
        let node = &self.state.nodes[id];
        let mut space = self.free[id].clone();
        for victim in victims {
            let tasks = victim.attempt().unwrap().tasks.iter();
            tasks
                .filter(|task| task.node == *id)
                .for_each(|task| space.add(&usable(node, &space_of_task(victim, task))));
        }
        if !victims.is_empty() {
            space = space.less_overdrawn(node).less(&self.missing_for_claims(id));
        }
        let until = match self.mode {
            EvictionMode::LossFree(job) => (self.expected_end(job), Some(&job.spec.tenant)),
            _ => (NO_KNOWN_END, None),
        };
        self.unreserved_except(own, id, &space, until)
    }

    pub(super) fn victims_on(&self, job: &Job, id: &NodeId) -> Option<(Vec<&'a Job>, Vec<PlacedTask>)> {
        let weaker = self.eligible_victims(job, self.candidates(id), &[]);
        let fit = |victims: &[&Job]| self.fit_on_node(job, id, &self.space_after(id, victims)?);
        let victims = minimal_victims(weaker, |victims| fit(victims).is_some())?;
        let tasks = fit(&victims)?;
        Some((victims, tasks))
    }

    /// The candidates that may be evicted for the job: weaker jobs, and borrowers if a guarantee covers the job.
    /// `evicted_elsewhere` are victims on other nodes.
    pub(super) fn eligible_victims(
        &self,
        job: &Job,
        candidates: Vec<&'a Job>,
        evicted_elsewhere: &[&'a Job],
    ) -> Vec<&'a Job> {
        let (guarantor, by_model) = (self.guarantor(job), self.model_guarantors(job));
        let mut found: Vec<&Job> = Vec::new();
        for victim in candidates {
            if !self.policies_allow_eviction(job, victim) {
                continue;
            }
            let outranked = victim.spec.priority < self.preemption_priority(job)
                && self.effective_priority_at_start(victim) < self.effective_priority(job);
            let may_be_victim = outranked || self.overran(victim, job);
            let weaker =
                if matches!(self.mode, EvictionMode::ByPriority) { may_be_victim } else { self.yields_to(victim, job) };
            let elsewhere = |by: &TenantId| !is_below(self.state, &victim.spec.tenant, by);
            let on_model = |model| model_milli(self.state, &victim.attempt().unwrap().tasks, model) > 0;
            let reclaimed = guarantor.is_some_and(|by| elsewhere(&by.id))
                || by_model.iter().any(|(by, model)| elsewhere(by) && on_model(model));
            let with = [evicted_elsewhere, &found].concat();
            let bearable = self.is_within_loss_limit(victim, &with);
            if (weaker || reclaimed) && bearable && self.guarantees_hold((victim, reclaimed), &with, job) {
                found.push(victim);
            }
        }
        found
    }

    /// True if no tenant exceeds its daily preemption loss limit.
    pub(super) fn is_within_loss_limit(&self, victim: &Job, with: &[&Job]) -> bool {
        self.state.lineage(&victim.spec.tenant).all(|tenant| {
            let Some(per_day) = tenant.config.preemption_loss_gpu_ms_per_day else { return true };
            let evicted = self.evicted.iter().map(|job| &self.state.jobs[job]);
            let victims = evicted.chain(with.iter().copied()).chain([victim]);
            let of_tenant = victims.filter(|job| is_below(self.state, &job.spec.tenant, &tenant.id));
            let lost: u64 = of_tenant.map(|job| self.preemption_loss(job)).sum();
            tenant.preemption_loss.gpu_ms(per_day, self.now) + lost <= per_day
        })
    }

    pub(super) fn effective_priority_at_start(&self, victim: &Job) -> i64 {
        victim.attempt().unwrap().effective_priority.unwrap_or(i64::from(victim.spec.priority))
    }

    pub(super) fn preemption_loss(&self, victim: &Job) -> u64 {
        let attempt = victim.attempt().unwrap();
        let every = victim.spec.checkpoint.as_ref().and_then(|rule| rule.every_ms);
        let periodic = attempt.started_at.zip(every).map(|(started, every)| {
            let mut last = started;
            while last.plus(every) <= self.now {
                last = last.plus(every);
            }
            last
        });
        let saved = attempt.saved_at.or(periodic).unwrap_or(attempt.placed_at);
        self.now.since(saved) as u64 * held_by(victim).gpu_milli / 1_000
    }
}

/// Candidates in order until `enough`; then those that are not needed are dropped, the most expensive first.
pub(super) fn minimal_victims(candidates: Vec<&Job>, enough: impl Fn(&[&Job]) -> bool) -> Option<Vec<&Job>> {
    let mut victims: Vec<&Job> = Vec::new();
    for victim in candidates {
        victims.push(victim);
        if enough(&victims) {
            break;
        }
    }
    for victim in victims.clone().into_iter().rev() {
        let without: Vec<&Job> = victims.iter().copied().filter(|other| other.id != victim.id).collect();
        if enough(&without) {
            victims = without;
        }
    }
    (!victims.is_empty() && enough(&victims)).then_some(victims)
}

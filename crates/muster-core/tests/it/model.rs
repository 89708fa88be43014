//! A naive planner: slow, obvious, without buckets, indexes or shortcuts. It looks at every job and every node
//! each time, and must agree with `plan` about who starts where and who must go for whom.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use muster_core::job::{Attempt, Demand, Job};
use muster_core::node::{GpuWord, Node, NodeWord};
use muster_core::plan::plan;
use muster_core::queue::Shape;
use muster_core::settings::PRIORITY_MAX;
use muster_core::state::Claim;
use muster_core::time::MINUTE;
use muster_core::{JobId, NodeId, State, TenantId, Timestamp, model};

use crate::laws::{Teller, stories, tell};
use crate::story::Step;
use crate::world::{gives_only_what_it_owes, guarantor, held_below, is_below, is_ready, is_within_budget};

#[test]
fn a_naive_planner_agrees_in_every_story() {
    tell(stories(2_500), |story| {
        let mut teller = Teller::new(story);
        for step in &story.steps {
            if let Step::Plan(_) = step {
                compare(&teller.world.state, teller.world.now);
            }
            teller.step(step);
        }
    });
}

fn compare(state: &State, now: Timestamp) {
    let planned = plan(state, now).plan;
    let gpus =
        |start: &muster_core::plan::Start| start.tasks.iter().flat_map(|task| task.gpus.clone()).collect();
    let starts = planned.starts.iter().map(|start| (start.job, start.tasks[0].node.clone(), gpus(start)));
    let claims = planned.claims.iter().map(|room| (room.job, room.node.clone(), room.victims.clone()));
    let naive = Naive::plan(state, now);
    assert_eq!(starts.collect::<Vec<_>>(), naive.starts, "who starts where");
    assert_eq!(claims.collect::<Vec<_>>(), naive.claims, "who must go for whom");
}

/// What is free on a node, or used by a job there.
#[derive(Debug, Clone, Default)]
struct Space {
    gpus: BTreeSet<u8>,
    cpus: u64,
    memory_mib: u64,
}

impl Space {
    fn add(&mut self, more: &Space) {
        self.gpus.extend(&more.gpus);
        self.cpus += more.cpus;
        self.memory_mib += more.memory_mib;
    }

    fn take(&mut self, less: &Space) {
        self.gpus.retain(|gpu| !less.gpus.contains(gpu));
        self.cpus = self.cpus.saturating_sub(less.cpus);
        self.memory_mib = self.memory_mib.saturating_sub(less.memory_mib);
    }

    /// A machine may come back smaller than what it has given out; that hole is filled first.
    fn less_overdrawn(&self, node: &Node) -> Space {
        let mut rest = self.clone();
        rest.cpus = rest.cpus.saturating_sub(node.cpus_held.saturating_sub(u64::from(node.facts.cpus)));
        let memory = node.memory_mib_held.saturating_sub(node.facts.memory_mib);
        rest.memory_mib = rest.memory_mib.saturating_sub(memory);
        rest
    }

    fn plus(&self, more: &Space) -> Space {
        let mut sum = self.clone();
        sum.add(more);
        sum
    }
}

struct Naive<'a> {
    state: &'a State,
    now: Timestamp,
    /// Nodes that take work and are not kept for anyone.
    free: BTreeMap<NodeId, Space>,
    leaving: BTreeMap<NodeId, Space>,
    more_held: Vec<&'a Job>,
    claimants: BTreeSet<JobId>,
    displaced: BTreeSet<JobId>,
    kept: usize,
    starts: Vec<(JobId, NodeId, Vec<u8>)>,
    claims: Vec<(JobId, NodeId, Vec<JobId>)>,
    /// Devices that starts and claims of this plan take.
    devices: Vec<(&'a TenantId, NodeId, Vec<u8>)>,
}

impl<'a> Naive<'a> {
    fn plan(state: &'a State, now: Timestamp) -> Naive<'a> {
        let open = state.nodes.values().filter(|node| node.state.word == NodeWord::Ready);
        let mut naive = Naive {
            state,
            now,
            free: open.map(|node| (node.id.clone(), free_on(node))).collect(),
            leaving: BTreeMap::new(),
            more_held: Vec::new(),
            claimants: BTreeSet::new(),
            displaced: BTreeSet::new(),
            kept: 0,
            starts: Vec::new(),
            claims: Vec::new(),
            devices: Vec::new(),
        };
        naive.count_leaving();
        naive.hold_claims();
        naive.start_claimants();
        let mut lines = naive.lines();
        while let Some(job) = naive.next(&mut lines) {
            if naive.claimants.contains(&job.id)
                || (naive.admits(job) && (naive.start(job) || naive.preempt(job)))
            {
                continue;
            }
            if naive.admits(job) {
                naive.keep(job);
            }
            // Those behind it ask for the same, so this round is over for them.
            let same = |other: &Job| shared(state, other) == shared(state, job);
            lines.retain(|line| !line.first().is_some_and(|other| same(other)));
        }
        naive
    }

    /// Everyone who is ready, in lines of those who ask for the same. Nobody overtakes in a line.
    fn lines(&self) -> Vec<Vec<&'a Job>> {
        let mut lines: Vec<(Shared, Vec<&Job>)> = Vec::new();
        for job in self.state.jobs.values().filter(|job| is_ready(job)) {
            let own = shared(self.state, job);
            match lines.iter_mut().find(|(kind, _)| *kind == own) {
                Some((_, line)) => line.push(job),
                None => lines.push((own, vec![job])),
            }
        }
        let sorted = |mut line: Vec<&'a Job>| {
            line.sort_by_key(|job| (job.submitted_at, job.id));
            line
        };
        lines.into_iter().map(|(_, line)| sorted(line)).collect()
    }

    /// The best of those at the head of a line, as things stand now.
    fn next(&self, lines: &mut Vec<Vec<&'a Job>>) -> Option<&'a Job> {
        lines.retain(|line| !line.is_empty());
        let best = lines.iter_mut().max_by_key(|line| self.rank(line[0]))?;
        Some(best.remove(0))
    }

    fn rank(&self, job: &Job) -> (u8, i64, Reverse<Timestamp>, Reverse<JobId>) {
        let (class, effective) = match () {
            () if job.spec.priority == PRIORITY_MAX => (3, self.effective(job)),
            () if self.is_overdue(job) => (2, 0),
            () if self.guarantor(job).is_some() => (1, self.effective(job)),
            () => (0, self.effective(job)),
        };
        (class, effective, Reverse(job.submitted_at), Reverse(job.id))
    }

    fn effective(&self, job: &Job) -> i64 {
        let settings = &self.state.settings;
        let aged_ms = (self.now.since(job.submitted_at) - settings.aging_after_ms).max(0);
        let aging =
            (aged_ms * i64::from(settings.aging_per_minute) / MINUTE).min(i64::from(settings.aging_max));
        i64::from(job.spec.priority) + aging - self.penalty(job)
    }

    /// What a tenant would hold, with all below it.
    fn held(&self, top: &TenantId) -> Demand {
        let more = self.more_held.iter().filter(|job| is_below(self.state, &job.spec.tenant, top));
        more.fold(held_below(self.state, top), |sum, job| sum.plus(job.spec.demand()))
    }

    /// The same without what is only waited for.
    fn runs(&self, top: &TenantId) -> Demand {
        let started = self.starts.iter().map(|(job, _, _)| &self.state.jobs[job]);
        let more = started.filter(|job| is_below(self.state, &job.spec.tenant, top));
        more.fold(held_below(self.state, top), |sum, job| sum.plus(job.spec.demand()))
    }

    fn guarantor(&self, job: &Job) -> Option<&'a muster_core::Tenant> {
        guarantor(self.state, job, |tenant| self.held(tenant))
    }

    /// Whether everyone keeps what they are guaranteed when a job goes after others, or gives back what they owe.
    fn owes(&self, (victim, reclaimed): (&Job, bool), with: &[&Job], by: Option<&TenantId>) -> bool {
        let stopping = |job: &Job| job.attempt().is_some_and(|attempt| attempt.stopping.is_some());
        let goes = |job: &Job| {
            stopping(job)
                || self.displaced.contains(&job.id)
                || job.id == victim.id
                || with.iter().any(|other| other.id == job.id)
        };
        let owes = |tenant: &muster_core::Tenant| {
            let gone = self.state.jobs.values().filter(|job| job.attempt().is_some() && goes(job));
            let gone = gone.filter(|job| is_below(self.state, &job.spec.tenant, &tenant.id));
            let gone = gone.fold(Demand::default(), |sum, job| sum.plus(job.spec.demand()));
            gives_only_what_it_owes(tenant, self.runs(&tenant.id).less(gone), (victim, reclaimed))
        };
        let same = |one: &muster_core::Tenant| by.is_some_and(|by| is_below(self.state, by, &one.id));
        self.state.lineage(&victim.spec.tenant).all(|one| same(one) || owes(one))
    }

    /// What having more than others costs, each measured by what they should have.
    fn penalty(&self, job: &Job) -> i64 {
        let contested = |tenant: &&muster_core::Tenant| {
            let siblings =
                self.state.tenants.values().filter(|other| other.config.parent == tenant.config.parent);
            siblings.into_iter().any(|other| other.id != tenant.id && self.has_work(&other.id))
        };
        let levels = self.state.lineage(&job.spec.tenant).filter(contested);
        let loads: Vec<u64> =
            levels.map(|tenant| self.used(&tenant.id) * 1_000 / self.share(&tenant.id).max(1)).collect();
        let mean = loads.iter().sum::<u64>() / (loads.len() as u64).max(1);
        let load = match (loads.is_empty(), self.load_of_user(job)) {
            (true, own) => own.unwrap_or(0),
            (false, None) => mean,
            (false, Some(own)) => (7 * mean + own) / 8,
        };
        let factor = 1_000_000 / (1_000 + load);
        i64::from(self.state.settings.fair_share_max) * (1_000 - factor as i64) / 1_000
    }

    /// Those who have jobs in a tenant divide its share evenly.
    fn load_of_user(&self, job: &Job) -> Option<u64> {
        let tenant = &self.state.tenants[&job.spec.tenant];
        let busy = tenant.members.values().filter(|member| member.live_jobs > 0).count() as u64;
        let same = |other: &&&Job| other.spec.tenant == job.spec.tenant && other.spec.user == job.spec.user;
        let more: u64 = self.more_held.iter().filter(same).map(|other| other.spec.demand().gpus).sum();
        let user = tenant.members.get(&job.spec.user).copied().unwrap_or_default();
        let half_life = self.state.settings.usage_half_life_ms;
        let recent = user.recent.micro_gpus(user.held_gpus, self.now, half_life);
        let gpus: u64 = self.state.nodes.values().map(|node| node.facts.gpus.len() as u64).sum();
        let used = (millionths(user.held_gpus + more, gpus) + millionths(recent, gpus * 1_000_000)) / 2;
        (busy > 1).then(|| used * 1_000 / (self.share(&tenant.id) / busy).max(1))
    }

    /// What part of the cluster a tenant should have, in millionths.
    fn share(&self, id: &TenantId) -> u64 {
        let tenant = &self.state.tenants[id];
        let whole = tenant.config.parent.as_ref().map_or(1_000_000, |parent| self.share(parent));
        let siblings =
            self.state.tenants.values().filter(|other| other.config.parent == tenant.config.parent);
        let working = siblings.filter(|other| self.has_work(&other.id));
        let weights: u64 = working.map(|other| u64::from(other.config.weight)).sum();
        if self.has_work(id) { whole * u64::from(tenant.config.weight) / weights } else { 0 }
    }

    fn has_work(&self, id: &TenantId) -> bool {
        self.below(id).any(|tenant| tenant.live_jobs > 0)
    }

    /// A tenant and all below it.
    fn below(&self, id: &TenantId) -> impl Iterator<Item = &muster_core::Tenant> {
        let is_above = |one: &muster_core::Tenant| self.state.lineage(&one.id).any(|above| above.id == *id);
        self.state.tenants.values().filter(move |one| is_above(one))
    }

    /// What part a tenant has with all below it: the mean of now and of late.
    fn used(&self, id: &TenantId) -> u64 {
        let below: Vec<&TenantId> = self.below(id).map(|tenant| &tenant.id).collect();
        let more = self.more_held.iter().filter(|job| below.contains(&&job.spec.tenant));
        let held = self.below(id).map(|tenant| tenant.held).chain(more.map(|job| job.spec.demand()));
        let held = held.fold(Demand::default(), Demand::plus);
        let half_life = self.state.settings.usage_half_life_ms;
        let recent: u64 =
            self.below(id).map(|one| one.recent.micro_gpus(one.held.gpus, self.now, half_life)).sum();
        let all = |of: fn(&Node) -> u64| self.state.nodes.values().map(of).sum::<u64>();
        let gpus = all(|node| node.facts.gpus.len() as u64);
        let now = [
            millionths(held.gpus, gpus),
            millionths(held.cpus, all(|node| u64::from(node.facts.cpus))),
            millionths(held.memory_mib, all(|node| node.facts.memory_mib)),
        ];
        (now.into_iter().max().unwrap() + millionths(recent, gpus * 1_000_000)) / 2
    }

    fn is_overdue(&self, job: &Job) -> bool {
        let muster_core::job::Phase::Queued { since, .. } = job.phase else { return false };
        let ready_since = job.spec.start_after.map_or(since, |start| start.max(since));
        self.now.since(ready_since) > self.state.settings.max_wait_ms
            && self.now.since(job.submitted_at) > self.state.settings.max_wait_ms
    }

    fn admits(&self, job: &Job) -> bool {
        let room_in = |tenant: &muster_core::Tenant| {
            let is_below = |other: &Job| self.state.lineage(&other.spec.tenant).any(|up| up.id == tenant.id);
            let more = self.more_held.iter().filter(|other| is_below(other));
            let held =
                more.fold(held_below(self.state, &tenant.id), |sum, other| sum.plus(other.spec.demand()));
            tenant.config.maximum.excess(held.plus(job.spec.demand())).is_empty()
        };
        let siblings = self.more_held.iter().filter(|other| other.id.number == job.id.number).count() as u32;
        let array = self.state.arrays.get(&job.id.number);
        let full =
            array.is_some_and(|array| array.running_max.is_some_and(|max| array.active + siblings >= max));
        let affordable = is_within_budget(self.state, job, self.now);
        self.state.lineage(&job.spec.tenant).all(room_in) && affordable && !full
    }

    /// On the node with the fewest free GPUs, then by name; on hot devices only if there is no other way.
    fn start(&mut self, job: &'a Job) -> bool {
        for spare_hot in [true, false] {
            let mut best: Option<(usize, &NodeId, Vec<u8>)> = None;
            for (id, free) in &self.free {
                let mut usable = free.clone();
                if spare_hot {
                    usable.gpus.retain(|gpu| !is_hot(&self.state.nodes[id], *gpu));
                }
                let Some(gpus) = self.fit(job, id, &usable) else { continue };
                if best.as_ref().is_none_or(|(least, _, _)| free.gpus.len() < *least) {
                    best = Some((free.gpus.len(), id, gpus));
                }
            }
            if let Some((_, node, gpus)) = best {
                let node = node.clone();
                self.start_on(job, node, gpus);
                return true;
            }
        }
        false
    }

    fn start_on(&mut self, job: &'a Job, node: NodeId, gpus: Vec<u8>) {
        let taken = wanted(job, gpus.iter().copied().collect());
        self.free.get_mut(&node).unwrap().take(&taken);
        self.more_held.push(job);
        self.devices.push((&job.spec.tenant, node.clone(), gpus.clone()));
        self.starts.push((job.id, node, gpus));
    }

    /// The devices for a job on a node, if there is room and no limit per model is in the way.
    fn fit(&self, job: &Job, id: &NodeId, space: &Space) -> Option<Vec<u8>> {
        let node = &self.state.nodes[id];
        fit(job, node, space).filter(|_| self.model_allows(job, node))
    }

    /// Nodes of a story have one model each, so a gang takes it or nothing.
    fn model_allows(&self, job: &Job, node: &Node) -> bool {
        let Some(here) = node.facts.gpus.first().map(|gpu| gpu.model.as_str()) else { return true };
        let more = job.spec.demand().gpus;
        self.state.lineage(&job.spec.tenant).all(|tenant| {
            let below = |id: &TenantId| is_below(self.state, id, &tenant.id);
            let held = self.state.jobs.values().filter(|job| below(&job.spec.tenant));
            let held = held.filter_map(Job::attempt).flat_map(|attempt| attempt.gpus()).map(|gpu| gpu.node);
            let planned = self.devices.iter().filter(|(owner, _, _)| below(owner));
            let planned = planned.flat_map(|(_, node, gpus)| gpus.iter().map(move |_| node.clone()));
            let nodes: Vec<NodeId> = held.chain(planned).collect();
            tenant.config.maximum_by_model.iter().all(|(limited, limit)| {
                let is_model = |node: &NodeId| {
                    self.state.nodes[node]
                        .facts
                        .gpus
                        .first()
                        .is_some_and(|gpu| model::matches(limited, &gpu.model))
                };
                let used = nodes.iter().filter(|node| is_model(node)).count() as u64;
                more == 0 || !model::matches(limited, here) || used + more <= *limit
            })
        })
    }

    fn count_leaving(&mut self) {
        for job in self.state.jobs.values() {
            let Some(attempt) = job.attempt() else { continue };
            let trusted = |stopping: &muster_core::job::Stopping| {
                self.now.since(stopping.since) <= stopping.grace_ms + MINUTE
            };
            if attempt.stopping.as_ref().is_some_and(trusted) {
                let node = attempt.tasks[0].node.clone();
                self.leaving.entry(node).or_default().add(&used(job, attempt));
            }
        }
    }

    fn hold_claims(&mut self) {
        for (id, claim) in &self.state.claims {
            let job = &self.state.jobs[id];
            let coming = self.coming(claim);
            let all = wanted(job, claim.gpus.iter().copied().collect());
            if let Some(leaving) = self.leaving.get_mut(&claim.node) {
                let cpus = all.cpus.min(coming.cpus);
                let memory_mib = all.memory_mib.min(coming.memory_mib);
                leaving.take(&Space { gpus: all.gpus.clone(), cpus, memory_mib });
            }
            self.hold(claim, &coming, &all);
            let node = &self.state.nodes[&claim.node];
            let usable = |gpu: &u8| node.gpu_usable(usize::from(*gpu));
            if is_ready(job) && node.takes_work() && claim.gpus.iter().all(usable) {
                self.claimants.insert(*id);
            }
        }
    }

    /// Keep from others what a claim needs and its victims will not bring.
    fn hold(&mut self, claim: &Claim, coming: &Space, all: &Space) {
        if let Some(free) = self.free.get_mut(&claim.node) {
            let cpus = all.cpus.saturating_sub(coming.cpus);
            let memory_mib = all.memory_mib.saturating_sub(coming.memory_mib);
            free.take(&Space { gpus: all.gpus.clone(), cpus, memory_mib });
        }
    }

    fn coming(&self, claim: &Claim) -> Space {
        let mut coming = Space::default();
        for victim in claim.victims.iter().filter_map(|victim| self.state.jobs.get(victim)) {
            let stopping = victim.attempt().filter(|attempt| attempt.stopping.is_some());
            if let Some(attempt) = stopping.filter(|attempt| attempt.tasks[0].node == claim.node) {
                coming.add(&used(victim, attempt));
            }
        }
        coming
    }

    fn start_claimants(&mut self) {
        let mut waiting = Vec::new();
        for id in self.claimants.clone() {
            let (job, claim) = (&self.state.jobs[&id], &self.state.claims[&id]);
            let before = self.free[&claim.node].clone();
            // Its own claim is free for it; those of others, and what was started on the node, are not.
            let mut own = free_on(&self.state.nodes[&claim.node]);
            self.starts.iter().filter(|(_, node, _)| *node == claim.node).for_each(|(other, _, gpus)| {
                own.take(&wanted(&self.state.jobs[other], gpus.iter().copied().collect()));
            });
            for (other, theirs) in
                self.state.claims.iter().filter(|(other, theirs)| **other != id && theirs.node == claim.node)
            {
                if self.starts.iter().any(|(started, _, _)| started == other) {
                    continue;
                }
                let all = wanted(&self.state.jobs[other], theirs.gpus.iter().copied().collect());
                let coming = self.coming(theirs);
                own.take(&Space {
                    gpus: all.gpus.clone(),
                    cpus: all.cpus.saturating_sub(coming.cpus),
                    memory_mib: all.memory_mib.saturating_sub(coming.memory_mib),
                });
            }
            let mut claimed = own.clone();
            claimed.gpus.retain(|gpu| claim.gpus.contains(gpu));
            let fit = |space: &Space| self.fit(job, &claim.node, space);
            let fitted = fit(&claimed).or_else(|| fit(&own));
            match fitted.filter(|_| self.admits(job)) {
                Some(gpus) => {
                    *self.free.get_mut(&claim.node).unwrap() = own;
                    self.start_on(job, claim.node.clone(), gpus);
                }
                None => {
                    *self.free.get_mut(&claim.node).unwrap() = before;
                    waiting.push(job);
                }
            }
        }
        self.more_held.extend(waiting);
    }

    fn preempt(&mut self, job: &'a Job) -> bool {
        let allowed = self.state.settings.preemption
            && self.state.tenants[&job.spec.tenant].config.may_preempt
            && !self.state.claims.contains_key(&job.id);
        let open = |victim: &Job| {
            let node = victim.attempt().and_then(|attempt| self.state.nodes.get(&attempt.tasks[0].node));
            node.is_some_and(Node::takes_work)
        };
        let there = || self.state.jobs.values().filter(|victim| self.may_go(victim) && open(victim));
        let weaker = there().any(|victim| victim.spec.priority < job.spec.priority)
            && there().any(|victim| self.effective_at_start(victim) < self.effective(job));
        allowed
            && (weaker || self.guarantor(job).is_some())
            && (self.wait_for_leaving(job) || self.displace(job))
    }

    fn may_go(&self, victim: &Job) -> bool {
        let config = &self.state.tenants[&victim.spec.tenant].config;
        victim.attempt().is_some_and(|attempt| {
            attempt.stopping.is_none()
                && self.now.since(attempt.placed_at) >= self.state.settings.preemption_min_runtime_ms
        }) && config.may_be_preempted
            && config.preemptions_per_job_max.is_none_or(|max| victim.preemptions < max)
    }

    fn wait_for_leaving(&mut self, job: &'a Job) -> bool {
        for (id, leaving) in self.leaving.clone() {
            let (Some(free), node) = (self.free.get(&id), &self.state.nodes[&id]) else { continue };
            let later = free.plus(&usable(node, &leaving)).less_overdrawn(node);
            let Some(gpus) = self.fit(job, &id, &later) else { continue };
            let taken = wanted(job, gpus.into_iter().collect());
            self.leaving.get_mut(&id).unwrap().take(&taken);
            self.take_first_from(&id, &leaving, &taken);
            self.more_held.push(job);
            return true;
        }
        false
    }

    /// Use what comes first, and what is free only for the rest.
    fn take_first_from(&mut self, node: &NodeId, coming: &Space, taken: &Space) {
        let cpus = taken.cpus.saturating_sub(coming.cpus);
        let memory_mib = taken.memory_mib.saturating_sub(coming.memory_mib);
        self.free.get_mut(node).unwrap().take(&Space { gpus: taken.gpus.clone(), cpus, memory_mib });
    }

    fn displace(&mut self, job: &'a Job) -> bool {
        let offers = self.free.keys().filter_map(|node| {
            let (victims, gpus) = self.victims_on(job, node)?;
            let lost: u64 = victims.iter().map(|victim| self.lost(victim)).sum();
            Some((lost, victims.len(), node.clone(), victims, gpus))
        });
        let best = offers.min_by(|a, b| (a.0, a.1, &a.2).cmp(&(b.0, b.1, &b.2)));
        let Some((_, _, node, victims, gpus)) = best else { return false };
        let mut freed = Space::default();
        victims.iter().for_each(|victim| freed.add(&used(victim, victim.attempt().unwrap())));
        self.devices.push((&job.spec.tenant, node.clone(), gpus.clone()));
        let taken = wanted(job, gpus.into_iter().collect());
        self.take_first_from(&node, &freed, &taken);
        freed.take(&taken);
        self.leaving.entry(node.clone()).or_default().add(&freed);
        self.displaced.extend(victims.iter().map(|victim| victim.id));
        self.more_held.push(job);
        self.claims.push((job.id, node, victims.iter().map(|victim| victim.id).collect()));
        true
    }

    /// Victims in order of their loss until the job fits; then spare whom it does not need, dearest first.
    fn victims_on(&self, job: &Job, id: &NodeId) -> Option<(Vec<&'a Job>, Vec<u8>)> {
        let node = &self.state.nodes[id];
        let mut weaker: Vec<&Job> = node.jobs.iter().map(|job| &self.state.jobs[job]).collect();
        weaker.retain(|victim| self.may_go(victim) && !self.displaced.contains(&victim.id));
        weaker.sort_by_key(|victim| (self.lost(victim), victim.spec.priority, victim.id));
        let weaker = self.displaceable(job, weaker);
        let after = |victims: &[&Job]| {
            let mut space = self.free[id].clone();
            victims
                .iter()
                .for_each(|victim| space.add(&usable(node, &used(victim, victim.attempt().unwrap()))));
            self.fit(job, id, &space.less_overdrawn(node))
        };
        let mut victims: Vec<&Job> = Vec::new();
        for victim in weaker {
            victims.push(victim);
            if after(&victims).is_some() {
                break;
            }
        }
        for victim in victims.clone().into_iter().rev() {
            let without: Vec<&Job> = victims.iter().copied().filter(|other| other.id != victim.id).collect();
            if after(&without).is_some() {
                victims = without;
            }
        }
        let gpus = after(&victims).filter(|_| !victims.is_empty())?;
        Some((victims, gpus))
    }

    /// Who may go for the job: the weaker, and those on borrowed space for one within a guarantee.
    fn displaceable(&self, job: &Job, candidates: Vec<&'a Job>) -> Vec<&'a Job> {
        let guarantor = self.guarantor(job);
        let mut found: Vec<&Job> = Vec::new();
        for victim in candidates {
            let weaker = victim.spec.priority < job.spec.priority
                && self.effective_at_start(victim) < self.effective(job);
            let foreign = guarantor.is_some_and(|by| !is_below(self.state, &victim.spec.tenant, &by.id));
            if (weaker || foreign) && self.owes((victim, foreign), &found, guarantor.map(|by| &by.id)) {
                found.push(victim);
            }
        }
        found
    }

    fn effective_at_start(&self, victim: &Job) -> i64 {
        victim.attempt().unwrap().effective.unwrap_or(i64::from(victim.spec.priority))
    }

    fn lost(&self, victim: &Job) -> u64 {
        self.now.since(victim.attempt().unwrap().placed_at) as u64 * u64::from(victim.spec.gpus())
    }

    fn keep(&mut self, job: &Job) {
        if !self.is_overdue(job) || self.kept >= (self.state.nodes.len() / 8).max(1) {
            return;
        }
        let could = |id: &NodeId| {
            let node = &self.state.nodes[id];
            let gpus =
                (0..node.facts.gpus.len()).filter(|gpu| node.gpu_usable(*gpu)).map(|gpu| gpu as u8).collect();
            let empty = Space { gpus, cpus: u64::from(node.facts.cpus), memory_mib: node.facts.memory_mib };
            self.fit(job, id, &empty).is_some()
        };
        let feasible = self.free.iter().filter(|(id, _)| could(id));
        let best =
            feasible.max_by(|a, b| (a.1.gpus.len(), Reverse(a.0)).cmp(&(b.1.gpus.len(), Reverse(b.0))));
        if let Some(node) = best.map(|(node, _)| node.clone()) {
            self.free.remove(&node);
            self.kept += 1;
        }
    }
}

/// A part of a whole, in millionths.
fn millionths(part: u64, whole: u64) -> u64 {
    (u128::from(part) * 1_000_000 / u128::from(whole.max(1))) as u64
}

type Shared = (String, String, u32, Shape, Option<u64>);

/// What makes two jobs the same to the planner.
fn shared(state: &State, job: &Job) -> Shared {
    let array = state.is_limited(job.id).then_some(job.id.number);
    (job.spec.tenant.to_string(), job.spec.user.clone(), job.spec.priority, Shape::of(&job.spec), array)
}

fn free_on(node: &Node) -> Space {
    let free = |gpu: &usize| node.holders[*gpu].is_none() && node.gpu_usable(*gpu);
    Space {
        gpus: (0..node.holders.len()).filter(free).map(|gpu| gpu as u8).collect(),
        cpus: u64::from(node.facts.cpus).saturating_sub(node.cpus_held),
        memory_mib: node.facts.memory_mib.saturating_sub(node.memory_mib_held),
    }
}

fn wanted(job: &Job, gpus: BTreeSet<u8>) -> Space {
    let demand = job.spec.demand();
    Space { gpus, cpus: demand.cpus, memory_mib: demand.memory_mib }
}

fn used(job: &Job, attempt: &Attempt) -> Space {
    wanted(job, attempt.tasks.iter().flat_map(|task| task.gpus.clone()).collect())
}

fn usable(node: &Node, space: &Space) -> Space {
    let mut space = space.clone();
    space.gpus.retain(|gpu| node.gpu_usable(usize::from(*gpu)));
    space
}

fn is_hot(node: &Node, gpu: u8) -> bool {
    node.gpu_health[usize::from(gpu)].word == GpuWord::Degraded
}

/// Devices for every task, lowest index first; nothing if anything is short.
fn fit(job: &Job, node: &Node, space: &Space) -> Option<Vec<u8>> {
    let demand = job.spec.demand();
    if space.cpus < demand.cpus || space.memory_mib < demand.memory_mib {
        return None;
    }
    let mut left = space.gpus.clone();
    let mut chosen = Vec::new();
    for group in &job.spec.tasks {
        for _ in 0..group.count {
            for _ in 0..group.each.gpus {
                let would_do = |gpu: &&u8| {
                    let facts = &node.facts.gpus[usize::from(**gpu)];
                    let wishes = &group.each.gpu_models;
                    facts.memory_mib >= group.each.gpu_memory_mib
                        && (wishes.is_empty() || wishes.iter().any(|wish| model::matches(wish, &facts.model)))
                };
                let gpu = *left.iter().find(would_do)?;
                left.remove(&gpu);
                chosen.push(gpu);
            }
        }
    }
    Some(chosen)
}

//! Step 8, adopt: take a plan gang by gang, as far as it still holds.
//!
//! A plan comes from a snapshot that may be old, or from anyone. Nothing in it is believed: each gang is
//! checked against the state of now and what this same plan has already taken.

use std::collections::{BTreeMap, BTreeSet};

use crate::capacity::{Free, Seat, mask};
use crate::command::{Actor, Answer};
use crate::event::Event;
use crate::guarantee::{Cover, guarantor};
use crate::ids::{JobId, NodeId, TenantId};
use crate::job::{Demand, Job, JobSpec, PlacedTask, StopCause};
use crate::loss::was_passed;
use crate::model;
use crate::partition;
use crate::plan::{Cut, MakeRoom, Plan, Start};
use crate::queue::Shape;
use crate::settings::Repartition;
use crate::state::decide::Decision;
use crate::state::tally::Tally;
use crate::state::{Claim, State};
use crate::time::Timestamp;

impl State {
    pub(super) fn decide_adopt(&self, plan: &Plan, epoch: u64, now: Timestamp) -> Decision {
        let mut tally = Tally::of(self, now);
        let mut events = Vec::new();
        let mut placed = 0;
        for start in &plan.starts {
            if let Some(facts) = self.adopt_start(start, epoch, now, &mut tally) {
                events.extend(facts);
                placed += 1;
            }
        }
        let mut claimed = 0;
        for room in &plan.claims {
            if let Some(facts) = self.adopt_claim(room, now, &mut tally) {
                events.extend(facts);
                claimed += 1;
            }
        }
        for cut in &plan.cuts {
            events.extend(self.adopt_cut(cut, now, &tally));
        }
        let taken = placed + claimed;
        let left = plan.starts.len() + plan.claims.len() - taken;
        if taken > 0 {
            events.push(Event::PlanAdopted {
                snapshot: plan.snapshot,
                now: plan.now,
                placed: placed as u32,
                claimed: claimed as u32,
                left: left as u32,
            });
        }
        Decision { events, answer: Answer::Adopted { taken, left } }
    }

    /// The facts of one start, if every guard holds.
    fn adopt_start(
        &self,
        start: &Start,
        epoch: u64,
        now: Timestamp,
        tally: &mut Tally<'_>,
    ) -> Option<Vec<Event>> {
        let job = self.placeable(start.job, tally)?;
        if !is_whole_gang(&job.spec, &start.tasks) || !self.quota_admits(job, &start.tasks, tally) {
            return None;
        }
        let windows = start.tasks.iter().all(|task| self.windows_admit(job, &task.node, now));
        if !windows || !self.array_admits(job, tally) || !self.space_admits(job, &start.tasks, tally) {
            return None;
        }
        if !self.models_admit(job, &start.tasks, tally) {
            return None;
        }
        tally.take(self, job, &start.tasks);
        let mut facts = Vec::new();
        self.drop_claim(job.id, "its job has started", now, &mut facts);
        facts.push(Event::JobPlaced {
            job: job.id,
            attempt: job.attempts + 1,
            epoch,
            tasks: start.tasks.clone(),
            effective: start.effective,
            expected_ms: start.expected_ms,
            lent: start.lent,
            score: start.score.clone(),
            held: Some(job.spec.demand_of(&start.tasks)),
            at: now,
        });
        Some(facts)
    }

    /// A device is partitioned otherwise, if the settings let the planner do so and nobody uses it now.
    fn adopt_cut(&self, cut: &Cut, now: Timestamp, tally: &Tally) -> Option<Event> {
        let node = self.nodes.get(&cut.gpu.node)?;
        let facts = node.facts.gpus.get(usize::from(cut.gpu.index))?;
        let instances = partition::laid_out(facts, &cut.profiles).ok()?;
        let legal = partition::check(facts, cut.gpu.index, &instances).is_ok();
        let taken = tally.used.get(&cut.gpu.node).copied().unwrap_or_default().touched();
        let used = taken >> cut.gpu.index & 1 == 1 || !self.is_unused(&cut.gpu);
        let since = node.partitions.get(&cut.gpu.index).map(|partition| partition.since);
        let cool = since.is_none_or(|since| now.since(since) >= self.settings.repartition_cooldown_ms);
        let allowed = self.settings.repartition == Repartition::Apply && node.facts.simulated;
        let news = node.instances(cut.gpu.index) != instances;
        (allowed && legal && !used && cool && news).then(|| Event::GpuPartitioned {
            gpu: cut.gpu.clone(),
            instances,
            by: Actor::system().name,
            why: format!("{} waits for it", cut.job),
            at: now,
        })
    }

    /// A job that waits, awake and without open dependencies, and was not taken by this plan already.
    fn placeable(&self, id: JobId, tally: &Tally) -> Option<&Job> {
        let job = self.jobs.get(&id)?;
        let is_let_in = || {
            let bucket = self.bucket(job);
            self.policy_blocker(&bucket, self.word(&bucket)).is_none()
        };
        let admitted = || self.policies.is_empty() || is_let_in();
        (job.is_ready() && !tally.jobs.contains(&id) && admitted()).then_some(job)
    }

    fn quota_admits(&self, job: &Job, tasks: &[PlacedTask], tally: &Tally) -> bool {
        let demand = job.spec.demand_of(tasks);
        self.budget_admits(job, tally)
            && tally.users.over(&job.spec.tenant, &job.spec.user, demand).is_empty()
            && self.policy_limits_admit(job, demand, tally)
            && self.lineage(&job.spec.tenant).all(|tenant| {
                let held = tally.held.get(&tenant.id).copied().unwrap_or_default();
                tenant.config.maximum.excess(held.plus(demand)).is_empty()
            })
    }

    /// The least that a job takes from its tenant's quota, wherever it is placed.
    pub(crate) fn least_demand(&self, spec: &JobSpec) -> Demand {
        self.capacity.least_demand(spec.tasks.iter().map(|group| (group.count, &group.each)))
    }

    /// Whether no limit of a policy, on the tenant or on one above it, is passed.
    fn policy_limits_admit(&self, job: &Job, demand: Demand, tally: &Tally) -> bool {
        let held = |tenant: &TenantId| tally.held.get(tenant).copied().unwrap_or_default();
        tally.limits.over((&job.spec.tenant, job.spec.pool.as_deref()), demand, held).is_empty()
    }

    /// Whether no budget is used up, and all of them cover the time limit.
    fn budget_admits(&self, job: &Job, tally: &Tally) -> bool {
        let (spec, budgets) = (&job.spec, &tally.budgets);
        let groups = spec.tasks.iter().map(|group| (group.count, &group.each));
        let more = || budgets.least_until(self, &spec.tenant, groups, spec.time_limit_ms);
        budgets.is_empty() || budgets.over(self, &spec.tenant, more()).is_none()
    }

    /// Whether the limits per model of the tenant, and of all above it, let the job have these devices.
    fn models_admit(&self, job: &Job, tasks: &[PlacedTask], tally: &Tally) -> bool {
        let model_of = |(node, gpu): (&NodeId, u8)| {
            let gpus = &self.nodes.get(node)?.facts.gpus;
            Some(gpus.get(usize::from(gpu))?.model.as_str())
        };
        let of_model = |limited: &str| -> u64 {
            let of_task = |task: &PlacedTask| {
                let models = task.devices().filter_map(model_of);
                models.filter(|device| model::matches(limited, device)).count() as u64 * task.milli_each()
            };
            tasks.iter().map(of_task).sum()
        };
        tally.models.over(&job.spec.tenant, of_model).is_none()
    }

    fn array_admits(&self, job: &Job, tally: &Tally) -> bool {
        let limit = |array: &super::Array| array.running_max.map(|max| (array.active, max));
        let array = job.id.index.and_then(|_| self.arrays.get(&job.id.number)).and_then(limit);
        let more = tally.arrays.get(&job.id.number).copied().unwrap_or_default();
        array.is_none_or(|(active, max)| active + more < max)
    }

    fn space_admits(&self, job: &Job, tasks: &[PlacedTask], tally: &Tally) -> bool {
        self.tasks_fit(job, tasks, tally, |node| self.capacity.filed(node).map(|filed| filed.free))
    }

    /// Whether each task fits into what is free on its node, beside those before it and all that this plan has used
    /// and others have claimed there.
    fn tasks_fit(
        &self,
        job: &Job,
        tasks: &[PlacedTask],
        tally: &Tally,
        free_on: impl Fn(&NodeId) -> Option<Free>,
    ) -> bool {
        let shape = Shape::of(&job.spec);
        if !self.is_close(&shape, tasks) {
            return false;
        }
        let mut used: BTreeMap<&NodeId, Free> = BTreeMap::new();
        tasks.iter().all(|task| {
            let (Some(filed), Some(free)) = (self.capacity.filed(&task.node), free_on(&task.node)) else {
                return false;
            };
            let here = used.entry(&task.node).or_default();
            let taken = tally.used.get(&task.node).copied().unwrap_or_default().with(*here);
            let more = Free::used_by(&job.spec, task);
            *here = here.with(more);
            let left = free.without(tally.claimed_by_others(&task.node, job.id));
            let each = &job.spec.tasks[task.group as usize].each;
            let allows = |seat| {
                let told = filed.kind.placed(each, (task.rank, task.group), &task.node, seat);
                filed.kind.eligible(&shape, each).allows(seat, each) && told.share == task.share
            };
            filed.open
                && filed.kind.admits(&shape)
                && Seat::of(task).is_some_and(allows)
                && left.without(taken.without_host()).without_host().holds(more.without_host())
                && taken.cpus + more.cpus <= left.cpus
                && taken.memory_mib + more.memory_mib <= left.memory_mib
        })
    }

    /// Whether a gang is as close together as its shape demands: its GPUs on one node, its nodes in one rack.
    fn is_close(&self, shape: &Shape, tasks: &[PlacedTask]) -> bool {
        let Some(first) = tasks.first().and_then(|task| self.capacity.filed(&task.node)) else { return true };
        let one_node = tasks.iter().all(|task| task.node == tasks[0].node);
        let devices = tasks.iter().filter(|task| task.share.is_none());
        let devices = devices.fold(0, |all, task| all | mask(&task.gpus));
        let near = one_node && shape.wish.admits(first.kind.wiring.closeness(devices));
        let rack = |task: &PlacedTask| self.capacity.filed(&task.node).and_then(|filed| filed.rack.as_ref());
        let one_rack =
            one_node || tasks.iter().all(|task| rack(task).is_some() && rack(task) == rack(&tasks[0]));
        (near || !shape.wish.is_demand()) && (one_rack || !shape.must_share_a_rack())
    }

    /// What the victims of a claim still hold on a node. One that came back and runs again is no victim.
    pub fn coming_for(&self, claim: &Claim, node: &NodeId) -> Free {
        let victims = claim.victims.iter().filter_map(|victim| self.jobs.get(victim));
        let stopping = |job: &&Job| job.attempt().is_some_and(|attempt| attempt.stopping.is_some());
        let stopping = victims.filter(stopping);
        stopping.fold(Free::default(), |sum, job| sum.with(Free::used_on(node, job)))
    }

    /// What a claim keeps from others, node by node: its devices, and the cores and memory that its victims, as far
    /// as they still run, will not give it.
    pub fn kept_by(&self, id: JobId, claim: &Claim) -> Vec<(NodeId, Free)> {
        let Some(job) = self.jobs.get(&id) else { return Vec::new() };
        let wanted = Free::by_node(&job.spec, &claim.tasks).into_iter();
        let kept = wanted.map(|(node, wanted)| {
            let coming = self.coming_for(claim, node);
            (node.clone(), wanted.without(coming.divisible()))
        });
        kept.collect()
    }

    /// Whether everything that is held by a claim may be given to its job, once it is free.
    pub fn claim_works(&self, job: &Job, claim: &Claim, now: Timestamp) -> bool {
        let open = |node: &NodeId| self.capacity.filed(node).is_some_and(|filed| filed.open);
        let usable = |task: &PlacedTask| mask(&task.gpus) & !self.usable_gpus(&task.node) == 0;
        let admitted = |task: &PlacedTask| self.windows_admit(job, &task.node, now);
        let in_pool = |task: &PlacedTask| self.is_in_pool(job.spec.pool.as_deref(), task);
        let works = |task: &PlacedTask| open(&task.node) && usable(task) && admitted(task) && in_pool(task);
        !claim.tasks.is_empty() && claim.tasks.iter().all(works)
    }

    /// Whether the devices of a task are given out in a pool as they are now.
    fn is_in_pool(&self, pool: Option<&str>, task: &PlacedTask) -> bool {
        let Some(pool) = pool else { return true };
        let pools = self.nodes.get(&task.node).map(|node| &node.pools[..]).unwrap_or_default();
        let given_out =
            |gpu: &u8| pools.get(usize::from(*gpu)).and_then(|pools| pools.get(pool)) == Some(&true);
        task.gpus.iter().all(given_out)
    }

    /// What is held for jobs that wait, node by node.
    pub fn claimed(&self) -> BTreeMap<NodeId, Vec<(JobId, Free)>> {
        let mut nodes: BTreeMap<NodeId, Vec<(JobId, Free)>> = BTreeMap::new();
        for (id, claim) in &self.claims {
            for (node, space) in self.kept_by(*id, claim) {
                nodes.entry(node).or_default().push((*id, space));
            }
        }
        nodes
    }

    /// Whether making room would be adopted as things are now.
    pub fn would_adopt(&self, room: &MakeRoom, now: Timestamp) -> bool {
        self.adopt_claim(room, now, &mut Tally::of(self, now)).is_some()
    }

    /// The facts of making room, if every victim may be displaced and the job fits afterwards.
    fn adopt_claim(&self, room: &MakeRoom, now: Timestamp, tally: &mut Tally) -> Option<Vec<Event>> {
        let job = self.placeable(room.job, tally)?;
        let tenant = self.tenants.get(&job.spec.tenant)?;
        let allowed = self.settings.preemption && tenant.config.may_preempt;
        if !allowed || self.claims.contains_key(&job.id) || room.victims.is_empty() {
            return None;
        }
        let victims = self.victims(job, room, tally, now)?;
        let windows = room.tasks.iter().all(|task| self.windows_admit(job, &task.node, now));
        if !windows || !self.quota_admits(job, &room.tasks, tally) || !self.array_admits(job, tally) {
            return None;
        }
        if !self.fits_after(job, room, &victims, tally) || !self.models_admit(job, &room.tasks, tally) {
            return None;
        }
        tally.jobs.extend(room.victims.iter().copied());
        victims.iter().for_each(|victim| tally.fewer.add(self, victim));
        tally.claim(self, job, room);
        let until = now.plus(self.settings.stop_grace_ms).plus(self.settings.claim_ms);
        let mut facts = vec![Event::ClaimMade {
            job: job.id,
            tasks: room.tasks.clone(),
            victims: room.victims.clone(),
            at: now,
            until,
        }];
        for victim in victims {
            let attempt = victim.attempt()?;
            facts.push(self.stop(victim, attempt, StopCause::Preempted { by: job.id }, now));
        }
        Some(facts)
    }

    /// The victims, if each of them may be displaced for this job and none twice.
    fn victims(&self, job: &Job, room: &MakeRoom, tally: &Tally, now: Timestamp) -> Option<Vec<&Job>> {
        let unique: BTreeSet<&JobId> = room.victims.iter().collect();
        if unique.len() != room.victims.len() {
            return None;
        }
        let nodes: BTreeSet<&NodeId> = room.tasks.iter().map(|task| &task.node).collect();
        let held = |tenant: &TenantId| tally.held.get(tenant).copied().unwrap_or_default();
        let runs = |tenant: &TenantId| tally.runs.get(tenant).copied().unwrap_or_default();
        let cover = Cover {
            amounts: guarantor(self, &job.spec.tenant, self.least_demand(&job.spec), held),
            models: tally.guaranteed.guarantors(self, &job.spec.tenant, &Shape::of(&job.spec)),
        };
        let (mut fewer, bucket) = (tally.fewer.clone(), self.bucket(job));
        let may_go = |id: &JobId| {
            let victim = self.jobs.get(id)?;
            let here = victim.attempt()?.nodes().iter().any(|node| nodes.contains(node));
            let reclaimed = cover.reclaims(self, victim, &tally.guaranteed);
            let weaker = victim.spec.priority < job.spec.priority
                || self.gives_way(victim, job, now)
                || self.overstays(victim, now).is_some_and(|since| was_passed(job, since))
                || (self.settings.defragment && self.may_be_moved(victim, job.spec.priority));
            let allowed = here
                && !tally.jobs.contains(id)
                && self.may_be_displaced(victim, now)
                && self.policies_let_displace(&bucket, victim, false);
            let owed = || fewer.allows(self, (victim, reclaimed), &cover, (runs, &tally.guaranteed));
            let goes = (allowed && (weaker || reclaimed) && owed()).then_some(victim)?;
            fewer.add(self, goes);
            Some(goes)
        };
        room.victims.iter().map(may_go).collect()
    }

    /// Whether the gang fits once the victims are gone, each task where room is to be made for it.
    fn fits_after(&self, job: &Job, room: &MakeRoom, victims: &[&Job], tally: &Tally) -> bool {
        let mut freed: BTreeMap<&NodeId, Free> = BTreeMap::new();
        for victim in victims {
            let tasks = victim.attempt().into_iter().flat_map(|attempt| &attempt.tasks);
            for (node, space) in Free::by_node(&victim.spec, tasks) {
                let here = freed.entry(node).or_default();
                *here = here.with(space);
            }
        }
        // Counted from what is held: a machine that came back smaller than its jobs has less than nothing free.
        let free_after = |id: &NodeId| {
            let (node, filed) = (self.nodes.get(id)?, self.capacity.filed(id)?);
            let freed = freed.get(id).copied().unwrap_or_default();
            Some(Free {
                cpus: (u64::from(node.facts.cpus) + freed.cpus).saturating_sub(node.cpus_held),
                memory_mib: (node.facts.memory_mib + freed.memory_mib).saturating_sub(node.memory_mib_held),
                ..filed.free.with(freed.on_devices(self.usable_gpus(id)))
            })
        };
        is_whole_gang(&job.spec, &room.tasks) && self.tasks_fit(job, &room.tasks, tally, free_after)
    }

    /// Devices of a node that may be given out once nobody holds them, as bits.
    pub fn usable_gpus(&self, node: &NodeId) -> u64 {
        let Some(node) = self.nodes.get(node) else { return 0 };
        (0..node.facts.gpus.len())
            .filter(|index| node.gpu_usable(*index))
            .fold(0, |mask, index| mask | 1 << index)
    }
}

/// Whether the tasks are the gang, rank by rank, group by group, each with as many different devices as it asked for.
fn is_whole_gang(spec: &JobSpec, tasks: &[PlacedTask]) -> bool {
    let in_order = tasks.is_sorted_by_key(|task| task.group)
        && tasks.iter().enumerate().all(|(rank, task)| task.rank as usize == rank);
    let complete = |task: &PlacedTask| {
        let devices: BTreeSet<&u8> = task.gpus.iter().filter(|gpu| **gpu < 64).collect();
        let asked = spec.tasks.get(task.group as usize).map(|group| group.each.gpus as usize);
        devices.len() == task.gpus.len() && asked == Some(devices.len())
    };
    in_order && spec.is_complete(tasks) && tasks.iter().all(complete)
}

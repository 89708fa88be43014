//! Step 8, adopt: check each part of a plan against the current state, and turn the parts that still hold into events.
//!
//! A plan comes from a snapshot that may be old, and from any author. Nothing in it is trusted: each gang is checked
//! against the state and against what the same plan has already taken. What the plan asserts of a start (effective
//! priority, expected runtime, revocable, score) is bounded, and a value out of bounds rejects the start: recomputing
//! it would change recorded decisions.

mod taken;

use std::collections::{BTreeMap, BTreeSet};

use crate::facts::command::{Actor, Answer};
use crate::facts::event::Event;
use crate::facts::plan::{Eviction, Plan, PlanPart, RejectedPart, Rejection, Repartitioning, Start};
use crate::gpu::model;
use crate::gpu::partition;
use crate::ids::{JobId, NodeId};
use crate::objects::demand::Demand;
use crate::objects::job::{Job, JobSpec, PlacedTask, StopCause};
use crate::objects::score::Score;
use crate::objects::settings::{PRIORITY_MAX, Repartition};
use crate::objects::shape::Shape;
use crate::resources::{DeviceAssignment, ResourceVec, mask};
use crate::state::State;
use crate::state::decision::Decision;
use crate::state::preemption::was_waiting_at;
use crate::time::{DAY, Timestamp};
use taken::Taken;

/// The longest runtime that a plan may expect of a job: ten years.
const EXPECTED_MS_MAX: i64 = 3_653 * DAY;
/// The largest term of a score, in thousandths of a device: a thousand nodes full of devices at the largest weight.
const SCORE_TERM_MILLI_MAX: i64 = 1_000_000_000_000;

impl State {
    pub(super) fn decide_adopt(&self, plan: &Plan, epoch: u64, now: Timestamp) -> Decision {
        let mut taken = Taken::of(self, now);
        let mut outcome = AdoptionOutcome::default();
        for start in &plan.starts {
            let adopted = self.adopt_start(start, epoch, now, &mut taken);
            outcome.add(PlanPart::Start, start.job, adopted);
        }
        let placed = outcome.adopted;
        for eviction in &plan.evictions {
            let adopted = self.adopt_eviction(eviction, now, &mut taken);
            outcome.add(PlanPart::Eviction, eviction.job, adopted);
        }
        let claimed = outcome.adopted - placed;
        let rejected = outcome.rejected.len();
        for repartitioning in &plan.repartitionings {
            let adopted = self.adopt_repartitioning(repartitioning, now, &taken).map(|event| vec![event]);
            outcome.add(PlanPart::Repartitioning, repartitioning.job, adopted);
        }
        if placed + claimed > 0 {
            outcome.events.push(Event::PlanAdopted {
                snapshot: plan.snapshot,
                now: plan.now,
                placed: placed as u32,
                claimed: claimed as u32,
                rejected: rejected as u32,
            });
        }
        let answer = Answer::Adopted { gangs: placed + claimed, rejected: outcome.rejected };
        Decision { events: outcome.events, answer }
    }

    /// The events of one start, if every guard holds.
    fn adopt_start(
        &self,
        start: &Start,
        epoch: u64,
        now: Timestamp,
        taken: &mut Taken,
    ) -> Result<Vec<Event>, Rejection> {
        let job = self.placeable(start.job, taken)?;
        require(is_whole_gang(&job.spec, &start.tasks), Rejection::IncompleteGang)?;
        self.check_assertions(job, start)?;
        self.check_limits(job, &start.tasks, now, taken)?;
        let free_on = |node: &NodeId| self.resources.entry(node).map(|entry| entry.free);
        self.check_space(job, &start.tasks, taken, free_on)?;
        let master_port = self.master_port_for(&job.spec, &start.tasks, &taken.master_ports)?;
        taken.start(self, job, &start.tasks);
        if let (Some(port), Some(first)) = (master_port, start.tasks.first()) {
            taken.master_ports.entry(first.node.clone()).or_default().insert(port);
        }
        let mut events = Vec::new();
        self.drop_claim(job.id, "the preemptor started", now, &mut events);
        events.push(Event::JobPlaced {
            job: job.id,
            attempt: job.attempts + 1,
            epoch,
            tasks: start.tasks.clone(),
            effective_priority: start.effective_priority,
            expected_ms: start.expected_ms,
            revocable: start.revocable,
            score: start.score.clone(),
            held: Some(job.spec.demand_of(&start.tasks)),
            self_fence: self.self_fence_of(job, &start.tasks),
            master_port,
            start_bound_ms: self.start_bound_of(&start.tasks),
            at: now,
        });
        Ok(events)
    }

    /// Bounds of what a plan asserts of a start.
    fn check_assertions(&self, job: &Job, start: &Start) -> Result<(), Rejection> {
        let lowest = -i64::from(self.settings.fair_share_max);
        let highest = i64::from(PRIORITY_MAX) + i64::from(self.settings.aging_max);
        let priority = start.effective_priority.is_none_or(|priority| (lowest..=highest).contains(&priority));
        require(priority, Rejection::EffectivePriorityOutOfBounds)?;
        let expected = start.expected_ms.is_none_or(|ms| (0..=EXPECTED_MS_MAX).contains(&ms));
        require(expected, Rejection::ExpectedRuntimeOutOfBounds)?;
        // A job with a time limit backfills under the limit: its end is bound, so it is never revocable.
        let on_estimate = start.revocable || start.expected_ms.is_some();
        require(!on_estimate || job.spec.time_limit_ms.is_none(), Rejection::EstimateDespiteTimeLimit)?;
        let may_be_revoked = || self.may_backfill_revocably(&job.spec.tenant, job.id);
        require(!start.revocable || may_be_revoked(), Rejection::NotRevocable)?;
        require(start.score.as_deref().is_none_or(is_score_in_bounds), Rejection::ScoreOutOfBounds)
    }

    /// A GPU is repartitioned if the settings let the planner do so and no job uses the GPU now.
    fn adopt_repartitioning(
        &self,
        repartitioning: &Repartitioning,
        now: Timestamp,
        taken: &Taken,
    ) -> Result<Event, Rejection> {
        let Repartitioning { gpu, profiles, job } = repartitioning;
        let node = self.nodes.get(&gpu.node).ok_or(Rejection::UnknownGpu)?;
        let facts = node.facts.gpus.get(usize::from(gpu.index)).ok_or(Rejection::UnknownGpu)?;
        let allowed = self.settings.repartition == Repartition::Apply && node.facts.simulated;
        require(allowed, Rejection::RepartitioningOff)?;
        let instances = partition::laid_out(facts, profiles).map_err(|_| Rejection::IllegalPartition)?;
        let legal = partition::check(facts, gpu.index, &instances).is_ok();
        require(legal, Rejection::IllegalPartition)?;
        let touched = taken.space_on(&gpu.node).touched_devices();
        require(touched >> gpu.index & 1 == 0 && self.is_unused(gpu), Rejection::GpuInUse)?;
        let since = node.partitions.get(&gpu.index).map(|partition| partition.since);
        let cooled_down = since.is_none_or(|since| now.since(since) >= self.settings.repartition_cooldown_ms);
        require(cooled_down, Rejection::RepartitioningCooldown)?;
        require(node.instances(gpu.index) != instances, Rejection::AlreadyPartitioned)?;
        let (by, why) = (Actor::system().name, format!("{job} waits for this layout"));
        Ok(Event::GpuPartitioned { gpu: gpu.clone(), instances, by, why, at: now })
    }

    /// A job that is ready and admitted by the policies, and that this plan has not taken already.
    fn placeable(&self, id: JobId, taken: &Taken) -> Result<&Job, Rejection> {
        let job = self.jobs.get(&id).filter(|job| job.is_ready()).ok_or(Rejection::NotReady)?;
        require(!taken.jobs.contains(&id), Rejection::TakenTwice)?;
        let is_admitted = || {
            let bucket = self.bucket(job);
            self.policy_blocker(&bucket, self.policy_answer(&bucket)).is_none()
        };
        require(self.policies.is_empty() || is_admitted(), Rejection::Policy)?;
        Ok(job)
    }

    /// Windows, arrays, quotas, limits and budgets.
    fn check_limits(&self, job: &Job, tasks: &[PlacedTask], now: Timestamp, taken: &Taken) -> Result<(), Rejection> {
        let (spec, usage, demand) = (&job.spec, &taken.usage, job.spec.demand_of(tasks));
        let admitted = tasks.iter().all(|task| self.windows_admit(job, &task.node, now));
        require(admitted, Rejection::Window)?;
        require(self.array_admits(job, taken), Rejection::ArrayLimit)?;
        require(usage.quota_excess(&spec.tenant, demand).is_empty(), Rejection::Quota)?;
        require(usage.user_excess(&spec.tenant, &spec.user, demand).is_empty(), Rejection::UserQuota)?;
        let by_policy = usage.policy_limit_excess(&spec.tenant, spec.pool.as_deref(), demand);
        require(by_policy.is_empty(), Rejection::PolicyLimit)?;
        let groups = spec.tasks.iter().map(|group| (group.count, &group.each));
        let over_budget = usage.budget_excess(&spec.tenant, groups, spec.time_limit_ms);
        require(over_budget.is_none(), Rejection::Budget)?;
        require(self.models_admit(job, tasks, taken), Rejection::ModelLimit)
    }

    /// The least that a job takes from its tenant's quota, wherever it is placed.
    pub(crate) fn least_demand(&self, spec: &JobSpec) -> Demand {
        self.resources.least_demand(spec.tasks.iter().map(|group| (group.count, &group.each)))
    }

    /// True if the limits per model of the tenant and its ancestors allow these devices.
    fn models_admit(&self, job: &Job, tasks: &[PlacedTask], taken: &Taken) -> bool {
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
        taken.usage.models.over(&job.spec.tenant, of_model).is_none()
    }

    fn array_admits(&self, job: &Job, taken: &Taken) -> bool {
        let array = job.id.index.and_then(|_| self.arrays.get(&job.id.number));
        let running_max = array.and_then(|array| array.running_max);
        running_max.is_none_or(|max| taken.usage.array_running(job.id.number) < max)
    }

    /// Each task fits into what is free on its node, beside the tasks before it, what this plan has used and what
    /// claims of other jobs hold there.
    fn check_space(
        &self,
        job: &Job,
        tasks: &[PlacedTask],
        taken: &Taken,
        free_on: impl Fn(&NodeId) -> Option<ResourceVec>,
    ) -> Result<(), Rejection> {
        let shape = Shape::of(&job.spec);
        require(self.meets_locality(&shape, tasks), Rejection::Locality)?;
        let mut used: BTreeMap<&NodeId, ResourceVec> = BTreeMap::new();
        for task in tasks {
            let entry = self.resources.entry(&task.node).filter(|entry| entry.open && entry.kind.admits(&shape));
            let entry = entry.ok_or(Rejection::NodeUnavailable)?;
            let free = free_on(&task.node).ok_or(Rejection::NodeUnavailable)?;
            let each = &job.spec.tasks[task.group as usize].each;
            let is_eligible = |assignment| {
                let placed = entry.kind.placed(each, (task.rank, task.group), &task.node, assignment);
                entry.kind.eligible(&shape, each).allows(assignment, each) && placed.share == task.share
            };
            let eligible = DeviceAssignment::of(task).is_some_and(is_eligible);
            require(eligible, Rejection::DeviceIneligible)?;
            let used_by_gang = used.entry(&task.node).or_default();
            let before = taken.space_on(&task.node).plus(*used_by_gang);
            let more = ResourceVec::used_by(&job.spec, task);
            *used_by_gang = used_by_gang.plus(more);
            let left = free.minus(taken.claimed_by_others(&task.node, job.id));
            let devices = left.minus(before.without_host()).without_host().covers(more.without_host());
            let host = before.cpus + more.cpus <= left.cpus && before.memory_mib + more.memory_mib <= left.memory_mib;
            require(devices && host, Rejection::SpaceTaken)?;
        }
        Ok(())
    }

    /// True if a gang is as close together as its shape requires: its GPUs on one node, its nodes in one rack.
    fn meets_locality(&self, shape: &Shape, tasks: &[PlacedTask]) -> bool {
        let Some(first) = tasks.first().and_then(|task| self.resources.entry(&task.node)) else {
            return true;
        };
        let one_node = tasks.iter().all(|task| task.node == tasks[0].node);
        let devices = tasks.iter().filter(|task| task.share.is_none());
        let devices = devices.fold(0, |all, task| all | mask(&task.gpus));
        let near = one_node && shape.locality.allows(first.kind.topology.locality(devices));
        let rack = |task: &PlacedTask| self.resources.entry(&task.node).and_then(|entry| entry.rack.as_ref());
        let one_rack = one_node || tasks.iter().all(|task| rack(task).is_some() && rack(task) == rack(&tasks[0]));
        (near || !shape.locality.is_required()) && (one_rack || !shape.must_share_a_rack())
    }

    /// True if an eviction would be adopted in the current state.
    pub fn would_adopt(&self, eviction: &Eviction, now: Timestamp) -> bool {
        self.adopt_eviction(eviction, now, &mut Taken::of(self, now)).is_ok()
    }

    /// The events of an eviction, if every victim may be evicted and the preemptor fits afterwards.
    fn adopt_eviction(&self, eviction: &Eviction, now: Timestamp, taken: &mut Taken) -> Result<Vec<Event>, Rejection> {
        let job = self.placeable(eviction.job, taken)?;
        let may_preempt = self.tenants.get(&job.spec.tenant).is_some_and(|tenant| tenant.config.may_preempt);
        require(self.settings.preemption && may_preempt, Rejection::PreemptionOff)?;
        require(!self.claims.contains_key(&job.id), Rejection::HasClaim)?;
        require(is_whole_gang(&job.spec, &eviction.tasks), Rejection::IncompleteGang)?;
        let victims = self.eligible_victims(job, eviction, taken, now)?;
        self.check_limits(job, &eviction.tasks, now, taken)?;
        let free_after = self.free_after(&victims);
        self.check_space(job, &eviction.tasks, taken, free_after)?;
        taken.claim(self, job, eviction, &victims);
        let until = now.plus(self.settings.stop_grace_ms).plus(self.settings.claim_ms);
        let mut events = vec![Event::ClaimMade {
            job: job.id,
            tasks: eviction.tasks.clone(),
            victims: eviction.victims.clone(),
            at: now,
            until,
        }];
        let attempts = victims.iter().filter_map(|victim| Some((victim, victim.attempt()?)));
        let cause = StopCause::Preempted { by: job.id };
        events.extend(attempts.map(|(victim, attempt)| self.stop(victim, attempt, cause.clone(), now)));
        Ok(events)
    }

    /// The victims, if each of them may be evicted for this preemptor and none is named twice.
    fn eligible_victims(
        &self,
        job: &Job,
        eviction: &Eviction,
        taken: &Taken,
        now: Timestamp,
    ) -> Result<Vec<&Job>, Rejection> {
        let unique: BTreeSet<&JobId> = eviction.victims.iter().collect();
        require(!unique.is_empty() && unique.len() == eviction.victims.len(), Rejection::VictimIneligible)?;
        let nodes: BTreeSet<&NodeId> = eviction.tasks.iter().map(|task| &task.node).collect();
        let usage = &taken.usage;
        let cover = usage.cover(&job.spec.tenant, &Shape::of(&job.spec));
        let (mut pending, bucket) = (taken.pending.clone(), self.bucket(job));
        let may_evict = |id: &JobId| {
            let victim = self.jobs.get(id)?;
            let on_node = victim.attempt()?.nodes().iter().any(|node| nodes.contains(node));
            let reclaimed = cover.reclaims(self, victim, &usage.guaranteed);
            let weaker = victim.spec.priority < job.spec.priority
                || self.yields_to(victim, job, now)
                || self.overran(victim, now).is_some_and(|since| was_waiting_at(job, since))
                || (self.settings.defragment && self.may_be_moved(victim, job.spec.priority));
            let allowed = on_node
                && !taken.jobs.contains(id)
                && self.may_be_evicted(victim, now)
                && self.policies_allow_eviction(&bucket, victim, false);
            let guarantees_hold = || pending.allows(victim, reclaimed, &cover, usage);
            let victim = (allowed && (weaker || reclaimed) && guarantees_hold()).then_some(victim)?;
            pending.add(self, victim);
            Some(victim)
        };
        let victims: Option<Vec<&Job>> = eviction.victims.iter().map(may_evict).collect();
        victims.ok_or(Rejection::VictimIneligible)
    }

    /// What is free on a node once the victims are gone. Counted from what is held: a node that registered again with
    /// less than its jobs hold would have a negative amount free.
    fn free_after(&self, victims: &[&Job]) -> impl Fn(&NodeId) -> Option<ResourceVec> {
        let mut freed: BTreeMap<NodeId, ResourceVec> = BTreeMap::new();
        for victim in victims {
            let tasks = victim.attempt().into_iter().flat_map(|attempt| &attempt.tasks);
            for (node, space) in ResourceVec::by_node(&victim.spec, tasks) {
                let sum = freed.entry(node.clone()).or_default();
                *sum = sum.plus(space);
            }
        }
        move |id: &NodeId| {
            let (node, entry) = (self.nodes.get(id)?, self.resources.entry(id)?);
            let freed = freed.get(id).copied().unwrap_or_default();
            Some(ResourceVec {
                cpus: (u64::from(node.facts.cpus) + freed.cpus).saturating_sub(node.cpus_held),
                memory_mib: (node.facts.memory_mib + freed.memory_mib).saturating_sub(node.memory_mib_held),
                ..entry.free.plus(freed.on_devices(self.usable_gpus(id)))
            })
        }
    }
}

/// True if the tasks are the whole gang in order of rank and group, each with the requested number of distinct devices.
fn is_whole_gang(spec: &JobSpec, tasks: &[PlacedTask]) -> bool {
    let in_order = tasks.is_sorted_by_key(|task| task.group)
        && tasks.iter().enumerate().all(|(rank, task)| task.rank as usize == rank);
    let complete = |task: &PlacedTask| {
        let devices: BTreeSet<&u8> = task.gpus.iter().filter(|gpu| **gpu < 64).collect();
        let requested = spec.tasks.get(task.group as usize).map(|group| group.each.gpus as usize);
        devices.len() == task.gpus.len() && requested == Some(devices.len())
    };
    in_order && spec.is_complete(tasks) && tasks.iter().all(complete)
}

/// True if each term occurs once and none exceeds the highest possible cost of a placement.
fn is_score_in_bounds(score: &Score) -> bool {
    let bounded = |milli: i64| (-SCORE_TERM_MILLI_MAX..=SCORE_TERM_MILLI_MAX).contains(&milli);
    let unique = score.terms.iter().map(|term| term.name).collect::<BTreeSet<_>>().len();
    unique == score.terms.len() && score.terms.iter().all(|term| bounded(term.milli))
}

fn require(holds: bool, rejection: Rejection) -> Result<(), Rejection> {
    if holds { Ok(()) } else { Err(rejection) }
}

/// The adopted and rejected parts of a plan.
#[derive(Default)]
struct AdoptionOutcome {
    events: Vec<Event>,
    adopted: usize,
    rejected: Vec<RejectedPart>,
}

impl AdoptionOutcome {
    fn add(&mut self, part: PlanPart, job: JobId, adopted: Result<Vec<Event>, Rejection>) {
        match adopted {
            Ok(events) => {
                self.events.extend(events);
                self.adopted += 1;
            }
            Err(reason) => self.rejected.push(RejectedPart { part, job, reason }),
        }
    }
}

//! A naive planner: slow, obvious, without buckets, indexes or shortcuts. It looks at every job and every node
//! each time, and must agree with `plan` about who starts where and who must go for whom.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use muster_core::capacity::{Free, Kind, Part};
use muster_core::job::{Attempt, Demand, Isolation, Job, PlacedTask, Resources, TaskGroup, Topology};
use muster_core::lasting::{Word, rounded};
use muster_core::node::{GpuWord, Node, NodeWord, Slot};
use muster_core::partition::check;
use muster_core::plan::advice::{Advice, Silent};
use muster_core::plan::score::Said;
use muster_core::plan::{MakeRoom, plan_with};
use muster_core::policy::{Answer, Hook};
use muster_core::queue::{Bucket, Shape};
use muster_core::rules::Rule;
use muster_core::settings::{Objective, PRIORITY_MAX};
use muster_core::share::{Share, ShareMode};
use muster_core::state::Claim;
use muster_core::time::{HOUR, MINUTE};
use muster_core::window::Window;
use muster_core::wiring::{Wiring, Wish};
use muster_core::{JobId, NodeId, State, TenantId, Timestamp, model};

use crate::laws::{Teller, stories, tell};
use crate::naive_score::{Cost, FreeDevices, Placement};
use crate::policies;
use crate::story::Step;
use crate::world::{
    demand_of, gives_only_what_it_owes, gives_only_what_it_owes_of, guarantor, half_life, held_below,
    held_by, held_by_user, instance_holds, is_below, is_ready, is_within_budget, least_demand, least_of_task,
    milliwatts_of, model_guarantors, of_model, runs_on_model,
};

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

/// The planner and the naive one propose the same.
pub fn compare(state: &State, now: Timestamp) {
    let advice: &dyn Advice = if state.seq.is_multiple_of(3) { &Whims } else { &Silent };
    let planned = plan_with(state, now, advice).plan;
    let starts = planned.starts.iter().map(|start| (start.job, start.tasks.clone()));
    let claims = planned.claims.iter().map(|room| (room.job, room.tasks.clone(), room.victims.clone()));
    let naive = Naive::plan(state, now, advice);
    assert_eq!(starts.collect::<Vec<_>>(), naive.starts, "who starts where");
    assert_eq!(claims.collect::<Vec<_>>(), naive.claims, "who must go for whom");
    let lent = planned.starts.iter().filter(|start| start.lent).map(|start| start.job);
    assert_eq!(lent.collect::<BTreeSet<_>>(), naive.lent, "who has space on loan");
}

/// A single task that has a part of a device or an instance.
fn is_single_share(job: &Job) -> bool {
    matches!(&job.spec.tasks[..], [group] if group.count == 1 && is_shared(&group.each))
}

fn is_shared(each: &Resources) -> bool {
    each.gpus > 0 && each.gpu_compute_milli < 1_000
}

/// Every way to seat a gang on a node on which it fits.
fn every_way(job: &Job, node: &Node, space: &Space) -> Vec<Vec<PlacedTask>> {
    let mut ways: Vec<(Space, Vec<(usize, Seat)>)> = vec![(space.clone(), Vec::new())];
    for (group, of) in job.spec.tasks.iter().enumerate() {
        for _ in 0..of.count {
            let mut longer = Vec::new();
            for (left, seated) in ways {
                for seat in every_seat(&of.each, node, &left, is_single_share(job)) {
                    let before = seated.last().filter(|(other, _)| *other == group);
                    if before.is_some_and(|(_, before)| place_of(&seat) < place_of(before)) {
                        continue;
                    }
                    let mut left = left.clone();
                    left.take(&seat.space(&of.each));
                    longer.push((left, [&seated[..], &[(group, seat)]].concat()));
                }
            }
            ways = longer;
        }
    }
    assert!(ways.len() <= 100, "{} ways", ways.len());
    let (wiring, wish) = (Wiring::of(&node.facts), Wish::of_job(&job.spec));
    let placed = ways.into_iter().map(|(_, seated)| {
        let ranked = (0..).zip(seated);
        ranked.map(|(rank, (group, seat))| seat.placed(rank, group as u32, &node.id)).collect::<Vec<_>>()
    });
    let close = |tasks: &Vec<PlacedTask>| {
        let whole = tasks.iter().filter(|task| task.share.is_none()).flat_map(|task| &task.gpus);
        let devices = whole.fold(0u64, |all, gpu| all | 1 << gpu);
        !wish.is_demand() || wish.admits(wiring.closeness(devices))
    };
    placed.filter(close).collect()
}

/// Every seat for a task, by kind of seat and by device; for a task that is alone in the usual order. Of whole devices
/// every set.
fn every_seat(each: &Resources, node: &Node, left: &Space, alone: bool) -> Vec<Seat> {
    if left.cpus < u64::from(each.cpus) || left.memory_mib < each.memory_mib {
        return Vec::new();
    }
    if !is_shared(each) {
        let free = left.gpus.iter().filter(|(_, part)| **part == WHOLE).map(|(gpu, _)| *gpu);
        let free: Vec<u8> = free.filter(|gpu| would_do(each, node, *gpu)).collect();
        let sets = (0..1u32 << free.len()).filter(|set| set.count_ones() == each.gpus);
        let gpus = |set: u32| (0..).zip(&free).filter(move |(at, _): &(u32, _)| set >> at & 1 == 1);
        let seat = |set: u32| Seat { gpus: gpus(set).map(|(_, gpu)| *gpu).collect(), share: None };
        return sets.map(seat).collect();
    }
    let mut seats = [parts(each, node, left), instances(each, node, left)].concat();
    match alone {
        true => seats.sort_by_key(|(order, _)| *order),
        false => seats.sort_by_key(|(_, seat)| place_of(seat)),
    }
    seats.into_iter().map(|(_, seat)| seat).collect()
}

/// By kind of seat, then by devices.
fn place_of(seat: &Seat) -> (u8, u64, u8) {
    let devices = seat.gpus.iter().fold(0u64, |all, gpu| all | 1 << gpu);
    match seat.share.as_ref().map(|share| &share.mode) {
        None => (0, devices, 0),
        Some(ShareMode::Mig { start, .. }) => (2, devices, *start),
        Some(_) => (1, devices, 0),
    }
}

/// Somebody who likes some nodes for some users and dislikes others.
struct Whims;

impl Advice for Whims {
    fn said(&self, gang: &Bucket, node: &NodeId, _: &Kind) -> Said {
        let letters = gang.user.bytes().chain(node.as_str().bytes());
        let whim = letters.fold(7u32, |sum, letter| sum.wrapping_mul(31) ^ u32::from(letter));
        let milli = |shift: u32| f64::from(whim >> shift & 0xff) - 128.0;
        Said { learned: milli(0), policy: milli(8), power: milli(16) }
    }

    fn tells_nodes_apart(&self) -> bool {
        true
    }
}

/// What is free on a node, or used by a job there. Of each device so many thousandths of compute and of memory.
#[derive(Debug, Clone, Default)]
struct Space {
    gpus: BTreeMap<u8, (u32, u32)>,
    /// Instances of devices, by where they begin.
    instances: BTreeSet<(u8, u8)>,
    cpus: u64,
    memory_mib: u64,
}

const WHOLE: (u32, u32) = (1_000, 1_000);

impl Space {
    /// Devices of which nothing is missing.
    fn whole(&self) -> usize {
        self.gpus.values().filter(|part| **part == WHOLE).count()
    }

    fn of(&self, gpu: u8) -> (u32, u32) {
        self.gpus.get(&gpu).copied().unwrap_or_default()
    }

    fn set(&mut self, gpu: u8, part: (u32, u32)) {
        match part {
            (0, 0) => drop(self.gpus.remove(&gpu)),
            _ => drop(self.gpus.insert(gpu, part)),
        }
    }

    fn add(&mut self, more: &Space) {
        for (gpu, (compute, memory)) in &more.gpus {
            let have = self.of(*gpu);
            self.set(*gpu, ((have.0 + compute).min(1_000), (have.1 + memory).min(1_000)));
        }
        self.instances.extend(&more.instances);
        self.cpus += more.cpus;
        self.memory_mib += more.memory_mib;
    }

    fn take(&mut self, less: &Space) {
        for (gpu, (compute, memory)) in &less.gpus {
            let have = self.of(*gpu);
            self.set(*gpu, (have.0.saturating_sub(*compute), have.1.saturating_sub(*memory)));
        }
        self.instances.retain(|one| !less.instances.contains(one));
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

    fn shared_with(&self, other: &Space) -> Space {
        let mut both = Space {
            gpus: BTreeMap::new(),
            instances: self.instances.intersection(&other.instances).copied().collect(),
            cpus: self.cpus.min(other.cpus),
            memory_mib: self.memory_mib.min(other.memory_mib),
        };
        for (gpu, one) in &self.gpus {
            let other = other.of(*gpu);
            both.set(*gpu, (one.0.min(other.0), one.1.min(other.1)));
        }
        both
    }

    fn holds(&self, wanted: &Space) -> bool {
        let enough = |(gpu, part): (&u8, &(u32, u32))| {
            let have = self.of(*gpu);
            part.0 <= have.0 && part.1 <= have.1
        };
        wanted.gpus.iter().all(enough)
            && wanted.instances.is_subset(&self.instances)
            && wanted.cpus <= self.cpus
            && wanted.memory_mib <= self.memory_mib
    }

    /// What of all that someone needs they get from who leaves: whole devices, and parts as far as they leave.
    fn promised_of(&self, coming: &Space) -> Space {
        let mut promised = self.shared_with(coming);
        self.gpus
            .iter()
            .filter(|(_, part)| **part == WHOLE)
            .for_each(|(gpu, part)| promised.set(*gpu, *part));
        promised.instances = self.instances.clone();
        promised
    }

    fn less(&self, less: &Space) -> Space {
        let mut rest = self.clone();
        rest.take(less);
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
    advice: &'a dyn Advice,
    /// Nodes that take work and are not kept for anyone.
    free: BTreeMap<NodeId, Space>,
    leaving: BTreeMap<NodeId, Space>,
    /// Who starts or has space kept, and how much of it.
    more_held: Vec<(&'a Job, Demand)>,
    /// Where they sit, or will.
    seats: Vec<(&'a Job, Vec<PlacedTask>)>,
    claimants: BTreeSet<JobId>,
    displaced: BTreeSet<JobId>,
    /// What will come free and is somebody's already.
    owed: BTreeMap<NodeId, Space>,
    /// Who has a place in the future.
    booked: Vec<Booked>,
    /// How often the future was searched.
    searches: u32,
    /// While others are looked for who give way to a job.
    hastens: Haste<'a>,
    /// Who starts on space that is kept for others.
    lent: BTreeSet<JobId>,
    starts: Vec<(JobId, Vec<PlacedTask>)>,
    claims: Vec<(JobId, Vec<PlacedTask>, Vec<JobId>)>,
    /// Devices that starts and claims of this plan take.
    devices: Vec<(&'a TenantId, PlacedTask)>,
}

/// Who is looked for to give way to a job for speed.
#[derive(Clone, Copy)]
enum Haste<'a> {
    No,
    /// Those who lose next to nothing.
    Gently(&'a Job),
    /// Those of whom more is left.
    AtACost,
}

impl<'a> Naive<'a> {
    fn plan(state: &'a State, now: Timestamp, advice: &'a dyn Advice) -> Naive<'a> {
        let open = state.nodes.values().filter(|node| node.state.word == NodeWord::Ready);
        let mut naive = Naive {
            state,
            now,
            advice,
            free: open.map(|node| (node.id.clone(), free_on(node))).collect(),
            leaving: BTreeMap::new(),
            more_held: Vec::new(),
            seats: Vec::new(),
            claimants: BTreeSet::new(),
            displaced: BTreeSet::new(),
            owed: BTreeMap::new(),
            booked: Vec::new(),
            searches: 0,
            hastens: Haste::No,
            lent: BTreeSet::new(),
            starts: Vec::new(),
            claims: Vec::new(),
            devices: Vec::new(),
        };
        naive.count_leaving();
        naive.hold_claims();
        naive.start_claimants();
        let mut lines = naive.lines();
        let (mut blocked, mut left_over) = (Vec::new(), Vec::new());
        while let Some(job) = naive.next(&mut lines) {
            if naive.claimants.contains(&job.id)
                || (naive.admits(job) && (naive.start(job) || naive.preempt(job) || naive.hasten_gently(job)))
            {
                continue;
            }
            if naive.admits(job)
                && let Some(booked) = naive.earliest_place(job)
            {
                if naive.hasten(job, booked.at) {
                    continue;
                }
                naive.book(booked);
            }
            blocked.push(job);
            // Those behind it ask for the same, so this round is over for them.
            let same = |other: &Job| shared(state, other) == shared(state, job);
            let behind = lines.iter().filter(|line| line.first().is_some_and(|other| same(other))).flatten();
            left_over.extend([job].into_iter().chain(behind.copied()));
            lines.retain(|line| !line.first().is_some_and(|other| same(other)));
        }
        naive.defragment(blocked);
        naive.give_way_to_several(left_over);
        naive.grow();
        naive
    }

    /// Move those who save their work so that the first who are blocked fit, where that gains twice what it loses.
    fn defragment(&mut self, blocked: Vec<&'a Job>) {
        for job in blocked.into_iter().take(8).filter(|_| self.state.settings.defragment) {
            let at = self.booked.iter().find(|booked| booked.job == job.id).map(|booked| booked.at);
            let Some(at) = at.filter(|_| self.may_preempt(job) && self.admits(job)) else { continue };
            let grace = self.state.settings.stop_grace_ms;
            let gained = (at.since(self.now) - grace).max(0) as u64 * job.spec.demand().gpu_milli / 1_000;
            let mut best: Option<((u64, JobId), &Job, Vec<PlacedTask>)> = None;
            for node in self.free.keys() {
                for victim in self.candidates(node) {
                    let attempt = victim.attempt().unwrap();
                    let saves = victim.spec.checkpoint.is_some() || attempt.saved_at.is_some();
                    let lost = self.lost(victim) + grace as u64 * held_by(victim).gpu_milli / 1_000;
                    let gentle =
                        saves && victim.preemptions == 0 && victim.spec.priority <= job.spec.priority;
                    let better = best.as_ref().is_none_or(|(known, _, _)| (lost, victim.id) < *known);
                    if !gentle
                        || !self.lets_displace(job, victim)
                        || !better
                        || gained == 0
                        || gained < 2 * lost
                    {
                        continue;
                    }
                    let space = self.after_for(Some(job.id), node, &[victim]);
                    let tasks = space.and_then(|space| self.fit(job, node, &space));
                    let tasks = tasks.filter(|_| self.finds_room_apart(victim, node));
                    let holds = |tasks: &Vec<PlacedTask>| {
                        let (tasks, victims) = (tasks.clone(), vec![victim.id]);
                        self.state.would_adopt(&MakeRoom { job: job.id, tasks, victims }, self.now)
                    };
                    if let Some(tasks) = tasks.filter(holds) {
                        best = Some(((lost, victim.id), victim, tasks));
                    }
                }
            }
            if let Some((_, victim, tasks)) = best {
                self.make_room(job, vec![victim], tasks);
            }
        }
    }

    /// Whether all of a gang that runs would find room now without a node.
    fn finds_room_apart(&self, victim: &Job, apart: &NodeId) -> bool {
        let mut spaces = BTreeMap::new();
        for (id, free) in self.free.iter().filter(|(id, _)| *id != apart) {
            let mut usable = free.clone();
            usable.gpus.retain(|gpu, _| !is_hot(&self.state.nodes[id], *gpu));
            usable.instances.retain(|(gpu, _)| !is_hot(&self.state.nodes[id], *gpu));
            let ending = outright(self.ending(victim));
            let usable = self.not_reserved(id, &usable, ending, Some(&victim.spec.tenant));
            spaces.extend(usable.map(|usable| (id.clone(), (free.whole(), usable))));
        }
        self.best_place(victim, &spaces).is_some()
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
            match self.is_fast() {
                true => line.sort_by_key(|job| Reverse(self.rank(job))),
                false => line.sort_by_key(|job| (job.submitted_at, job.id)),
            }
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

    fn rank(&self, job: &Job) -> (u8, Reverse<usize>, Reverse<u64>, i64, Reverse<Timestamp>, Reverse<JobId>) {
        let (class, effective) = match () {
            () if job.spec.priority == PRIORITY_MAX => (3, self.effective(job)),
            () if self.is_overdue(job) => (2, 0),
            () if self.is_guaranteed(job) => (1, self.effective(job)),
            () => (0, self.effective(job)),
        };
        let by_size = self.is_fast() && class < 2 && !is_returning(job);
        let size = Reverse(if by_size { self.size(job) } else { 0 });
        let word = if class == 2 { 0 } else { urgency(self.state, job) };
        (class, Reverse(word), size, effective, Reverse(job.submitted_at), Reverse(job.id))
    }

    fn is_fast(&self) -> bool {
        self.state.settings.objective == Objective::Fast
    }

    /// The GPU time that is left of a job that waits. How long it runs is told by the state and tested there.
    fn size(&self, job: &Job) -> u64 {
        job.spec.demand().gpu_milli * self.state.left_ms(job, self.now) as u64 / 1_000
    }

    /// The GPU time that is left of a running job that may give way.
    fn left(&self, victim: &Job) -> Option<u64> {
        let attempt = victim.attempt().unwrap();
        let by_right = attempt.placed_at.since(victim.submitted_at) > self.state.settings.max_wait_ms;
        let once_more = victim.preemptions == 0 || self.saves(victim);
        let left = self.state.left_ms(victim, self.now) as u64 * held_by(victim).gpu_milli / 1_000;
        (once_more && !by_right).then_some(left)
    }

    fn saves(&self, victim: &Job) -> bool {
        victim.spec.checkpoint.is_some() || victim.attempt().unwrap().saved_at.is_some()
    }

    /// What it is worth that a running job goes on that loses next to nothing by giving way.
    fn worth(&self, victim: &Job) -> Option<u64> {
        let left = self.left(victim).filter(|left| *left > 0 && self.saves(victim))?;
        let lost = self.lost(victim);
        (lost < left / 8).then(|| (held_by(victim).gpu_milli << 40) / (left - lost))
    }

    fn worth_to_start(&self, job: &Job) -> u64 {
        (job.spec.demand().gpu_milli << 40) / self.size(job).max(1)
    }

    /// Whether a running job gives way to another, as far as the two are concerned.
    fn gives_way(&self, victim: &Job, to: &Job) -> bool {
        let weaker = match self.hastens {
            Haste::Gently(_) => self.worth(victim).is_some_and(|worth| worth < self.worth_to_start(to)),
            _ => self.left(victim).is_some_and(|left| self.size(to) < left),
        };
        victim.spec.priority <= self.displaces_with(to) && weaker
    }

    /// What it costs that a job goes.
    fn price(&self, victim: &Job) -> u64 {
        match self.hastens {
            Haste::Gently(_) => self.worth(victim).unwrap_or(u64::MAX),
            _ => self.lost(victim),
        }
    }

    /// Let those give way who lose next to nothing, if the job is worth more than all of them.
    fn hasten_gently(&mut self, job: &'a Job) -> bool {
        if !self.is_fast() || !self.may_preempt(job) {
            return false;
        }
        self.hastens = Haste::Gently(job);
        let found = self.whom_to_displace(job);
        self.hastens = Haste::No;
        let Some((victims, tasks)) = found else { return false };
        let worth: u64 = victims.iter().map(|victim| self.worth(victim).unwrap()).sum();
        if worth >= self.worth_to_start(job) {
            return false;
        }
        if !self.wait_for_leaving(job) {
            self.make_room(job, victims, tasks);
        }
        true
    }

    /// Let longer work give way, if the job gains more time than the others lose.
    fn hasten(&mut self, job: &'a Job, at: Timestamp) -> bool {
        if !self.is_fast() || !self.may_preempt(job) {
            return false;
        }
        self.hastens = Haste::AtACost;
        let found = self.whom_to_displace(job);
        self.hastens = Haste::No;
        let Some((victims, tasks)) = found else { return false };
        let grace = self.state.settings.stop_grace_ms;
        let gpu_milli = job.spec.demand().gpu_milli.max(1);
        let takes = (self.size(job) * 1_000 / gpu_milli) as i64 + grace;
        let lost = |victim: &&Job| self.lost(victim) * 1_000 / held_by(victim).gpu_milli;
        let costs: i64 = victims.iter().map(|victim| takes + lost(victim) as i64).sum();
        let over = |victim: &&Job| self.now.plus(self.state.left_ms(victim, self.now));
        let at = at.min(victims.iter().map(over).max().unwrap());
        if costs >= at.since(self.now) - grace {
            return false;
        }
        if !self.wait_for_leaving(job) {
            self.make_room(job, victims, tasks);
        }
        true
    }

    /// Let one go who loses next to nothing, if those who then sit on its nodes are worth more by a quarter.
    fn give_way_to_several(&mut self, mut waiting: Vec<&'a Job>) {
        let limited = |job: &Job| {
            let mut lineage = self.state.lineage(&job.spec.tenant);
            lineage.any(|tenant| !tenant.config.maximum_by_model.is_empty())
        };
        let promised = self.state.tenants.values().any(|tenant| {
            let config = &tenant.config;
            config.damage_gpu_ms_per_day.is_some()
                || config.guaranteed.is_set()
                || config.guaranteed_by_model.values().any(|gpus| *gpus > 0)
        });
        let quiet = self.state.claims.is_empty() && self.claims.is_empty();
        let told_apart = orders(self.state).is_some()
            || self.state.tenants.keys().any(|tenant| policies::answer(self.state, Hook::Victims, tenant));
        if !self.is_fast() || !quiet || promised || told_apart {
            return;
        }
        waiting.retain(|job| self.may_preempt(job) && self.admits(job) && !limited(job));
        waiting.sort_by_key(|job| (self.size(job), job.submitted_at, job.id));
        waiting.truncate(32);
        let mut best = None;
        for victim in self.state.jobs.values().filter(|job| self.may_go(job)) {
            let Some((first, tasks, gain)) = self.gain_of_several(victim, &waiting) else { continue };
            let found = (gain, self.left(victim).unwrap(), Reverse(victim.id));
            if best.as_ref().is_none_or(|(best, _, _): &(_, &Job, Vec<PlacedTask>)| found > *best) {
                best = Some((found, first, tasks));
            }
        }
        if let Some(((_, _, Reverse(victim)), first, tasks)) = best {
            self.make_room(first, vec![&self.state.jobs[&victim]], tasks);
        }
    }

    /// Who sits first where one was, and by how much all who then sit there are worth more.
    fn gain_of_several(
        &self,
        victim: &'a Job,
        waiting: &[&'a Job],
    ) -> Option<(&'a Job, Vec<PlacedTask>, u64)> {
        let worth = self.worth(victim)?;
        let mut seated: Vec<(&Job, Vec<PlacedTask>)> = Vec::new();
        for job in waiting.iter().copied().filter(|job| job.spec.priority >= victim.spec.priority) {
            let nodes = victim.attempt().unwrap().nodes().into_iter();
            let mut open = nodes.filter(|node| self.free.contains_key(node));
            let tasks =
                open.find_map(|node| self.fit(job, &node, &self.after_several(job, &node, victim, &seated)?));
            seated.extend(tasks.map(|tasks| (job, tasks)));
        }
        let together: u64 = seated.iter().map(|(job, _)| self.worth_to_start(job)).sum();
        let (first, tasks) = seated.into_iter().next()?;
        let clearly = together > worth + worth / 4;
        let smaller = self.size(first) < self.left(victim).unwrap();
        (clearly && smaller).then(|| (first, tasks, together - worth))
    }

    /// What a job may use on a node once one has gone and others sit there.
    fn after_several(
        &self,
        job: &Job,
        id: &NodeId,
        victim: &Job,
        seated: &[(&Job, Vec<PlacedTask>)],
    ) -> Option<Space> {
        let mut space = self.free[id].clone();
        let node = &self.state.nodes[id];
        let own = victim.attempt().unwrap().tasks.iter().filter(|task| task.node == *id);
        own.for_each(|task| space.add(&usable(node, &of_task(victim, task))));
        space = space.less_overdrawn(node);
        for (other, tasks) in seated {
            by_node(other, tasks).get(id).into_iter().for_each(|taken| space.take(taken));
        }
        self.not_reserved_but_for(Some(job.id), id, &space, (self.ending(job), Some(&job.spec.tenant)))
    }

    fn effective(&self, job: &Job) -> i64 {
        let settings = &self.state.settings;
        if is_returning(job) {
            return i64::from(self.ordered(job)) + i64::from(settings.aging_max);
        }
        let aged_ms = (self.now.since(job.submitted_at) - settings.aging_after_ms).max(0);
        let aging =
            (aged_ms * i64::from(settings.aging_per_minute) / MINUTE).min(i64::from(settings.aging_max));
        i64::from(self.ordered(job)) + aging - self.penalty(job)
    }

    /// What was answered of a job that waits.
    fn answer(&self, job: &Job) -> Option<&'a Answer> {
        self.state.policies.answers.of(&self.state.bucket(job))
    }

    fn ordered(&self, job: &Job) -> u32 {
        self.answer(job).and_then(|answer| answer.priority).unwrap_or(job.spec.priority)
    }

    fn displaces_with(&self, job: &Job) -> u32 {
        self.ordered(job).min(job.spec.priority)
    }

    /// Whether policies let one be displaced for another; whom nobody was asked about is proposed.
    fn lets_displace(&self, job: &Job, victim: &Job) -> bool {
        let no = self.answer(job).is_some_and(|answer| answer.victims.get(&victim.id) == Some(&false));
        let asked = policies::answer(self.state, Hook::Victims, &job.spec.tenant);
        urgency(self.state, job) <= urgency(self.state, victim) && !(asked && no)
    }

    /// Without the devices that are not in the pool a job names.
    fn in_pool(&self, job: &Job, id: &NodeId, space: &Space) -> Space {
        let mut space = space.clone();
        space.gpus.retain(|gpu, _| is_in_pool(self.state, job, id, *gpu));
        space.instances.retain(|(gpu, _)| is_in_pool(self.state, job, id, *gpu));
        self.affordable(job, id, &space)
    }

    /// Without the instances that quotas and limits per model do not leave to a task: what is left beyond the least that
    /// the gang takes is shared out evenly among its tasks that share.
    fn affordable(&self, job: &Job, id: &NodeId, space: &Space) -> Space {
        let mut space = space.clone();
        space.instances.retain(|(gpu, start)| self.is_affordable(job, id, *gpu, *start));
        space
    }

    fn is_affordable(&self, job: &Job, id: &NodeId, gpu: u8, start: u8) -> bool {
        let node = &self.state.nodes[id];
        // A machine may have come back as another one, cut otherwise or in a way that nobody knows.
        let known = usize::from(gpu) < node.facts.gpus.len()
            && check(&node.facts.gpus[usize::from(gpu)], gpu, node.instances(gpu)).is_ok();
        let one = node.instances(gpu).iter().find(|one| one.start == start).filter(|_| known);
        let Some(one) = one else { return false };
        let (milli, mib) = instance_holds(node, gpu, &one.profile);
        let shares = |group: &&TaskGroup| group.each.gpus > 0 && group.each.gpu_compute_milli < 1_000;
        let sharing: Vec<&TaskGroup> = job.spec.tasks.iter().filter(shares).collect();
        let tasks: u64 = sharing.iter().map(|group| u64::from(group.count)).sum();
        let (all, mut milli_left, mut mib_left) = (least_demand(self.state, job), u64::MAX, u64::MAX);
        let mut limit = |quota: &muster_core::tenant::Quota, held: Demand| {
            let left = quota.gpus.map_or(u64::MAX, |gpus| (gpus * 1_000).saturating_sub(held.gpu_milli));
            milli_left = milli_left.min(left);
            let left = quota.gpu_memory_mib.map_or(u64::MAX, |mib| mib.saturating_sub(held.gpu_memory_mib));
            mib_left = mib_left.min(left);
        };
        for tenant in self.state.lineage(&job.spec.tenant) {
            limit(&tenant.config.maximum, self.held(&tenant.id));
            limit(&tenant.config.maximum_per_user, self.held_by_user(job, tenant));
        }
        milli_left = milli_left.min(policies::milli_left(self.state, job, &self.more_held));
        for (used, most) in self.uses_of_model(job, node) {
            milli_left = milli_left.min((most * 1_000).saturating_sub(used));
        }
        let each: Vec<(u64, u64)> = sharing.iter().map(|of| least_of_task(self.state, &of.each)).collect();
        let more = milli_left.saturating_sub(all.gpu_milli) / tasks.max(1);
        let more_mib = mib_left.saturating_sub(all.gpu_memory_mib) / tasks.max(1);
        each.iter().any(|(least, least_mib)| {
            milli <= least.saturating_add(more) && mib <= least_mib.saturating_add(more_mib)
        })
    }

    /// What a tenant would hold, with all below it.
    fn held(&self, top: &TenantId) -> Demand {
        let more = self.more_held.iter().filter(|(job, _)| is_below(self.state, &job.spec.tenant, top));
        more.fold(held_below(self.state, top), |sum, (_, demand)| sum.plus(*demand))
    }

    /// The same without what is only waited for.
    fn runs(&self, top: &TenantId) -> Demand {
        let started = self.starts.iter().map(|(job, tasks)| (&self.state.jobs[job], tasks));
        let more = started.filter(|(job, _)| is_below(self.state, &job.spec.tenant, top));
        more.fold(held_below(self.state, top), |sum, (job, tasks)| sum.plus(demand_of(job, tasks)))
    }

    fn guarantor(&self, job: &Job) -> Option<&'a muster_core::Tenant> {
        guarantor(self.state, job, |tenant| self.held(tenant)).filter(|_| matches!(self.hastens, Haste::No))
    }

    /// The tenants that are guaranteed as much of a model as the job asks for beside what they would hold.
    fn model_guarantors(&self, job: &Job) -> Vec<(&'a TenantId, &'a str)> {
        if !matches!(self.hastens, Haste::No) {
            return Vec::new();
        }
        model_guarantors(self.state, job, |top, model| {
            let more = self.seats.iter().filter(|(job, _)| is_below(self.state, &job.spec.tenant, top));
            let more: u64 = more.map(|(_, tasks)| of_model(self.state, tasks, model)).sum();
            runs_on_model(self.state, top, model) + more
        })
    }

    fn is_guaranteed(&self, job: &Job) -> bool {
        self.guarantor(job).is_some() || !self.model_guarantors(job).is_empty()
    }

    /// Whether everyone keeps what they are guaranteed when a job goes after others for this one, or gives back what
    /// they owe.
    fn owes(&self, (victim, reclaimed): (&Job, bool), with: &[&Job], by: &Job) -> bool {
        let stopping = |job: &Job| job.attempt().is_some_and(|attempt| attempt.stopping.is_some());
        let goes = |job: &Job| {
            stopping(job)
                || self.displaced.contains(&job.id)
                || job.id == victim.id
                || with.iter().any(|other| other.id == job.id)
        };
        let gone = |tenant: &muster_core::Tenant| {
            let gone = self.state.jobs.values().filter(|job| job.attempt().is_some() && goes(job));
            let gone = gone.filter(|job| is_below(self.state, &job.spec.tenant, &tenant.id));
            gone.collect::<Vec<&Job>>()
        };
        let owes = |tenant: &muster_core::Tenant| {
            let gone = gone(tenant).iter().fold(Demand::default(), |sum, job| sum.plus(held_by(job)));
            gives_only_what_it_owes(tenant, self.runs(&tenant.id).less(gone), (victim, reclaimed))
        };
        let of = |job: &Job, model: &str| of_model(self.state, &job.attempt().unwrap().tasks, model);
        let owes_of = |tenant: &muster_core::Tenant, model: &str, guaranteed: u64| {
            let gone: u64 = gone(tenant).iter().map(|job| of(job, model)).sum();
            let started = self.starts.iter().map(|(job, tasks)| (&self.state.jobs[job], tasks));
            let started = started.filter(|(job, _)| is_below(self.state, &job.spec.tenant, &tenant.id));
            let started: u64 = started.map(|(_, tasks)| of_model(self.state, tasks, model)).sum();
            let left = runs_on_model(self.state, &tenant.id, model) + started - gone;
            gives_only_what_it_owes_of(guaranteed, left, (of(victim, model), reclaimed))
        };
        let (guarantor, by_model) = (self.guarantor(by), self.model_guarantors(by));
        let same = |one: &muster_core::Tenant| {
            guarantor.is_some_and(|by| is_below(self.state, &by.id, &one.id))
                || by_model.iter().any(|(by, _)| is_below(self.state, by, &one.id))
        };
        let same_of = |one: &muster_core::Tenant, model: &str| {
            by_model.iter().any(|(by, of)| *of == model && is_below(self.state, by, &one.id))
        };
        self.state.lineage(&victim.spec.tenant).all(|one| {
            let mut models = one.config.guaranteed_by_model.iter();
            (same(one) || owes(one)) && models.all(|(of, count)| same_of(one, of) || owes_of(one, of, *count))
        })
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
        let same = |other: &Job| other.spec.tenant == job.spec.tenant && other.spec.user == job.spec.user;
        let more = self.more_held.iter().filter(|(other, _)| same(other));
        let more: u64 = more.map(|(_, demand)| demand.gpu_milli).sum();
        let user = tenant.members.get(&job.spec.user).cloned().unwrap_or_default();
        let half_life = half_life(self.state, tenant);
        let recent = user.recent.micro_gpus(user.held.gpu_milli, self.now, half_life);
        let gpus: u64 = self.state.nodes.values().map(|node| node.facts.gpus.len() as u64).sum();
        let used =
            (millionths(user.held.gpu_milli + more, gpus * 1_000) + millionths(recent, gpus * 1_000_000)) / 2;
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
        let more = self.more_held.iter().filter(|(job, _)| below.contains(&&job.spec.tenant));
        let held = self.below(id).map(|tenant| tenant.held).chain(more.map(|(_, demand)| *demand));
        let held = held.fold(Demand::default(), Demand::plus);
        let late = |one: &muster_core::Tenant| {
            one.recent.micro_gpus(one.held.gpu_milli, self.now, half_life(self.state, one))
        };
        let recent: u64 = self.below(id).map(late).sum();
        let all = |of: fn(&Node) -> u64| self.state.nodes.values().map(of).sum::<u64>();
        let gpus = all(|node| node.facts.gpus.len() as u64);
        let now = [
            millionths(held.gpu_milli, gpus * 1_000),
            millionths(held.cpus, all(|node| u64::from(node.facts.cpus))),
            millionths(held.memory_mib, all(|node| node.facts.memory_mib)),
            millionths(
                held.milliwatts,
                all(|node| node.facts.gpus.iter().filter_map(|gpu| gpu.power_limit_milliwatts).sum()),
            ),
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
        let same = |other: &Job| other.id.number == job.id.number;
        let siblings = self.more_held.iter().filter(|(other, _)| same(other)).count() as u32;
        let array = self.state.arrays.get(&job.id.number);
        let full =
            array.is_some_and(|array| array.running_max.is_some_and(|max| array.active + siblings >= max));
        let affordable = is_within_budget(self.state, job, self.now);
        let admitted = policies::let_in(self.state, job);
        self.quota_admits(job, least_demand(self.state, job)) && affordable && !full && admitted
    }

    fn quota_admits(&self, job: &Job, more: Demand) -> bool {
        let room_in = |tenant: &muster_core::Tenant| {
            tenant.config.maximum.excess(self.held(&tenant.id).plus(more)).is_empty()
        };
        let user_has_room = |top: &muster_core::Tenant| self.user_has_room(job, top, more);
        self.state.lineage(&job.spec.tenant).all(room_in)
            && self.state.lineage(&job.spec.tenant).all(user_has_room)
            && policies::is_within_limits(self.state, job, more, &self.more_held)
    }

    /// Whether a tenant lets the user of a job hold so much more, in it and everywhere below.
    fn user_has_room(&self, job: &Job, top: &muster_core::Tenant, more: Demand) -> bool {
        top.config.maximum_per_user.excess(self.held_by_user(job, top).plus(more)).is_empty()
    }

    /// What the user of a job would hold in a tenant and everywhere below.
    fn held_by_user(&self, job: &Job, top: &muster_core::Tenant) -> Demand {
        let same = |other: &Job| {
            other.spec.user == job.spec.user && is_below(self.state, &other.spec.tenant, &top.id)
        };
        let planned = self.more_held.iter().filter(|(other, _)| same(other));
        let held = held_by_user(self.state, &top.id, &job.spec.user);
        planned.fold(held, |sum, (_, demand)| sum.plus(*demand))
    }

    /// Those who start take more tasks than they need, as many as fit in what is left over.
    fn grow(&mut self) {
        for place in 0..self.starts.len() {
            let job = &self.state.jobs[&self.starts[place].0];
            for group in 0..job.spec.tasks.len() {
                self.grow_group(place, job, group);
            }
        }
    }

    fn grow_group(&mut self, place: usize, job: &'a Job, group: usize) {
        let own: BTreeSet<NodeId> = self.starts[place].1.iter().map(|task| task.node.clone()).collect();
        let mut spaces = BTreeMap::new();
        for (id, free) in &self.free {
            let mut usable = free.clone();
            usable.gpus.retain(|gpu, _| !is_hot(&self.state.nodes[id], *gpu));
            usable.instances.retain(|(gpu, _)| !is_hot(&self.state.nodes[id], *gpu));
            let usable = self.not_reserved(id, &usable, outright(self.ending(job)), Some(&job.spec.tenant));
            let near = self.may_grow_on(job, &own, id);
            spaces.extend(usable.filter(|_| near).map(|usable| (id.clone(), (free.whole(), usable))));
        }
        let of = &job.spec.tasks[group];
        let more = (1..=of.count_max.unwrap_or(of.count) - of.count).rev().find_map(|more| {
            let mut further = job.clone();
            let mut spec = (*job.spec).clone();
            spec.tasks = vec![TaskGroup { count: more, ..of.clone() }];
            further.spec = std::sync::Arc::new(spec);
            let beside = own.iter().filter_map(|node| Some((node.clone(), Bench::new(&spaces.get(node)?.1))));
            let tasks = self.spread_beside(&further, &spaces, beside.collect())?;
            let milliwatts = milliwatts_of(self.state, &tasks);
            let demand = Demand { jobs: 0, milliwatts, ..demand_of(&further, &tasks) };
            self.quota_admits(job, demand).then_some((demand, tasks))
        });
        let Some((demand, tasks)) = more else { return };
        let ending = self.ending(job);
        for task in tasks {
            let task = PlacedTask { group: group as u32, ..task };
            self.take(job, &task, ending);
            self.starts[place].1.push(task);
        }
        let state = self.state;
        self.starts[place].1.sort_by_key(|task| {
            (task.group, standing(state, &task.node), task.node.clone(), task.gpus.clone())
        });
        (0..).zip(&mut self.starts[place].1).for_each(|(rank, task)| task.rank = rank);
        self.more_held.push((job, demand));
    }

    /// Whether an elastic gang that sits on some nodes may have more tasks on another.
    fn may_grow_on(&self, job: &Job, own: &BTreeSet<NodeId>, id: &NodeId) -> bool {
        let rack = |node: &NodeId| self.state.nodes[node].facts.rack.clone();
        let same_rack = rack(id).is_some() && own.iter().all(|own| rack(own) == rack(id));
        match job.spec.topology {
            _ if demands_closeness(job) => false,
            Topology::SameRack => own.contains(id) || same_rack,
            _ => true,
        }
    }

    /// Where it fits best; on hot devices only if there is no other way.
    fn start(&mut self, job: &'a Job) -> bool {
        for spare_hot in [true, false] {
            let mut spaces = BTreeMap::new();
            for (id, free) in &self.free {
                let mut usable = free.clone();
                if spare_hot {
                    usable.gpus.retain(|gpu, _| !is_hot(&self.state.nodes[id], *gpu));
                    usable.instances.retain(|(gpu, _)| !is_hot(&self.state.nodes[id], *gpu));
                }
                let usable = self.not_reserved(id, &usable, self.ending(job), Some(&job.spec.tenant));
                spaces.extend(usable.map(|usable| (id.clone(), (free.whole(), usable))));
            }
            if let Some(tasks) = self.best_place(job, &spaces) {
                self.start_on(job, tasks);
                return true;
            }
        }
        false
    }

    /// On the node on which it costs least, then by name; else on several. All nodes and all seats are tried.
    fn best_place(&self, job: &Job, spaces: &Spaces) -> Option<Vec<PlacedTask>> {
        let mut found = Vec::new();
        for (id, (_, space)) in spaces {
            for tasks in self.all_fits(job, id, space) {
                found.push((self.cost(job, id, &tasks), id, tasks));
            }
        }
        // The first of several that are equally good.
        let on_one = found.into_iter().min_by_key(|(cost, id, _)| (*cost, *id)).map(|(_, _, tasks)| tasks);
        on_one.or_else(|| self.spread(job, spaces))
    }

    /// Every way to seat a gang on a node, the usual one first, and those first that spare devices in doubt.
    fn all_fits(&self, job: &Job, id: &NodeId, space: &Space) -> Vec<Vec<PlacedTask>> {
        let node = &self.state.nodes[id];
        let warm = |gpu: &u8| node.gpu_health[usize::from(*gpu)].word == GpuWord::Warning;
        let touched: BTreeSet<u8> =
            space.gpus.keys().copied().chain(space.instances.iter().map(|(gpu, _)| *gpu)).collect();
        let warm: Vec<u8> = touched.into_iter().filter(warm).collect();
        let sets = (0..1u32 << warm.len()).rev();
        let sets = sets.filter(|set| warm.len() <= 4 || *set == 0 || *set + 1 == 1 << warm.len());
        let mut found = Vec::new();
        for set in sets {
            let spared =
                |gpu: &u8| warm.iter().position(|one| one == gpu).is_some_and(|at| set >> at & 1 == 1);
            let mut space = space.clone();
            space.gpus.retain(|gpu, _| !spared(gpu));
            space.instances.retain(|(gpu, _)| !spared(gpu));
            if let Some(usual) = self.fit(job, id, &space) {
                if !is_single_share(job) {
                    found.push(usual);
                }
                found.extend(every_way(job, node, &self.in_pool(job, id, &space)));
            }
        }
        found
    }

    fn cost(&self, job: &Job, id: &NodeId, tasks: &[PlacedTask]) -> Cost {
        let (node, now_free) = (&self.state.nodes[id], &self.free[id]);
        let compute = (0..node.facts.gpus.len()).map(|gpu| now_free.of(gpu as u8).0).collect();
        let placement = Placement {
            state: self.state,
            node,
            job,
            tasks,
            before: free(now_free),
            free: FreeDevices { compute, instances: now_free.instances.clone() },
            untouched: free(now_free) == free(&free_on(node)),
            said: self.advice.said(&self.state.bucket(job), id, &Kind::of(node)),
            rules: &rules(self.state),
        };
        placement.cost()
    }

    /// On as few nodes as possible: those that take the most, and the last tasks on the fullest that takes them all.
    fn spread(&self, job: &Job, spaces: &Spaces) -> Option<Vec<PlacedTask>> {
        if !may_span(job) {
            return None;
        }
        let facts = |node: &NodeId| &self.state.nodes[node].facts;
        let mut racks: BTreeMap<(Option<String>, String), Spaces> = BTreeMap::new();
        let mut blocks: BTreeMap<String, Spaces> = BTreeMap::new();
        for (node, space) in spaces {
            let (block, Some(rack)) = (facts(node).block.clone(), facts(node).rack.clone()) else { continue };
            racks.entry((block.clone(), rack)).or_default().insert(node.clone(), space.clone());
            let block = block.map(|block| blocks.entry(block).or_default());
            block.into_iter().for_each(|block| drop(block.insert(node.clone(), space.clone())));
        }
        let within = |rooms: Vec<Spaces>| {
            let free = |room: &Spaces| room.values().map(|(count, _)| count).sum::<usize>();
            let mut rooms = rooms;
            rooms.sort_by_key(free);
            rooms.into_iter().find_map(|room| self.spread_beside(job, &room, BTreeMap::new()))
        };
        let in_a_rack = within(racks.into_values().collect());
        if job.spec.topology == Topology::SameRack {
            return in_a_rack;
        }
        let in_a_block = || within(blocks.into_values().collect());
        in_a_rack.or_else(in_a_block).or_else(|| self.spread_beside(job, spaces, BTreeMap::new()))
    }

    /// The same where others of the gang may sit already.
    fn spread_beside(
        &self,
        job: &Job,
        spaces: &Spaces,
        mut hall: BTreeMap<NodeId, Bench>,
    ) -> Option<Vec<PlacedTask>> {
        for group in by_size(job) {
            let mut left = job.spec.tasks[group].count;
            let used: Vec<NodeId> = hall.keys().cloned().collect();
            for node in used {
                let bench = hall.get_mut(&node).unwrap();
                while left > 0 && self.sit(job, group, &node, bench) {
                    left -= 1;
                }
            }
            while left > 0 {
                let fresh = spaces.iter().filter(|(node, _)| !hall.contains_key(*node));
                let rooms: Vec<(u32, usize, &NodeId)> = fresh
                    .map(|(node, (count, space))| (self.room(job, group, node, space), *count, node))
                    .collect();
                let most = rooms.iter().map(|(room, _, _)| *room).max().filter(|most| *most > 0)?;
                let would_do = |room: u32| if left <= most { room >= left } else { room == most };
                let best = rooms
                    .iter()
                    .filter(|(room, _, _)| would_do(*room))
                    .min_by_key(|(_, count, node)| (*count, *node));
                let node = best.map(|(_, _, node)| (*node).clone()).unwrap();
                let bench = hall.entry(node.clone()).or_insert(Bench::new(&spaces[&node].1));
                for _ in 0..most.min(left) {
                    assert!(self.sit(job, group, &node, bench));
                    left -= 1;
                }
            }
        }
        Some(ranks(self.state, job, &hall))
    }

    /// Seat one task, if it fits.
    fn sit(&self, job: &Job, group: usize, id: &NodeId, bench: &mut Bench) -> bool {
        let node = &self.state.nodes[id];
        let mut one = job.clone();
        let mut spec = (*job.spec).clone();
        spec.tasks = vec![TaskGroup { count: 1, ..spec.tasks[group].clone() }];
        one.spec = std::sync::Arc::new(spec);
        let left = self.affordable(job, id, &bench.left);
        let Some(seats) = fit(&one, node, &left).filter(|_| self.model_allows(job, node)) else {
            return false;
        };
        bench.left.take(&seats[0].space(&one.spec.tasks[0].each));
        bench.tasks.push((group, seats[0].clone()));
        true
    }

    fn room(&self, job: &Job, group: usize, id: &NodeId, space: &Space) -> u32 {
        let mut bench = Bench::new(space);
        (0..job.spec.tasks[group].count).take_while(|_| self.sit(job, group, id, &mut bench)).count() as u32
    }

    fn start_on(&mut self, job: &'a Job, tasks: Vec<PlacedTask>) {
        let ending = self.ending(job);
        let is_free = |(node, taken): (&NodeId, &Space)| {
            let usable = self.not_reserved(node, &self.free[node], outright(ending), Some(&job.spec.tenant));
            usable.is_some_and(|usable| usable.holds(taken))
        };
        if ending.1 == Word::Loan && !by_node(job, &tasks).iter().all(is_free) {
            self.lent.insert(job.id);
        }
        tasks.iter().for_each(|task| self.take(job, task, ending));
        self.hold(job, &tasks);
        self.starts.push((job.id, tasks));
    }

    /// What a gang takes in a place counts as held.
    fn hold(&mut self, job: &'a Job, tasks: &[PlacedTask]) {
        let milliwatts = milliwatts_of(self.state, tasks);
        self.more_held.push((job, Demand { milliwatts, ..demand_of(job, tasks) }));
        self.seats.push((job, tasks.to_vec()));
    }

    fn take(&mut self, job: &'a Job, task: &PlacedTask, ending: Over) {
        let taken = of_task(job, task);
        self.free.get_mut(&task.node).unwrap().take(&taken);
        self.devices.push((&job.spec.tenant, task.clone()));
        for booked in self.booked.iter_mut().filter(|booked| booked.is_delayed_by(ending)) {
            booked.spare.entry(task.node.clone()).and_modify(|spare| spare.take(&taken));
        }
    }

    /// The whole gang on a node, if there is room and no limit per model is in the way.
    fn fit(&self, job: &Job, id: &NodeId, space: &Space) -> Option<Vec<PlacedTask>> {
        let (node, space) = (&self.state.nodes[id], &self.in_pool(job, id, space));
        let seats = fit(job, node, space).filter(|_| self.model_allows(job, node))?;
        let groups =
            job.spec.tasks.iter().zip(0..).flat_map(|(group, index)| vec![index; group.count as usize]);
        let task = |((rank, group), seat): (_, Seat)| seat.placed(rank, group, id);
        Some((0..).zip(groups).zip(seats).map(task).collect())
    }

    /// Nodes of a story have one model each, so a gang takes it or nothing.
    fn model_allows(&self, job: &Job, node: &Node) -> bool {
        let Some(here) = node.facts.gpus.first().map(|gpu| gpu.model.as_str()) else { return true };
        let more = self.most_milli(job, node);
        let wishes = job.spec.tasks.iter().filter(|group| group.each.gpus > 0);
        let wanted = |group: &TaskGroup| {
            let models = &group.each.gpu_models;
            models.is_empty() || models.iter().any(|wish| model::matches(wish, here))
        };
        // What the gang takes elsewhere counts as if it were taken here, where anything of it could be.
        let gpus = 0..node.facts.gpus.len() as u8;
        let there = gpus.filter(|gpu| is_in_pool(self.state, job, &node.id, *gpu)).count() as u64;
        let more = match (wishes.into_iter().any(wanted), may_span(job)) {
            (false, _) => 0,
            (true, true) => more,
            (true, false) => more.min(there * 1_000),
        };
        self.uses_of_model(job, node)
            .into_iter()
            .all(|(used, limit)| more == 0 || used + more <= limit * 1_000)
    }

    /// The most that a gang holds on nodes like one, if each task has the largest instance there that it may.
    fn most_milli(&self, job: &Job, node: &Node) -> u64 {
        let mut sum = 0;
        for group in &job.spec.tasks {
            let each = &group.each;
            let mut most = least_of_task(self.state, each).0;
            let known = |gpu: u8| check(&node.facts.gpus[usize::from(gpu)], gpu, node.instances(gpu)).is_ok();
            for gpu in (0..node.facts.gpus.len() as u8).filter(|gpu| known(*gpu)) {
                for one in node.instances(gpu) {
                    let mut left = Space::default();
                    left.instances.insert((gpu, one.start));
                    let shares = each.gpus > 0 && each.gpu_compute_milli < 1_000;
                    let left = self.in_pool(job, &node.id, &left);
                    if shares && !instances(each, node, &left).is_empty() {
                        most = most.max(instance_holds(node, gpu, &one.profile).0);
                    }
                }
            }
            sum += u64::from(group.count) * most;
        }
        sum
    }

    /// What the tenant of a job, and those above it, would hold of the model of a node where that is limited, and how
    /// much of it they may.
    fn uses_of_model(&self, job: &Job, node: &Node) -> Vec<(u64, u64)> {
        let Some(here) = node.facts.gpus.first().map(|gpu| gpu.model.as_str()) else { return Vec::new() };
        let mut found = Vec::new();
        for tenant in self.state.lineage(&job.spec.tenant) {
            let below = |id: &TenantId| is_below(self.state, id, &tenant.id);
            let held = self.state.jobs.values().filter(|job| below(&job.spec.tenant));
            let held = held.filter_map(Job::attempt).flat_map(|attempt| &attempt.tasks);
            let planned = self.devices.iter().filter(|(owner, _)| below(owner)).map(|(_, task)| task);
            let tasks: Vec<&PlacedTask> = held.chain(planned).collect();
            let limits = tenant.config.maximum_by_model.iter();
            for (limited, limit) in limits.filter(|(limited, _)| model::matches(limited, here)) {
                let is_model = |node: &NodeId| {
                    let first = self.state.nodes[node].facts.gpus.first();
                    first.is_some_and(|gpu| model::matches(limited, &gpu.model))
                };
                let used = tasks.iter().filter(|task| is_model(&task.node));
                found.push((used.map(|task| task.gpu_milli()).sum(), *limit));
            }
        }
        found
    }

    fn count_leaving(&mut self) {
        for job in self.state.jobs.values() {
            let Some(attempt) = job.attempt() else { continue };
            let trusted = |stopping: &muster_core::job::Stopping| {
                self.now.since(stopping.since) <= stopping.grace_ms + MINUTE
            };
            if attempt.stopping.as_ref().is_some_and(trusted) {
                for task in &attempt.tasks {
                    self.leaving.entry(task.node.clone()).or_default().add(&of_task(job, task));
                }
            }
        }
    }

    fn hold_claims(&mut self) {
        let (state, now) = (self.state, self.now);
        for (id, claim) in &self.state.claims {
            let job = &self.state.jobs[id];
            for (node, all) in by_node(job, &claim.tasks) {
                let coming = self.coming(claim, &node);
                if let Some(leaving) = self.leaving.get_mut(&node) {
                    leaving.take(&all.promised_of(&coming));
                }
                if let Some(free) = self.free.get_mut(&node) {
                    free.take(&still_needed(&coming, &all));
                }
                self.owed.entry(node).or_default().add(&all.promised_of(&coming));
            }
            let works = |task: &PlacedTask| {
                let node = &self.state.nodes[&task.node];
                node.takes_work() && task.gpus.iter().all(|gpu| node.gpu_usable(usize::from(*gpu)))
            };
            let end = job.spec.time_limit_ms.map(|limit| now.plus(limit + state.settings.stop_grace_ms));
            let booked = |task: &PlacedTask| {
                let mut against = self.windows_against(Some(&job.spec.tenant));
                against.any(|window| {
                    window.nodes.contains(&task.node)
                        && now < window.until
                        && end.is_none_or(|end| end > window.from)
                })
            };
            if is_ready(job) && claim.tasks.iter().all(|task| works(task) && !booked(task)) {
                self.claimants.insert(*id);
            }
        }
    }

    fn coming(&self, claim: &Claim, node: &NodeId) -> Space {
        let mut coming = Space::default();
        for victim in claim.victims.iter().filter_map(|victim| self.state.jobs.get(victim)) {
            let stopping = victim.attempt().filter(|attempt| attempt.stopping.is_some());
            let tasks = stopping.into_iter().flat_map(|attempt| &attempt.tasks);
            tasks.filter(|task| task.node == *node).for_each(|task| coming.add(&of_task(victim, task)));
        }
        coming
    }

    fn start_claimants(&mut self) {
        let mut waiting = Vec::new();
        for id in self.claimants.clone() {
            let (job, claim) = (&self.state.jobs[&id], &self.state.claims[&id]);
            let own: BTreeMap<NodeId, Space> = by_node(job, &claim.tasks)
                .into_keys()
                .map(|node| (node.clone(), self.free_but_for_others(id, &node)))
                .collect();
            let fits_exactly = by_node(job, &claim.tasks).iter().all(|(node, space)| own[node].holds(space));
            let would_do = |task: &PlacedTask| {
                let node = &self.state.nodes[&task.node];
                let each = &job.spec.tasks[task.group as usize].each;
                let fits = |gpu: &u8| would_do(each, node, *gpu) && is_told(each, node, *gpu, task);
                task.gpus.iter().all(fits) && self.model_allows(job, node)
            };
            let first = &claim.tasks[0].node;
            let elsewhere = || if own.len() == 1 { self.fit(job, first, &own[first]) } else { None };
            let exactly = (fits_exactly && claim.tasks.iter().all(would_do)).then(|| claim.tasks.clone());
            match exactly.or_else(elsewhere).filter(|_| self.admits(job)) {
                Some(tasks) => {
                    own.into_iter().for_each(|(node, space)| drop(self.free.insert(node, space)));
                    self.start_on(job, tasks);
                }
                None => waiting.push(job),
            }
        }
        waiting.into_iter().for_each(|job| self.hold(job, &self.state.claims[&job.id].tasks));
    }

    /// What is free on a node for one who has a claim there: its own claim is, those of others, and what was started
    /// there, are not.
    fn free_but_for_others(&self, id: JobId, node: &NodeId) -> Space {
        let mut own = free_on(&self.state.nodes[node]);
        for (job, tasks) in &self.starts {
            let job = &self.state.jobs[job];
            tasks.iter().filter(|task| task.node == *node).for_each(|task| own.take(&of_task(job, task)));
        }
        for (other, theirs) in self.state.claims.iter().filter(|(other, _)| **other != id) {
            if self.starts.iter().any(|(started, _)| started == other) {
                continue;
            }
            if let Some(all) = by_node(&self.state.jobs[other], &theirs.tasks).get(node) {
                own.take(&still_needed(&self.coming(theirs, node), all));
            }
        }
        own
    }

    fn may_preempt(&self, job: &Job) -> bool {
        self.state.settings.preemption
            && self.state.tenants[&job.spec.tenant].config.may_preempt
            && !self.state.claims.contains_key(&job.id)
    }

    fn preempt(&mut self, job: &'a Job) -> bool {
        let open = |victim: &Job| {
            let nodes = victim.attempt().into_iter().flat_map(Attempt::nodes);
            nodes.into_iter().any(|node| self.state.nodes[&node].takes_work())
        };
        let there = || self.state.jobs.values().filter(|victim| self.may_go(victim) && open(victim));
        let weaker = there().any(|victim| victim.spec.priority < self.displaces_with(job))
            && there().any(|victim| self.effective_at_start(victim) < self.effective(job));
        let passed = there().any(|victim| self.overstays(victim, job));
        self.may_preempt(job)
            && (weaker || passed || self.is_guaranteed(job))
            && (self.wait_for_leaving(job) || self.displace(job))
    }

    fn may_go(&self, victim: &Job) -> bool {
        let config = &self.state.tenants[&victim.spec.tenant].config;
        victim.attempt().is_some_and(|attempt| {
            let ran = self.now.since(attempt.placed_at);
            attempt.stopping.is_none()
                && ran >= self.state.settings.preemption_min_runtime_ms
                && (victim.preemptions == 0 || ran >= self.state.settings.preemption_cooldown_ms)
        }) && config.may_be_preempted
            && config.preemptions_per_job_max.is_none_or(|max| victim.preemptions < max)
            && !is_spared(self.state, victim)
    }

    fn wait_for_leaving(&mut self, job: &'a Job) -> bool {
        let later: Spaces = self
            .free
            .iter()
            .filter_map(|(id, free)| match self.leaving.get(id) {
                Some(leaving) => {
                    let node = &self.state.nodes[id];
                    let later = free.plus(&usable(node, leaving)).less_overdrawn(node);
                    let later = self.not_reserved(id, &later, NEVER, None)?;
                    Some((id.clone(), (later.whole(), later)))
                }
                None => Some((id.clone(), (free.whole(), self.not_reserved(id, free, NEVER, None)?))),
            })
            .collect();
        let mut where_some_leave = later.iter().filter(|(id, _)| self.leaving.contains_key(*id));
        let on_one = where_some_leave.find_map(|(id, (_, space))| self.fit(job, id, space));
        let across = || if self.leaving.is_empty() { None } else { self.spread(job, &later) };
        let Some(tasks) = on_one.or_else(across) else { return false };
        for (id, taken) in by_node(job, &tasks) {
            let leaving = self.leaving.get(&id).cloned().unwrap_or_default();
            if let Some(leaving) = self.leaving.get_mut(&id) {
                leaving.take(&taken);
            }
            self.owed.entry(id.clone()).or_default().add(&taken.shared_with(&leaving));
            self.free.get_mut(&id).unwrap().take(&still_needed(&leaving, &taken));
        }
        self.hold(job, &tasks);
        true
    }

    fn displace(&mut self, job: &'a Job) -> bool {
        let Some((victims, tasks)) = self.whom_to_displace(job) else { return false };
        self.make_room(job, victims, tasks);
        true
    }

    /// Who must go with the least loss, and where the job sits then.
    fn whom_to_displace(&self, job: &'a Job) -> Option<(Vec<&'a Job>, Vec<PlacedTask>)> {
        let offers = self.free.keys().filter_map(|node| {
            let (victims, tasks) = self.victims_on(job, node)?;
            let lost: u64 = victims.iter().map(|victim| self.price(victim)).sum();
            Some((lost, victims.len(), node.clone(), victims, tasks))
        });
        let best = offers.min_by(|a, b| (a.0, a.1, &a.2).cmp(&(b.0, b.1, &b.2)));
        let on_one = best.map(|(_, _, _, victims, tasks)| (victims, tasks));
        on_one.or_else(|| Clearing::of(self, job))
    }

    fn make_room(&mut self, job: &'a Job, victims: Vec<&'a Job>, tasks: Vec<PlacedTask>) {
        let mut freed: BTreeMap<NodeId, Space> = BTreeMap::new();
        for victim in &victims {
            for task in &victim.attempt().unwrap().tasks {
                freed.entry(task.node.clone()).or_default().add(&of_task(victim, task));
            }
        }
        self.devices.extend(tasks.iter().map(|task| (&job.spec.tenant, task.clone())));
        for (node, taken) in by_node(job, &tasks) {
            let coming = freed.get(&node).cloned().unwrap_or_default();
            self.free.get_mut(&node).unwrap().take(&still_needed(&coming, &taken));
            self.owed.entry(node.clone()).or_default().add(&taken.shared_with(&coming));
            freed.entry(node.clone()).or_default().take(&taken);
        }
        for (node, rest) in freed {
            self.leaving.entry(node).or_default().add(&rest);
        }
        self.displaced.extend(victims.iter().map(|victim| victim.id));
        self.hold(job, &tasks);
        self.claims.push((job.id, tasks, victims.iter().map(|victim| victim.id).collect()));
    }

    /// Those on a node who may go at all, in order of their loss.
    fn candidates(&self, node: &NodeId) -> Vec<&'a Job> {
        let mut found: Vec<&Job> =
            self.state.nodes[node].jobs.iter().map(|job| &self.state.jobs[job]).collect();
        found.retain(|victim| self.may_go(victim) && !self.displaced.contains(&victim.id));
        found.sort_by_key(|victim| (self.price(victim), victim.spec.priority, victim.id));
        found
    }

    /// What is free on a node once these have gone.
    fn after(&self, id: &NodeId, victims: &[&Job]) -> Option<Space> {
        self.after_for(None, id, victims)
    }

    /// The same for one whose own place in the future is no obstacle.
    fn after_for(&self, own: Option<JobId>, id: &NodeId, victims: &[&Job]) -> Option<Space> {
        let node = &self.state.nodes[id];
        let mut space = self.free[id].clone();
        for victim in victims {
            let tasks = victim.attempt().unwrap().tasks.iter();
            tasks
                .filter(|task| task.node == *id)
                .for_each(|task| space.add(&usable(node, &of_task(victim, task))));
        }
        if !victims.is_empty() {
            space = space.less_overdrawn(node).less(&self.missing_for_claims(id));
        }
        let until = match self.hastens {
            Haste::Gently(job) => (self.ending(job), Some(&job.spec.tenant)),
            _ => (NEVER, None),
        };
        self.not_reserved_but_for(own, id, &space, until)
    }

    /// Cores and memory that claims on a node need and nobody has free for them.
    fn missing_for_claims(&self, id: &NodeId) -> Space {
        let mut missing = Space::default();
        for (job, claim) in &self.state.claims {
            if let Some(all) = by_node(&self.state.jobs[job], &claim.tasks).get(id) {
                missing.add(&still_needed(&self.coming(claim, id), all));
            }
        }
        missing.take(&free_on(&self.state.nodes[id]));
        Space { gpus: BTreeMap::new(), instances: BTreeSet::new(), ..missing }
    }

    fn victims_on(&self, job: &Job, id: &NodeId) -> Option<(Vec<&'a Job>, Vec<PlacedTask>)> {
        let weaker = self.displaceable(job, self.candidates(id), &[]);
        let fit = |victims: &[&Job]| self.fit(job, id, &self.after(id, victims)?);
        let victims = least(weaker, |victims| fit(victims).is_some())?;
        let tasks = fit(&victims)?;
        Some((victims, tasks))
    }

    /// Who may go for the job: the weaker, and those on borrowed space for one within a guarantee.
    fn displaceable(&self, job: &Job, candidates: Vec<&'a Job>, gone: &[&'a Job]) -> Vec<&'a Job> {
        let (guarantor, by_model) = (self.guarantor(job), self.model_guarantors(job));
        let mut found: Vec<&Job> = Vec::new();
        for victim in candidates {
            if !self.lets_displace(job, victim) {
                continue;
            }
            let outranked = victim.spec.priority < self.displaces_with(job)
                && self.effective_at_start(victim) < self.effective(job);
            let goes = outranked || self.overstays(victim, job);
            let weaker = if matches!(self.hastens, Haste::No) { goes } else { self.gives_way(victim, job) };
            let elsewhere = |by: &TenantId| !is_below(self.state, &victim.spec.tenant, by);
            let on_model = |model| of_model(self.state, &victim.attempt().unwrap().tasks, model) > 0;
            let foreign = guarantor.is_some_and(|by| elsewhere(&by.id))
                || by_model.iter().any(|(by, model)| elsewhere(by) && on_model(model));
            let with = [gone, &found].concat();
            let bearable = self.is_bearable(victim, &with);
            if (weaker || foreign) && bearable && self.owes((victim, foreign), &with, job) {
                found.push(victim);
            }
        }
        found
    }

    /// Whether no tenant loses more work than it lets others destroy in a day.
    fn is_bearable(&self, victim: &Job, with: &[&Job]) -> bool {
        self.state.lineage(&victim.spec.tenant).all(|tenant| {
            let Some(per_day) = tenant.config.damage_gpu_ms_per_day else { return true };
            let displaced = self.displaced.iter().map(|job| &self.state.jobs[job]);
            let gone = displaced.chain(with.iter().copied()).chain([victim]);
            let gone = gone.filter(|job| is_below(self.state, &job.spec.tenant, &tenant.id));
            let lost: u64 = gone.map(|job| self.lost(job)).sum();
            tenant.damage.gpu_ms(per_day, self.now) + lost <= per_day
        })
    }

    fn effective_at_start(&self, victim: &Job) -> i64 {
        victim.attempt().unwrap().effective.unwrap_or(i64::from(victim.spec.priority))
    }

    fn lost(&self, victim: &Job) -> u64 {
        let attempt = victim.attempt().unwrap();
        let every = victim.spec.checkpoint.as_ref().and_then(|rule| rule.every_ms);
        let by_the_clock = attempt.started_at.zip(every).map(|(started, every)| {
            let mut last = started;
            while last.plus(every) <= self.now {
                last = last.plus(every);
            }
            last
        });
        let saved = attempt.saved_at.or(by_the_clock).unwrap_or(attempt.placed_at);
        self.now.since(saved) as u64 * held_by(victim).gpu_milli / 1_000
    }

    /// When a job would be over if it started now, and how much that can be relied on.
    fn ending(&self, job: &Job) -> Over {
        let settings = &self.state.settings;
        let member = self.state.tenants[&job.spec.tenant].members.get(&job.spec.user);
        let known = member.and_then(|member| member.lasted.usual_and_longest());
        let expected = known.map_or(settings.default_runtime_ms, |(_, longest)| longest);
        let lasts = job.spec.time_limit_ms.map_or(expected, rounded);
        let word = match job.spec.time_limit_ms {
            Some(_) => Word::Bound,
            None if self.may_borrow(job) => Word::Loan,
            None => Word::Estimate,
        };
        (self.now.plus(lasts + settings.stop_grace_ms), word, self.yields(job))
    }

    /// Whether a job that starts now gives way to whoever is worth more.
    fn yields(&self, job: &Job) -> bool {
        let config = &self.state.tenants[&job.spec.tenant].config;
        self.is_fast()
            && self.state.settings.preemption
            && config.may_be_preempted
            && config.preemptions_per_job_max.is_none()
            && job.spec.checkpoint.is_some()
            && self.now.since(job.submitted_at) <= self.state.settings.max_wait_ms
    }

    /// Whether a job can be asked to leave space that it has on loan.
    fn may_borrow(&self, job: &Job) -> bool {
        let config = &self.state.tenants[&job.spec.tenant].config;
        let mut above = self.state.lineage(&job.spec.tenant);
        self.state.settings.preemption
            && config.may_be_preempted
            && config.preemptions_per_job_max != Some(0)
            && job.preemptions == 0
            && above.all(|tenant| tenant.config.damage_gpu_ms_per_day.is_none())
    }

    /// Whether a running job has space on loan, should be gone, and has passed another.
    fn overstays(&self, victim: &Job, passed: &Job) -> bool {
        let attempt = victim.attempt().unwrap();
        let end = match victim.spec.time_limit_ms {
            Some(limit) => attempt.started_at.unwrap_or(attempt.placed_at).plus(limit),
            None => attempt.placed_at.plus(attempt.expected_ms.unwrap_or(HOUR)),
        };
        let muster_core::job::Phase::Queued { since, .. } = passed.phase else { return false };
        attempt.lent && attempt.stopping.is_none() && end <= self.now && since <= attempt.placed_at
    }

    /// Windows that a tenant may not use.
    fn windows_against<'s>(&'s self, tenant: Option<&'s TenantId>) -> impl Iterator<Item = &'s Window> {
        let theirs = move |window: &Window| {
            let top = window.tenant.as_ref().zip(tenant);
            top.is_some_and(|(top, tenant)| is_below(self.state, tenant, top))
        };
        self.state.windows.values().filter(move |window| !theirs(window))
    }

    /// What of some space on a node nobody needs before `ending` who comes first.
    fn not_reserved(
        &self,
        node: &NodeId,
        space: &Space,
        ending: Over,
        tenant: Option<&TenantId>,
    ) -> Option<Space> {
        self.not_reserved_but_for(None, node, space, (ending, tenant))
    }

    fn not_reserved_but_for(
        &self,
        own: Option<JobId>,
        node: &NodeId,
        space: &Space,
        (ending, tenant): (Over, Option<&TenantId>),
    ) -> Option<Space> {
        let mut usable = space.clone();
        let (at, word, _) = ending;
        let closed =
            |window: &Window| window.nodes.contains(node) && (at > window.from || word != Word::Bound);
        if self.windows_against(tenant).any(closed) {
            return None;
        }
        let others = self.booked.iter().filter(|booked| Some(booked.job) != own);
        for booked in others.filter(|booked| booked.is_delayed_by(ending)) {
            let (Some(taken), Some(spare)) = (booked.taken.get(node), booked.spare.get(node)) else {
                continue;
            };
            for gpu in taken.gpus.keys() {
                let (now, then) = (usable.of(*gpu), spare.of(*gpu));
                usable.set(*gpu, (now.0.min(then.0), now.1.min(then.1)));
            }
            usable.instances.retain(|one| {
                let apart = taken.instances.iter().any(|(gpu, _)| *gpu == one.0);
                !apart || spare.instances.contains(one)
            });
            usable.cpus = usable.cpus.min(spare.cpus);
            usable.memory_mib = usable.memory_mib.min(spare.memory_mib);
        }
        Some(usable)
    }

    /// The earliest moment at which the gang fits, moment by moment.
    fn earliest_place(&mut self, job: &Job) -> Option<Booked> {
        let nodes: BTreeSet<&NodeId> = self.booked.iter().flat_map(|booked| booked.taken.keys()).collect();
        let one_in = self.state.settings.reserve_one_node_in as usize;
        let enough = one_in > 1 && nodes.len() >= self.state.nodes.len().div_ceil(one_in);
        let shape = Shape::of(&job.spec);
        let feasible = self.state.capacity.could_ever_hold(&shape);
        // Limits per model may leave no kind of node at all, and then it is not room that it waits for.
        let holds_some = |node: &Node| {
            let kind = Kind::of(node);
            let spans =
                may_span(job) && job.spec.tasks.iter().any(|of| kind.could_hold_tasks(&shape, &of.each) > 0);
            (kind.could_hold(&shape) || spans) && self.model_allows(job, node)
        };
        let feasible = feasible && self.state.nodes.values().any(holds_some);
        if !feasible || enough || self.searches >= self.state.settings.reservations {
            return None;
        }
        self.searches += 1;
        let lasts = self.ending(job).0.since(self.now);
        let mut freed: BTreeMap<NodeId, Space> = BTreeMap::new();
        let mut owed = self.owed.clone();
        for (at, released, touched) in self.moments(job) {
            for (node, mut space) in released {
                let theirs = owed.entry(node.clone()).or_default();
                let before = theirs.clone();
                theirs.take(&space);
                // A whole device is owed until its time has come.
                before.gpus.iter().filter(|(_, part)| **part == WHOLE).for_each(|(gpu, part)| {
                    theirs.set(*gpu, *part);
                });
                theirs.instances = before.instances.clone();
                space.take(&before);
                freed.entry(node).or_default().add(&space);
            }
            let spaces: Spaces = self
                .free
                .keys()
                .filter(|node| !self.is_booked(job, node, at, at.plus(lasts)))
                .map(|node| {
                    let space = self.space_at(node, freed.get(node), at, at.plus(lasts));
                    (node.clone(), (space.whole(), space))
                })
                .collect();
            let there = |node: &&NodeId| spaces.contains_key(*node);
            let mut touched = touched.iter().filter(there);
            let on_one = touched.find_map(|node| self.fit(job, node, &spaces[node].1));
            if let Some(tasks) = on_one.or_else(|| self.spread(job, &spaces)) {
                let taken = by_node(job, &tasks);
                return Some(Booked {
                    job: job.id,
                    at,
                    until: at.plus(lasts),
                    strict: self.is_overdue(job) || !self.may_preempt(job),
                    spare: taken
                        .iter()
                        .map(|(node, taken)| (node.clone(), spaces[node].1.less(taken)))
                        .collect(),
                    taken,
                });
            }
        }
        None
    }

    /// All moments at which space comes free, with the space and the nodes that change.
    fn moments(&self, waits: &Job) -> Vec<(Timestamp, BTreeMap<NodeId, Space>, Vec<NodeId>)> {
        let grace = self.state.settings.stop_grace_ms;
        let mut moments: Vec<(When, BTreeMap<NodeId, Space>)> = Vec::new();
        for job in self.state.jobs.values() {
            let Some(attempt) = job.attempt() else { continue };
            let end = match (&attempt.stopping, job.spec.time_limit_ms) {
                (Some(stopping), _) => stopping.since,
                (None, Some(limit)) => attempt.started_at.unwrap_or(attempt.placed_at).plus(limit),
                (None, None) => attempt.placed_at.plus(attempt.expected_ms.unwrap_or(HOUR)),
            };
            let end = end.plus(grace);
            let called_in = self.overstays(job, waits) && self.may_preempt(waits);
            let late = self.now.plus(if called_in { grace } else { self.now.since(end).max(MINUTE) });
            let end = if end <= self.now { late } else { end };
            moments.push(((end, Some(job.id), None), by_node(job, &attempt.tasks)));
        }
        for (id, tasks) in &self.starts {
            let job = &self.state.jobs[id];
            moments.push(((self.ending(job).0, Some(*id), None), by_node(job, tasks)));
        }
        for window in self.state.windows.values().filter(|window| window.until > self.now) {
            for node in &window.nodes {
                moments.push(((window.until, None, Some(node.clone())), BTreeMap::new()));
            }
        }
        for booked in self.booked.iter().filter(|booked| booked.until > self.now) {
            for node in booked.taken.keys() {
                moments.push(((booked.until, None, Some(node.clone())), BTreeMap::new()));
            }
        }
        moments.sort_by(|a, b| a.0.cmp(&b.0));
        let nodes = |node: Option<NodeId>, space: &BTreeMap<NodeId, Space>| {
            node.into_iter().chain(space.keys().cloned()).collect()
        };
        moments.into_iter().map(|((at, _, node), space)| (at, space.clone(), nodes(node, &space))).collect()
    }

    fn is_booked(&self, job: &Job, node: &NodeId, from: Timestamp, until: Timestamp) -> bool {
        let endless = job.spec.time_limit_ms.is_none();
        self.windows_against(Some(&job.spec.tenant)).any(|window| {
            window.nodes.contains(node) && (endless || window.from < until) && from < window.until
        })
    }

    fn space_at(&self, id: &NodeId, freed: Option<&Space>, from: Timestamp, until: Timestamp) -> Space {
        let node = &self.state.nodes[id];
        let free = &self.free[id];
        let mut space = match freed {
            Some(freed) => free.plus(&usable(node, freed)).less_overdrawn(node),
            None => free.clone(),
        };
        for booked in self.booked.iter().filter(|booked| booked.at < until && from < booked.until) {
            booked.taken.get(id).into_iter().for_each(|taken| space.take(taken));
        }
        space
    }

    fn book(&mut self, new: Booked) {
        for booked in self.booked.iter_mut().filter(|booked| new.at <= booked.at && booked.at < new.until) {
            for (node, taken) in &new.taken {
                booked.spare.entry(node.clone()).and_modify(|spare| spare.take(taken));
            }
        }
        self.booked.push(new);
    }
}

/// A moment, with the job that ends or the node on which a reservation does.
type When = (Timestamp, Option<JobId>, Option<NodeId>);

/// A place in the future.
struct Booked {
    job: JobId,
    at: Timestamp,
    until: Timestamp,
    strict: bool,
    taken: BTreeMap<NodeId, Space>,
    /// What is left beside it then.
    spare: BTreeMap<NodeId, Space>,
}

impl Booked {
    fn is_delayed_by(&self, (at, word, yields): Over) -> bool {
        let late = at > self.at || word == Word::Estimate || (self.strict && word == Word::Loan);
        late && (self.strict || !yields)
    }
}

/// The same for who takes nothing on loan.
fn outright((at, word, _): Over) -> Over {
    (at, if word == Word::Bound { word } else { Word::Estimate }, false)
}

const NEVER: Over = (Timestamp(i64::MAX), Word::Estimate, false);

/// When a job would be over, how much that can be relied on, and whether it gives way before.
type Over = (Timestamp, Word, bool);

/// Room made task by task, on several nodes.
struct Clearing<'n, 'a> {
    naive: &'n Naive<'a>,
    job: &'n Job,
    /// Tasks of each group on each node.
    tasks: BTreeMap<NodeId, Vec<u32>>,
    victims: Vec<&'a Job>,
    /// The rack it must stay in.
    rack: Option<(Option<String>, String)>,
}

impl<'a> Clearing<'_, 'a> {
    fn of(naive: &Naive<'a>, job: &Job) -> Option<(Vec<&'a Job>, Vec<PlacedTask>)> {
        if job.spec.topology != Topology::SameRack {
            return Clearing::within(naive, job, None);
        }
        let facts = naive.state.nodes.values().map(|node| &node.facts);
        let racks: BTreeSet<(Option<String>, String)> =
            facts.filter_map(|facts| Some((facts.block.clone(), facts.rack.clone()?))).collect();
        let found = racks.into_iter().filter_map(|rack| Clearing::within(naive, job, Some(rack)));
        let price = |victims: &[&Job]| victims.iter().map(|victim| naive.price(victim)).sum::<u64>();
        found.min_by_key(|(victims, _)| (price(victims), victims.len()))
    }

    fn within(
        naive: &Naive<'a>,
        job: &Job,
        rack: Option<(Option<String>, String)>,
    ) -> Option<(Vec<&'a Job>, Vec<PlacedTask>)> {
        let mut clearing = Clearing { naive, job, tasks: BTreeMap::new(), victims: Vec::new(), rack };
        if !may_span(job) || !by_size(job).into_iter().all(|group| clearing.seat_group(group)) {
            return None;
        }
        clearing.victims.sort_by_key(|victim| (naive.price(victim), victim.id));
        for victim in clearing.victims.clone().into_iter().rev() {
            let all = clearing.victims.clone();
            clearing.victims.retain(|other| other.id != victim.id);
            let touched = victim.attempt().unwrap().nodes();
            if touched.iter().any(|node| naive.free.contains_key(node) && clearing.bench(node, &[]).is_none())
            {
                clearing.victims = all;
            }
        }
        let nodes: Vec<NodeId> = clearing.tasks.keys().cloned().collect();
        let hall =
            nodes.into_iter().map(|node| (node.clone(), clearing.bench(&node, &[]).unwrap())).collect();
        (!clearing.victims.is_empty()).then(|| (clearing.victims, ranks(naive.state, job, &hall)))
    }

    fn seat_group(&mut self, group: usize) -> bool {
        let mut left = self.job.spec.tasks[group].count;
        let nodes: Vec<NodeId> = self.naive.free.keys().filter(|node| self.may_use(node)).cloned().collect();
        nodes.iter().for_each(|node| left -= self.seat_on(group, node, left));
        if left == 0 {
            return true;
        }
        let mut prices: BTreeSet<(u64, usize, NodeId)> =
            nodes.iter().filter_map(|node| self.price(group, node)).collect();
        while left > 0 {
            let Some(best) = prices.pop_first() else { return false };
            // Guarantees may have changed the price since it was asked for.
            let Some(now) = self.price(group, &best.2) else { continue };
            if now > best {
                prices.insert(now);
                continue;
            }
            let victims = self.victims_for_one(group, &best.2).unwrap();
            let mut touched = BTreeSet::from([best.2.clone()]);
            touched.extend(victims.iter().flat_map(|victim| victim.attempt().unwrap().nodes()));
            self.victims.extend(victims);
            left -= self.seat_on(group, &best.2, 1);
            left -= self.seat_on(group, &best.2, left);
            let there = |node: &&NodeId| self.naive.free.contains_key(*node) && self.may_use(node);
            let touched: Vec<&NodeId> = touched.iter().filter(there).collect();
            for node in touched {
                left -= self.seat_on(group, node, left);
                prices.retain(|(_, _, other)| other != node);
                prices.extend(self.price(group, node));
            }
        }
        true
    }

    fn may_use(&self, node: &NodeId) -> bool {
        let facts = &self.naive.state.nodes[node].facts;
        let stands = (facts.block.clone(), facts.rack.clone());
        self.rack.as_ref().is_none_or(|(block, rack)| stands == (block.clone(), Some(rack.clone())))
    }

    fn seat_on(&mut self, group: usize, node: &NodeId, most: u32) -> u32 {
        let Some(mut bench) = self.bench(node, &[]) else { return 0 };
        let seated =
            (0..most).take_while(|_| self.naive.sit(self.job, group, node, &mut bench)).count() as u32;
        if seated > 0 {
            let groups = self.job.spec.tasks.len();
            self.tasks.entry(node.clone()).or_insert(vec![0; groups])[group] += seated;
        }
        seated
    }

    /// The tasks so far on a node once the victims so far, and more, have gone; nothing if they do not fit.
    fn bench(&self, node: &NodeId, more: &[&Job]) -> Option<Bench> {
        let here = |victim: &&&Job| victim.attempt().unwrap().nodes().contains(node);
        let victims: Vec<&Job> = self.victims.iter().chain(more).filter(here).copied().collect();
        let mut bench = Bench::new(&self.naive.after(node, &victims)?);
        for group in by_size(self.job) {
            let count = self.tasks.get(node).map_or(0, |tasks| tasks[group]);
            for _ in 0..count {
                self.naive.sit(self.job, group, node, &mut bench).then_some(())?;
            }
        }
        Some(bench)
    }

    fn victims_for_one(&self, group: usize, node: &NodeId) -> Option<Vec<&'a Job>> {
        let mut candidates = self.naive.candidates(node);
        candidates.retain(|victim| !self.victims.iter().any(|other| other.id == victim.id));
        let candidates = self.naive.displaceable(self.job, candidates, &self.victims);
        least(candidates, |victims| {
            let bench = self.bench(node, victims);
            bench.is_some_and(|mut bench| self.naive.sit(self.job, group, node, &mut bench))
        })
    }

    fn price(&self, group: usize, node: &NodeId) -> Option<(u64, usize, NodeId)> {
        let victims = self.victims_for_one(group, node)?;
        Some((victims.iter().map(|victim| self.naive.price(victim)).sum(), victims.len(), node.clone()))
    }
}

/// Victims in order until it is enough; then spare whom it does not need, dearest first.
fn least(candidates: Vec<&Job>, enough: impl Fn(&[&Job]) -> bool) -> Option<Vec<&Job>> {
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

/// Free space on nodes, with the number of free GPUs they are filed under.
type Spaces = BTreeMap<NodeId, (usize, Space)>;

/// Tasks of a gang on one node, with their group and seat, and what they leave.
#[derive(Clone)]
struct Bench {
    left: Space,
    tasks: Vec<(usize, Seat)>,
}

/// The devices of a task, and its share if it shares one.
#[derive(Debug, Clone)]
struct Seat {
    gpus: Vec<u8>,
    share: Option<Share>,
}

impl Seat {
    fn space(&self, each: &Resources) -> Space {
        let part = self.share.as_ref().map_or(WHOLE, |share| (share.compute_milli, share.memory_milli));
        let start = self.share.as_ref().and_then(|share| match share.mode {
            ShareMode::Mig { start, .. } => Some(start),
            _ => None,
        });
        let parts = || self.gpus.iter().map(|gpu| (*gpu, part)).collect();
        Space {
            gpus: if start.is_some() { BTreeMap::new() } else { parts() },
            instances: start.into_iter().map(|start| (self.gpus[0], start)).collect(),
            cpus: u64::from(each.cpus),
            memory_mib: each.memory_mib,
        }
    }

    fn placed(self, rank: u32, group: u32, node: &NodeId) -> PlacedTask {
        PlacedTask { rank, group, node: node.clone(), gpus: self.gpus, share: self.share.map(Box::new) }
    }
}

impl Bench {
    fn new(space: &Space) -> Bench {
        Bench { left: space.clone(), tasks: Vec::new() }
    }
}

fn is_returning(job: &Job) -> bool {
    matches!(job.phase, muster_core::job::Phase::Queued { returning: true, .. })
}

/// Whether its tasks may sit on several nodes.
fn may_span(job: &Job) -> bool {
    job.spec.tasks.iter().map(|group| group.count).sum::<u32>() > 1 && !demands_closeness(job)
}

/// Whether all its GPUs must be close together on one node.
fn demands_closeness(job: &Job) -> bool {
    matches!(job.spec.topology, Topology::SameNuma | Topology::Nvlink)
        || job.spec.allow_cross_numa == Some(false)
}

/// The groups of a gang, the most demanding first.
fn by_size(job: &Job) -> Vec<usize> {
    let mut groups: Vec<usize> = (0..job.spec.tasks.len()).collect();
    let size = |group: &usize| {
        let each = &job.spec.tasks[*group].each;
        (each.gpus, each.cpus, each.memory_mib)
    };
    groups.sort_by_key(|group| (Reverse(size(group)), *group));
    groups
}

/// Where a node stands: its block and its rack.
fn standing(state: &State, node: &NodeId) -> Option<(Option<String>, String)> {
    let facts = &state.nodes[node].facts;
    Some((facts.block.clone(), facts.rack.clone()?))
}

/// Ranks group by group, and inside a group by rack and name of node.
fn ranks(state: &State, job: &Job, hall: &BTreeMap<NodeId, Bench>) -> Vec<PlacedTask> {
    let mut tasks: Vec<PlacedTask> = Vec::new();
    let mut nodes: Vec<(&NodeId, &Bench)> = hall.iter().collect();
    nodes.sort_by_key(|(node, _)| (standing(state, node), (*node).clone()));
    for group in 0..job.spec.tasks.len() {
        for (node, bench) in &nodes {
            for (_, seat) in bench.tasks.iter().filter(|(of, _)| *of == group) {
                tasks.push(seat.clone().placed(tasks.len() as u32, group as u32, node));
            }
        }
    }
    tasks
}

/// What one task uses.
fn of_task(job: &Job, task: &PlacedTask) -> Space {
    let each = &job.spec.tasks[task.group as usize].each;
    Seat { gpus: task.gpus.clone(), share: task.share.as_deref().cloned() }.space(each)
}

/// What tasks use on each node.
fn by_node(job: &Job, tasks: &[PlacedTask]) -> BTreeMap<NodeId, Space> {
    let mut nodes: BTreeMap<NodeId, Space> = BTreeMap::new();
    tasks.iter().for_each(|task| nodes.entry(task.node.clone()).or_default().add(&of_task(job, task)));
    nodes
}

/// Use what comes first, and what is free only for the rest.
fn still_needed(coming: &Space, all: &Space) -> Space {
    let mut needed = all.less(coming);
    // A whole device is kept as such.
    coming
        .gpus
        .iter()
        .filter(|(_, part)| **part == WHOLE)
        .for_each(|(gpu, _)| needed.set(*gpu, all.of(*gpu)));
    needed.instances = all.instances.clone();
    needed
}

/// A part of a whole, in millionths.
fn millionths(part: u64, whole: u64) -> u64 {
    (u128::from(part) * 1_000_000 / u128::from(whole.max(1))) as u64
}

type Shared = (String, String, u32, Shape, Option<i64>, Option<u64>, Option<String>);

/// What makes two jobs the same to the planner.
fn shared(state: &State, job: &Job) -> Shared {
    let array = state.is_limited(job.id).then_some(job.id.number);
    let (tenant, user) = (job.spec.tenant.to_string(), job.spec.user.clone());
    let word = state.policies.rules().and_then(|_| job.spec.labels.get("job_priority").cloned());
    (tenant, user, job.spec.priority, Shape::of(&job.spec), job.spec.time_limit_ms.map(rounded), array, word)
}

/// The rules that count. In stories there is at most one ruleset.
fn rules(state: &State) -> Vec<Rule> {
    let schedules = state.policies.rules().map(|rules| rules.schedules.clone()).unwrap_or_default();
    schedules.into_values().next().map(|ruleset| ruleset.rules).unwrap_or_default()
}

/// The words of the first rule of priority.
fn orders(state: &State) -> Option<Vec<String>> {
    rules(state).into_iter().find_map(|rule| match rule {
        Rule::Priority { values, .. } => Some(values),
        _ => None,
    })
}

fn urgency(state: &State, job: &Job) -> usize {
    let Some(words) = orders(state) else { return 0 };
    let place = job.spec.labels.get("job_priority").and_then(|word| words.iter().position(|one| one == word));
    place.unwrap_or(words.len())
}

/// Whether a rule keeps a running job from being displaced.
fn is_spared(state: &State, victim: &Job) -> bool {
    rules(state).into_iter().any(|rule| match rule {
        Rule::Preemption { allow: false, .. } => true,
        Rule::Preemption { priority_threshold: Some(threshold), .. } => {
            let usual = || ["critical", "high", "normal", "low"].map(str::to_string).to_vec();
            let words = orders(state).unwrap_or_else(usual);
            let place = |word: &String| words.iter().position(|one| one == word);
            let own = victim.spec.labels.get("job_priority").and_then(place);
            own.is_some_and(|own| own <= place(&threshold).unwrap())
        }
        _ => false,
    })
}

/// Whether a device is in the pool that a job names, as warm and healthy as it is.
fn is_in_pool(state: &State, job: &Job, id: &NodeId, gpu: u8) -> bool {
    let Some(name) = &job.spec.pool else { return true };
    let Some(pool) = state.policies.pool(name) else { return false };
    let node = &state.nodes[id];
    let (facts, health) = (&node.facts.gpus[usize::from(gpu)], &node.gpu_health[usize::from(gpu)]);
    let healthy = match health.word {
        GpuWord::Healthy => 1_000,
        GpuWord::Warning => 900,
        GpuWord::Degraded => 500,
        GpuWord::Unhealthy => 0,
    };
    let cool = health.temperature_c.is_none_or(|c| i64::from(c) * 1_000 <= pool.max_temp_milli_c);
    let large = facts.memory_mib as i64 * 1_000 / 1_024 >= pool.min_memory_milli_gb;
    let wished = pool.gpu_types.iter().any(|wish| model::matches(wish, &facts.model));
    (pool.gpu_types.is_empty() || wished) && cool && large && healthy >= pool.health_threshold_milli
}

fn free_on(node: &Node) -> Space {
    let free = |gpu: usize| {
        let leases = &node.holders[gpu];
        let used = leases.iter().fold((0, 0), |(compute, memory), lease| match lease.slot {
            Slot::Whole => WHOLE,
            Slot::Part(part) => (compute + u32::from(part.compute), memory + u32::from(part.memory)),
            // A device that was registered anew without the instances that are held: nobody knows what of it is free.
            Slot::Instance { .. } => WHOLE,
        });
        (gpu as u8, (1_000 - used.0, 1_000 - used.1))
    };
    let usable = (0..node.holders.len()).filter(|gpu| node.gpu_usable(*gpu));
    let cut = |gpu: &usize| !node.instances(*gpu as u8).is_empty();
    let instances = usable.clone().filter(cut).flat_map(|gpu| {
        let taken = |start| node.holders[gpu].iter().any(|lease| lease.slot == Slot::Instance { start });
        let known = check(&node.facts.gpus[gpu], gpu as u8, node.instances(gpu as u8)).is_ok();
        let all = node.instances(gpu as u8).iter().filter(move |_| known);
        let free = all.filter(|one| !taken(one.start)).map(|one| (gpu as u8, one.start));
        free.collect::<Vec<_>>()
    });
    Space {
        instances: instances.collect(),
        gpus: usable.filter(|gpu| !cut(gpu)).map(free).filter(|(_, part)| *part != (0, 0)).collect(),
        cpus: u64::from(node.facts.cpus).saturating_sub(node.cpus_held),
        memory_mib: node.facts.memory_mib.saturating_sub(node.memory_mib_held),
    }
}

fn usable(node: &Node, space: &Space) -> Space {
    let mut space = space.clone();
    space.gpus.retain(|gpu, _| node.gpu_usable(usize::from(*gpu)));
    space.instances.retain(|(gpu, _)| node.gpu_usable(usize::from(*gpu)));
    space
}

fn is_hot(node: &Node, gpu: u8) -> bool {
    node.gpu_health[usize::from(gpu)].word == GpuWord::Degraded
}

/// A seat for every task; nothing if anything is short.
fn fit(job: &Job, node: &Node, space: &Space) -> Option<Vec<Seat>> {
    let demand = job.spec.demand();
    if space.cpus < demand.cpus || space.memory_mib < demand.memory_mib {
        return None;
    }
    let mut left = space.clone();
    let whole = |group: &TaskGroup| group.each.gpus > 0 && group.each.gpu_compute_milli == 1_000;
    if demands_closeness(job) && job.spec.tasks.iter().any(whole) {
        let together = close_together(job, node, space)?;
        left.gpus.retain(|gpu, part| *part != WHOLE || together.contains(gpu));
    }
    let mut seats = Vec::new();
    for group in &job.spec.tasks {
        for _ in 0..group.count {
            let seat = sit(job, &group.each, node, &left)?;
            left.take(&Space { cpus: 0, memory_mib: 0, ..seat.space(&group.each) });
            seats.push(seat);
        }
    }
    Some(seats)
}

/// Devices for all tasks of a gang that must be close together: the best of all sets.
fn close_together(job: &Job, node: &Node, space: &Space) -> Option<BTreeSet<u8>> {
    let whole = |group: &&TaskGroup| group.each.gpus > 0 && group.each.gpu_compute_milli == 1_000;
    let groups: Vec<&TaskGroup> = job.spec.tasks.iter().filter(whole).collect();
    let count = groups.iter().map(|group| group.count * group.each.gpus).sum();
    let good = |gpu: &u8| groups.iter().all(|group| would_do(&group.each, node, *gpu));
    let free = space.gpus.iter().filter(|(_, part)| **part == WHOLE).map(|(gpu, _)| *gpu);
    best_set(node, free.filter(good).collect(), count, Wish::of_job(&job.spec))
}

/// The best set of so many devices out of some, among all there are.
fn best_set(node: &Node, free: Vec<u8>, count: u32, wish: Wish) -> Option<BTreeSet<u8>> {
    let wiring = Wiring::of(&node.facts);
    let bits = |set: u64| (0..64).filter(move |gpu| set >> gpu & 1 == 1);
    let free: u64 = free.iter().fold(0, |all, gpu| all | 1 << gpu);
    let sets = (0..=free).filter(|set| set & !free == 0 && set.count_ones() == count);
    let ranked = sets.filter_map(|set| Some((wiring.rank(free, set, wish)?, set)));
    ranked.min().map(|(_, set)| bits(set).collect())
}

/// Whole devices, the best set of them; of a device that is shared what was asked for, the fullest first that has it.
fn sit(job: &Job, each: &Resources, node: &Node, left: &Space) -> Option<Seat> {
    let good = || left.gpus.iter().filter(|(gpu, _)| would_do(each, node, **gpu));
    if each.gpus == 0 || each.gpu_compute_milli == 1_000 {
        let whole = good().filter(|(_, part)| **part == WHOLE).map(|(gpu, _)| *gpu);
        let wish = Wish::of_job(&job.spec).as_wish();
        let gpus = best_set(node, whole.collect(), each.gpus, wish)?.into_iter().collect();
        return Some(Seat { gpus, share: None });
    }
    // A device that is shared already, else the smallest instance, else a device nobody uses.
    let all = parts(each, node, left).into_iter().chain(instances(each, node, left));
    all.min_by_key(|(order, _)| *order).map(|(_, seat)| seat)
}

/// Parts of devices that would do, each with its place in the usual order.
fn parts(each: &Resources, node: &Node, left: &Space) -> Vec<(Usual, Seat)> {
    let limits = |gpu: &u8| model::can_limit_shares(&node.facts.gpus[usize::from(*gpu)].model);
    let apart = |gpu: &u8| match each.isolation {
        Isolation::None => true,
        Isolation::Memory => limits(gpu),
        Isolation::Full => false,
    };
    let mut found = Vec::new();
    for (gpu, part) in left.gpus.iter().filter(|(gpu, _)| would_do(each, node, **gpu) && apart(gpu)) {
        let share = share(each, node, *gpu);
        if share.compute_milli <= part.0 && share.memory_milli <= part.1 {
            let order = (if *part == WHOLE { 2 } else { 0 }, part.0, (0, 0), *gpu, 0);
            found.push((order, Seat { gpus: vec![*gpu], share: Some(share) }));
        }
    }
    found
}

/// The place of a seat among others.
type Usual = (u8, u32, (u32, u64), u8, u8);

/// Instances that would do, each with its place in the usual order.
fn instances(each: &Resources, node: &Node, left: &Space) -> Vec<(Usual, Seat)> {
    let mut found = Vec::new();
    for (gpu, start) in &left.instances {
        let facts = &node.facts.gpus[usize::from(*gpu)];
        let wished = |wish: &String| model::matches(wish, &facts.model);
        let one = node.instances(*gpu).iter().find(|one| one.start == *start).unwrap();
        let table = model::of_device(&facts.model, facts.memory_mib).unwrap().mig.unwrap();
        let profile = table.profile(&one.profile).unwrap();
        let (milli, memory_mib) =
            (table.compute_milli(profile), table.profiles[usize::from(profile)].memory_mib);
        let enough = milli >= each.gpu_compute_milli && memory_mib >= each.gpu_memory_mib;
        if enough && (each.gpu_models.is_empty() || each.gpu_models.iter().any(wished)) {
            let mode = ShareMode::Mig { profile: one.profile.clone(), start: *start };
            let (held, _) = instance_holds(node, *gpu, &one.profile);
            let memory_milli = memory_mib * 1_000 / facts.memory_mib;
            let share = Share {
                compute_milli: held as u32,
                memory_milli: (memory_milli as u32).min(1_000),
                memory_mib,
                mode,
            };
            let order = (1, 0, (milli, memory_mib), *gpu, *start);
            found.push((order, Seat { gpus: vec![*gpu], share: Some(share) }));
        }
    }
    found
}

/// Some space as the planner writes it.
fn free(space: &Space) -> Free {
    let parts = space.gpus.iter().map(|(device, (compute, memory))| {
        let part = Part { compute: *compute as u16, memory: *memory as u16 };
        muster_core::capacity::Seat::Part { device: *device, part }.space()
    });
    let instances = space.instances.iter().map(|(device, start)| {
        muster_core::capacity::Seat::Instance { device: *device, start: *start }.space()
    });
    let host = Free { cpus: space.cpus, memory_mib: space.memory_mib, ..Free::default() };
    parts.chain(instances).fold(host, Free::with)
}

/// What a task gets of a device.
fn share(each: &Resources, node: &Node, gpu: u8) -> Share {
    let (all, mib) = (node.facts.gpus[usize::from(gpu)].memory_mib, each.gpu_memory_mib);
    let by_compute = u64::from(each.gpu_compute_milli) * all / 1_000;
    let memory_milli = if mib == 0 { each.gpu_compute_milli } else { (mib * 1_000).div_ceil(all) as u32 };
    Share {
        compute_milli: each.gpu_compute_milli,
        memory_milli,
        memory_mib: if mib == 0 { by_compute } else { mib },
        mode: match model::can_limit_shares(&node.facts.gpus[usize::from(gpu)].model) {
            true => ShareMode::Mps,
            false => ShareMode::TimeSlice,
        },
    }
}

/// Whether a task that was placed has of a device what it would get now.
fn is_told(each: &Resources, node: &Node, gpu: u8, task: &PlacedTask) -> bool {
    if let Some(ShareMode::Mig { start, .. }) = task.share.as_ref().map(|share| &share.mode) {
        let mut left = Space::default();
        let there = node.instances(gpu).iter().any(|one| one.start == *start);
        left.instances.insert((gpu, *start));
        let now = if there { instances(each, node, &left) } else { Vec::new() };
        return now.first().is_some_and(|(_, seat)| seat.share.as_ref() == task.share.as_deref());
    }
    let now = (each.gpu_compute_milli < 1_000).then(|| share(each, node, gpu));
    let parts = |share: &Share| (share.compute_milli, share.memory_milli);
    now.as_ref().map(parts) == task.share.as_deref().map(parts)
}

fn would_do(each: &Resources, node: &Node, gpu: u8) -> bool {
    let Some(facts) = node.facts.gpus.get(usize::from(gpu)) else { return false };
    if !node.instances(gpu).is_empty() {
        return each.gpu_compute_milli < 1_000;
    }
    let wishes = &each.gpu_models;
    facts.memory_mib >= each.gpu_memory_mib
        && (wishes.is_empty() || wishes.iter().any(|wish| model::matches(wish, &facts.model)))
}

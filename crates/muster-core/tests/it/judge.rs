//! A judge who believes no one: reads the events, keeps its own books, and compares.
//!
//! `State::check` sees one state; the judge sees transitions, and recomputes from the events alone what the
//! state derives.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::event::Next;
use muster_core::job::{Demand, Isolation, Job, PlacedTask, StopCause, Topology};
use muster_core::ledger::Charge;
use muster_core::loss::lost_gpu_ms;
use muster_core::node::{GpuWord, Node, NodeWord};
use muster_core::partition::{MigInstance, check};
use muster_core::policy::{Answered, Hook, Retried, Scope};
use muster_core::queue::waiting_since;
use muster_core::recent::Recent;
use muster_core::settings::Objective;
use muster_core::share::ShareMode;
use muster_core::state::Claim;
use muster_core::{Event, GpuId, JobId, NodeId, State, TenantId, Timestamp, model};

use crate::policies;
use crate::world::{
    demand_of, gives_only_what_it_owes, gives_only_what_it_owes_of, guarantor, half_life, held_below,
    held_by, is_admitted, is_below, is_ready, is_within_quota, is_within_user_quota, milliwatts_of,
    model_guarantors, of_model, runs_on_model,
};

/// The judge's own books.
#[derive(Default)]
pub struct Judge {
    leases: BTreeMap<JobId, Lease>,
    ended: BTreeSet<JobId>,
    used: BTreeMap<TenantId, Charge>,
    /// Of attempts of which a part has ended: whether all of them said when, and the last of those moments.
    part_ends: BTreeMap<JobId, (bool, Timestamp)>,
    clock: Timestamp,
    past: Past,
}

struct Lease {
    attempt: u32,
    at: Timestamp,
    milliwatts: u64,
    /// Each with its cores and memory.
    tasks: Vec<(PlacedTask, (u64, u64))>,
}

impl Judge {
    /// See an event, with the state just before it.
    pub fn see(&mut self, before: &State, event: &Event) {
        assert!(before.clock >= self.clock, "time ran backwards");
        self.clock = before.clock;
        match event {
            Event::JobSubmitted { array, .. } => {
                let more = array.as_ref().map_or(1, |array| array.indexes.len() as u64);
                let limit = before.settings.queue_size_max;
                assert!(before.queue.len() + more <= limit, "the queue grew beyond {limit}");
            }
            Event::JobPlaced { job, attempt, tasks, at, .. } => {
                self.see_placed(before, *job, *attempt, tasks, *at)
            }
            Event::ClaimMade { job, tasks, victims, at, .. } => see_claim(before, *job, tasks, victims, *at),
            Event::AttemptStopping { job, cause: StopCause::Preempted { by }, .. } => {
                let meant = before.claims.get(by).is_some_and(|claim| claim.victims.contains(job));
                assert!(meant, "{job} was displaced, but not for a claim of {by}");
            }
            Event::CheckpointSaved { job, grace_ms: Some(grace_ms), at, .. } => {
                see_shorter_grace(before, *job, *grace_ms, *at);
            }
            Event::PartEnded { job, ended_at, at, .. } => {
                let end = ended_at.unwrap_or(*at);
                assert!(end <= *at && end >= self.leases[job].at, "a part of {job} ended at {end:?}");
                let (known, last) = self.part_ends.entry(*job).or_insert((true, end));
                (*known, *last) = (*known && ended_at.is_some(), end.max(*last));
            }
            Event::AttemptEnded { job, attempt, next, charge, charged_until, at, .. } => {
                self.see_charged_until(*job, *charged_until, *at);
                self.see_attempt_end(before, (*job, *attempt), *charge, charged_until.unwrap_or(*at), *at);
                if matches!(next, Next::Ended { .. }) {
                    self.see_end(*job);
                }
            }
            Event::JobEnded { job, .. } => self.see_end(*job),
            Event::JobWoken { job, at } => see_woken(before, *job, *at),
            Event::RetryAnswered { answer, wakes_at, at, .. } => see_retry(before, answer, *wakes_at, *at),
            Event::PolicyAnswered { answers, .. } => answers.iter().for_each(|one| see_answer(before, one)),
            Event::GpuPartitioned { gpu, instances, why, .. } => see_cut(before, gpu, instances, why),
            _ => {}
        }
    }

    fn see_placed(&mut self, before: &State, id: JobId, attempt: u32, tasks: &[PlacedTask], at: Timestamp) {
        assert!(!self.ended.contains(&id), "{id} has ended and runs again");
        let job = &before.jobs[&id];
        assert!(is_ready(job), "{id} was placed before it was ready");
        let demand = demand_of(job, tasks);
        assert!(is_within_user_quota(before, job, demand), "{id} was placed above what its user may hold");
        assert!(is_admitted(before, job, demand, at), "{id} was placed above a limit");
        for (group, of) in (0..).zip(&job.spec.tasks) {
            let placed = tasks.iter().filter(|task| task.group == group).count() as u32;
            assert!(of.count <= placed, "{id} was placed in part");
            assert!(placed <= of.count_max.unwrap_or(of.count), "{id} has more tasks than it takes");
        }
        for task in tasks {
            self.see_devices(before, job, task, at);
        }
        see_model_limits(before, job, tasks);
        see_close_together(before, job, tasks);
        let lease = Lease {
            attempt,
            at,
            milliwatts: milliwatts_of(before, tasks),
            tasks: tasks.iter().map(|task| (task.clone(), own(job, task))).collect(),
        };
        let former = self.leases.insert(id, lease);
        assert!(former.is_none(), "{id} has two live attempts");
        // A machine may come back with fewer cores than it had given out; a task that wants none still fits.
        for task in tasks.iter().filter(|task| own(job, task).0 > 0) {
            self.see_node_not_overfull(before, &task.node);
        }
    }

    /// Every device exists, will do, is in order, and nobody holds or has claimed it.
    fn see_devices(&self, before: &State, job: &Job, task: &PlacedTask, at: Timestamp) {
        let (node, each) = (&before.nodes[&task.node], &job.spec.tasks[task.group as usize].each);
        see_windows(before, job, &node.id, at);
        assert_eq!(node.state.word, NodeWord::Ready, "{} was placed on {}", job.id, node.id);
        assert_eq!(task.gpus.len(), each.gpus as usize, "{} got another number of GPUs", job.id);
        for index in &task.gpus {
            let gpu = GpuId { node: task.node.clone(), index: *index };
            let facts = &node.facts.gpus[usize::from(*index)];
            let wished = |wish: &String| model::matches(wish, &facts.model);
            assert!(
                each.gpu_models.is_empty() || each.gpu_models.iter().any(wished),
                "{gpu} is another model"
            );
            assert!(facts.memory_mib >= each.gpu_memory_mib, "{gpu} has too little memory");
            if let Some(pool) = job.spec.pool.as_ref().and_then(|pool| before.policies.pool(pool)) {
                let health = &node.gpu_health[usize::from(*index)];
                let warm = health.temperature_c.is_some_and(|c| i64::from(c) * 1_000 > pool.max_temp_milli_c);
                let of_type = pool.gpu_types.iter().any(|wish| model::matches(wish, &facts.model));
                assert!(of_type || pool.gpu_types.is_empty(), "{gpu} is not of the pool `{}`", pool.name);
                assert!(!warm, "{gpu} is too warm for the pool `{}`", pool.name);
                let ailing = health.word != GpuWord::Healthy && pool.health_threshold_milli > 900;
                assert!(!ailing, "{gpu} is not healthy enough for the pool `{}`", pool.name);
            }
            assert!(node.gpu_usable(usize::from(*index)), "{gpu} may not be given out");
            if let Some(share) = &task.share {
                see_kept_apart(each.isolation, &share.mode, &facts.model);
            }
            if let Some(ShareMode::Mig { profile, start }) = task.share.as_ref().map(|share| &share.mode) {
                self.see_instance(node, (*index, *start), profile);
                continue;
            }
            assert!(node.instances(*index).is_empty(), "{gpu} is partitioned");
            let mine = part_of(task);
            let held = self.held_of(&gpu);
            assert!(
                held.0 + mine.0 <= 1_000 && held.1 + mine.1 <= 1_000,
                "{gpu} is oversubscribed: {held:?}"
            );
            let claimed = |(id, claim): (&JobId, &Claim)| *id != job.id && claim.holds(&task.node, *index);
            let whole = |(_, claim): &(&JobId, &Claim)| claim.tasks.iter().all(|task| task.share.is_none());
            let mut claims = before.claims.iter().filter(|(id, claim)| claimed((id, claim)));
            assert!(mine != (1_000, 1_000) || claims.next().is_none(), "{gpu} is claimed by another");
            assert!(!claims.any(|claim| whole(&claim)), "{gpu} is claimed as a whole by another");
        }
    }

    /// An instance that is given out exists, and nobody else has it.
    fn see_instance(&self, node: &Node, (gpu, start): (u8, u8), profile: &str) {
        let there = node.instances(gpu).iter().any(|one| one.start == start && one.profile == profile);
        assert!(there, "{}/gpu-{gpu} has no {profile} at {start}", node.id);
        let tasks = self.leases.values().flat_map(|lease| &lease.tasks).map(|(task, _)| task);
        let mut here = tasks.filter(|task| task.node == node.id && task.gpus == [gpu]);
        let taken = here.any(|task| {
            let mode = task.share.as_ref().map(|share| &share.mode);
            !matches!(mode, Some(ShareMode::Mig { start: other, .. }) if *other != start)
        });
        assert!(!taken, "{}/gpu-{gpu} has two holders at {start}", node.id);
    }

    /// What is held of a device, in thousandths of compute and of memory.
    fn held_of(&self, gpu: &GpuId) -> (u32, u32) {
        let tasks = self.leases.values().flat_map(|lease| &lease.tasks).map(|(task, _)| task);
        let here = tasks.filter(|task| task.node == gpu.node && task.gpus.contains(&gpu.index));
        here.map(part_of).fold((0, 0), |sum, part| (sum.0 + part.0, sum.1 + part.1))
    }

    fn see_node_not_overfull(&self, before: &State, node: &NodeId) {
        let tasks = || self.leases.values().flat_map(|lease| &lease.tasks);
        let here = || tasks().filter(|(task, _)| task.node == *node);
        let facts = &before.nodes[node].facts;
        let cpus: u64 = here().map(|(_, (cpus, _))| cpus).sum();
        let memory_mib: u64 = here().map(|(_, (_, memory_mib))| memory_mib).sum();
        assert!(cpus <= u64::from(facts.cpus), "{node} gave out {cpus} cores");
        assert!(memory_mib <= facts.memory_mib, "{node} gave out {memory_mib} MiB");
    }

    /// Usage is charged from the placement to some moment before the release, and not before the last part was gone.
    fn see_charged_until(&mut self, id: JobId, until: Option<Timestamp>, at: Timestamp) {
        let parts = self.part_ends.remove(&id);
        let Some(until) = until else { return };
        assert!(self.leases[&id].at <= until && until <= at, "{id} was charged until {until:?}");
        assert!(parts.is_none_or(|(known, last)| known && last <= until), "{id}: parts end after {until:?}");
    }

    fn see_attempt_end(
        &mut self,
        before: &State,
        (id, attempt): (JobId, u32),
        charge: Charge,
        until: Timestamp,
        at: Timestamp,
    ) {
        let lease = self.leases.remove(&id).unwrap_or_else(|| panic!("{id} had no lease to end"));
        assert_eq!(lease.attempt, attempt, "another attempt of {id} ended");
        let ms = until.since(lease.at) as u64;
        let gpu_milli = |task: &PlacedTask| u64::from(part_of(task).0) * task.gpus.len() as u64;
        let gpu_milli: u64 = lease.tasks.iter().map(|(task, _)| gpu_milli(task)).sum();
        let own = Charge {
            gpu_ms: gpu_milli * ms / 1_000,
            cpu_ms: lease.tasks.iter().map(|(_, (cpus, _))| cpus).sum::<u64>() * ms,
            memory_gib_ms: lease.tasks.iter().map(|(_, (_, mib))| mib).sum::<u64>() * ms / 1_024,
            cost_micro: 0,
            energy_mj: lease.milliwatts * ms / 1_000,
        };
        assert_eq!(charge, own, "{id} was charged wrongly");
        let spec = &before.jobs[&id].spec;
        *self.used.entry(spec.tenant.clone()).or_default() += own;
        for user in [None, Some(spec.user.clone())] {
            self.past.unused.push(((spec.tenant.clone(), user), gpu_milli, at.since(until)));
        }
    }

    fn see_end(&mut self, job: JobId) {
        assert!(self.ended.insert(job), "{job} ended twice");
        assert!(!self.leases.contains_key(&job), "{job} ended while it ran");
    }

    /// What must hold after every step.
    pub fn see_state(&mut self, state: &State) {
        self.past.see(state);
        let live = state.jobs.keys().find(|job| self.ended.contains(job));
        assert_eq!(live, None, "an ended job lives");
        let running: BTreeSet<JobId> =
            state.jobs.values().filter(|job| job.attempt().is_some()).map(|job| job.id).collect();
        assert_eq!(running, self.leases.keys().copied().collect(), "leases and attempts differ");
        for (tenant, account) in state.ledger.accounts() {
            let own = self.used.get(tenant).copied().unwrap_or_default();
            assert_eq!(account.used, own, "the ledger of {tenant} is not the sum of its leases");
        }
    }
}

/// A tenant, or one of its members.
type Holder = (TenantId, Option<String>);

/// What everyone held of late, by the judge's own reckoning.
#[derive(Default)]
struct Past {
    gpus: BTreeMap<Holder, f64>,
    /// What they hold since then, and the half-life by which they forget.
    since: Timestamp,
    holding: BTreeMap<Holder, (u64, i64)>,
    /// What was given back in this step and had not been used for so long.
    unused: Vec<(Holder, u64, i64)>,
}

impl Past {
    /// All that happened in a step happened at its end: until then everyone held, and forgot, as after the step before.
    fn see(&mut self, state: &State) {
        let passed = state.clock.since(self.since);
        for (who, (held, half_life)) in std::mem::take(&mut self.holding) {
            let kept = 0.5_f64.powf(passed as f64 / half_life as f64);
            let gpus = self.gpus.entry(who).or_default();
            *gpus = *gpus * kept + held as f64 / 1e3 * (1.0 - kept);
        }
        self.since = state.clock;
        for (who, gpu_milli, ms) in std::mem::take(&mut self.unused) {
            let Some(tenant) = state.tenants.get(&who.0) else { continue };
            let kept = 0.5_f64.powf(ms as f64 / half_life(state, tenant) as f64);
            let gpus = self.gpus.entry(who).or_default();
            *gpus = (*gpus - gpu_milli as f64 / 1e3 * (1.0 - kept)).max(0.0);
        }
        for tenant in state.tenants.values() {
            let (id, half_life) = (&tenant.id, half_life(state, tenant));
            self.compare((id.clone(), None), tenant.held.gpu_milli, tenant.recent, half_life);
            for (name, member) in &tenant.members {
                let who = (id.clone(), Some(name.clone()));
                self.compare(who, member.held.gpu_milli, member.recent, half_life);
            }
        }
    }

    fn compare(&mut self, who: Holder, held: u64, recent: Recent, half_life: i64) {
        let said = recent.micro_gpus(held, self.since, half_life) as f64;
        let own = self.gpus.get(&who).copied().unwrap_or_default() * 1e6;
        assert!(
            (said - own).abs() < 5.0,
            "{who:?} is said to have held {said} millionths of late, not {own}"
        );
        self.holding.insert(who, (held, half_life));
    }
}

/// Nobody is placed on a node that is booked for others, unless it is sure to be over by then.
fn see_windows(before: &State, job: &Job, node: &NodeId, at: Timestamp) {
    for window in before.windows.values().filter(|window| window.nodes.contains(node) && at < window.until) {
        let theirs = window.tenant.as_ref().is_some_and(|top| is_below(before, &job.spec.tenant, top));
        let over_by = job.spec.time_limit_ms.map(|limit| at.plus(limit + before.settings.stop_grace_ms));
        let gone = over_by.is_some_and(|end| end <= window.from);
        assert!(theirs || gone, "{} is placed on {node}, which is booked by {}", job.id, window.name);
    }
}

/// What is demanded of how close its GPUs are holds for all of them together.
fn see_close_together(before: &State, job: &Job, tasks: &[PlacedTask]) {
    let gpus = || tasks.iter().flat_map(|task| task.gpus.iter().map(move |gpu| (&task.node, *gpu)));
    let facts = |(node, gpu): (&NodeId, u8)| &before.nodes[node].facts.gpus[usize::from(gpu)];
    let nodes: BTreeSet<&NodeId> = tasks.iter().map(|task| &task.node).collect();
    let (id, topology) = (job.id, job.spec.topology);
    let numa: BTreeSet<Option<u32>> = gpus().map(|gpu| facts(gpu).numa_node).collect();
    let one_numa = topology == Topology::SameNuma || job.spec.allow_cross_numa == Some(false);
    let shared = tasks.iter().any(|task| task.share.is_some());
    assert!(!one_numa || shared || (nodes.len() == 1 && numa.len() <= 1), "{id} is on several NUMA nodes");
    if topology == Topology::Nvlink && !shared {
        let all: Vec<u8> = gpus().map(|(_, gpu)| gpu).collect();
        let linked = |one: u8, other: u8| {
            let node = tasks[0].node.clone();
            facts((&node, one)).nvlink.contains(&other) || facts((&node, other)).nvlink.contains(&one)
        };
        let mut reached: Vec<u8> = all.first().copied().into_iter().collect();
        while let Some(next) =
            all.iter().find(|gpu| !reached.contains(gpu) && reached.iter().any(|one| linked(*one, **gpu)))
        {
            reached.push(*next);
        }
        assert!(nodes.len() == 1 && reached.len() == all.len(), "{id} is not joined by NVLink");
    }
    let racks: BTreeSet<&Option<String>> = nodes.iter().map(|node| &before.nodes[*node].facts.rack).collect();
    let one_rack = nodes.len() == 1 || (racks.len() == 1 && !racks.contains(&None));
    assert!(topology != Topology::SameRack || one_rack, "{id} is in several racks");
}

/// No limit per model is passed, of the tenant or of one above it.
fn see_model_limits(before: &State, job: &Job, tasks: &[PlacedTask]) {
    let device = |node: &NodeId, gpu: u8| before.nodes[node].facts.gpus[usize::from(gpu)].model.as_str();
    let parts = |task: &PlacedTask| {
        let part = u64::from(part_of(task).0);
        task.gpus.iter().map(|gpu| (device(&task.node, *gpu), part)).collect::<Vec<_>>()
    };
    let new: Vec<(&str, u64)> = tasks.iter().flat_map(parts).collect();
    for tenant in before.lineage(&job.spec.tenant) {
        let below = |job: &&Job| is_below(before, &job.spec.tenant, &tenant.id);
        let held =
            before.jobs.values().filter(below).filter_map(Job::attempt).flat_map(|attempt| &attempt.tasks);
        let held: Vec<(&str, u64)> = held.flat_map(parts).collect();
        for (model, limit) in &tenant.config.maximum_by_model {
            let of_model = |devices: &[(&str, u64)]| -> u64 {
                devices.iter().filter(|(one, _)| model::matches(model, one)).map(|(_, part)| part).sum()
            };
            let passed = of_model(&new) > 0 && of_model(&held) + of_model(&new) > *limit * 1_000;
            assert!(!passed, "{} passes the limit of {model} of {}", job.id, tenant.id);
        }
    }
}

/// Who is guaranteed what a job displaces others for: amounts, or devices of one model.
type Guarantors<'a> = (Option<&'a TenantId>, &'a [(&'a TenantId, &'a str)]);

/// Nobody is displaced out of a guarantee but by a job within the same one, one victim after the other; only what
/// was borrowed may be had back with the job that lies across the line.
fn see_guarantees_kept(
    before: &State,
    (by, by_model): Guarantors<'_>,
    (victim, reclaimed): (&Job, bool),
    gone: &[JobId],
) {
    let goes = |job: &&Job| {
        let stopping = job.attempt().is_some_and(|attempt| attempt.stopping.is_some());
        stopping || gone.contains(&job.id) || job.id == victim.id
    };
    for tenant in before.lineage(&victim.spec.tenant) {
        let of_tenant = |job: &&Job| is_below(before, &job.spec.tenant, &tenant.id);
        let stays = || {
            let running = before.jobs.values().filter(|job| job.attempt().is_some());
            running.filter(|job| !goes(job)).filter(of_tenant)
        };
        let left = stays().fold(Demand::default(), |sum, job| sum.plus(held_by(job)));
        let same = |by: &TenantId| is_below(before, by, &tenant.id);
        let from_below = by.is_some_and(same) || by_model.iter().any(|(by, _)| same(by));
        let owed = from_below || gives_only_what_it_owes(tenant, left, (victim, reclaimed));
        assert!(owed, "{} loses what it is guaranteed", tenant.id);
        for (model, guaranteed) in &tenant.config.guaranteed_by_model {
            let of = |job: &Job| of_model(before, &job.attempt().unwrap().tasks, model);
            let owed =
                gives_only_what_it_owes_of(*guaranteed, stays().map(of).sum(), (of(victim), reclaimed));
            let same = by_model.iter().any(|(by, of)| of == model && same(by));
            assert!(owed || same, "{} loses what it is guaranteed of {model}", tenant.id);
        }
    }
}

/// What a tenant runs on of a model, and has claimed where the claim still works.
fn held_of_model(before: &State, top: &TenantId, model: &str, now: Timestamp) -> u64 {
    let claims = before.claims.iter().map(|(id, claim)| (&before.jobs[id], claim));
    let below = claims.filter(|(job, _)| is_below(before, &job.spec.tenant, top));
    let works = below.filter(|(job, claim)| is_ready(job) && before.claim_works(job, claim, now));
    let claimed: u64 = works.map(|(_, claim)| of_model(before, &claim.tasks, model)).sum();
    runs_on_model(before, top, model) + claimed
}

/// No tenant loses more of its work within a day than it said it would bear.
fn see_damage_borne(before: &State, victims: &[JobId], now: Timestamp) {
    for tenant in before.tenants.values() {
        let Some(per_day) = tenant.config.damage_gpu_ms_per_day else { continue };
        let victims = victims.iter().map(|victim| &before.jobs[victim]);
        let own: Vec<&Job> = victims.filter(|job| is_below(before, &job.spec.tenant, &tenant.id)).collect();
        let lost: u64 = own.iter().map(|job| lost_gpu_ms(job, job.attempt().unwrap(), now)).sum();
        let borne = own.is_empty() || tenant.damage.gpu_ms(per_day, now) + lost <= per_day;
        assert!(borne, "{} loses more than it bears", tenant.id);
    }
}

/// Only who comes back is let go early, only once it was told to stop, and never with more time than it had.
fn see_shorter_grace(before: &State, id: JobId, grace_ms: i64, at: Timestamp) {
    let attempt = before.jobs[&id].attempt().unwrap();
    let stopping = attempt.stopping.as_ref().unwrap_or_else(|| panic!("{id} was not told to stop"));
    let ends =
        matches!(stopping.cause, StopCause::Cancelled { .. } | StopCause::TimeLimit | StopCause::GangFailed);
    assert!(!ends, "{id} ends for good and keeps its grace");
    assert!(grace_ms < stopping.grace_ms, "{id} has more time than before");
    assert!(at.since(stopping.since) < grace_ms, "{id} has no time left to leave by itself");
}

/// Nobody is put before others by the policies of their own tenant.
fn see_answer(before: &State, answered: &Answered) {
    let asked = before.jobs[&answered.job].spec.priority;
    let cluster = before.policies.active(&Scope::Cluster);
    let raises = cluster.is_some_and(|version| version.bundle.hooks.contains(&Hook::Priority));
    let kept = raises || answered.priority.is_none_or(|priority| priority <= asked);
    assert!(kept, "{} has more than it asked for, and no policy of the cluster said so", answered.job);
}

/// Where policies of the cluster or of the job's tenant say who may be displaced, they have said it of each victim.
fn see_policies_agree(before: &State, id: JobId, victims: &[JobId]) {
    let job = &before.jobs[&id];
    let answer = before.policies.answers.of(&before.bucket(job));
    let asked = policies::answer(before, Hook::Victims, &job.spec.tenant);
    for victim in victims.iter().filter_map(|victim| before.jobs.get(victim)) {
        let said = answer.and_then(|answer| answer.victims.get(&victim.id));
        assert!(!asked || said == Some(&true), "{} was displaced for {id}, and no policy said so", victim.id);
    }
}

/// Displacing is allowed, and helps.
fn see_claim(before: &State, id: JobId, tasks: &[PlacedTask], victims: &[JobId], now: Timestamp) {
    see_policies_agree(before, id, victims);
    let job = &before.jobs[&id];
    assert!(before.settings.preemption && before.tenants[&job.spec.tenant].config.may_preempt);
    let demand = demand_of(job, tasks);
    assert!(is_ready(job) && is_within_quota(before, job, demand), "{id} displaces others and may not start");
    assert!(is_within_user_quota(before, job, demand), "{id} displaces others and its user holds too much");
    let within = policies::is_within_limits(before, job, demand, &[]);
    assert!(within, "{id} displaces others, and a policy lets its tenant hold no more");
    see_damage_borne(before, victims, now);
    let guarantor = guarantor(before, job, |tenant| held_below(before, tenant)).map(|by| &by.id);
    let by_model = model_guarantors(before, job, |tenant, model| held_of_model(before, tenant, model, now));
    for (place, victim) in victims.iter().map(|victim| &before.jobs[victim]).enumerate() {
        let config = &before.tenants[&victim.spec.tenant].config;
        let attempt = victim.attempt().unwrap();
        let passed = attempt.lent && waiting_since(job).is_some_and(|since| since <= attempt.placed_at);
        let weaker = victim.spec.priority < job.spec.priority;
        let saves = victim.spec.checkpoint.is_some() || attempt.saved_at.is_some();
        let moved = before.settings.defragment
            && saves
            && victim.preemptions == 0
            && victim.spec.priority <= job.spec.priority;
        let weaker = weaker || passed || moved || gives_way(before, victim, job, now);
        let elsewhere = |by: &TenantId| !is_below(before, &victim.spec.tenant, by);
        let on_model = |model: &str| of_model(before, &attempt.tasks, model) > 0;
        let reclaimed = guarantor.is_some_and(elsewhere)
            || by_model.iter().any(|(by, model)| elsewhere(by) && on_model(model));
        assert!(weaker || reclaimed, "{} is not weaker than {id}", victim.id);
        see_guarantees_kept(before, (guarantor, &by_model), (victim, reclaimed), &victims[..place]);
        assert!(config.may_be_preempted, "{} may not be displaced", victim.id);
        let often = config.preemptions_per_job_max.is_some_and(|max| victim.preemptions >= max);
        assert!(!often, "{} was displaced often enough", victim.id);
        assert!(victim.attempt().unwrap().stopping.is_none(), "{} stops already", victim.id);
        let ran = now.since(victim.attempt().unwrap().placed_at);
        let shaken = victim.preemptions > 0 && ran < before.settings.preemption_cooldown_ms;
        assert!(!shaken, "{} was displaced just before", victim.id);
    }
    for node in tasks.iter().map(|task| &task.node).collect::<BTreeSet<_>>() {
        see_room_after(before, job, tasks.iter().filter(|task| task.node == *node).collect(), victims);
    }
}

/// Where jobs should be done soon, longer work of no higher priority gives way to shorter; once, unless it saves its work.
fn gives_way(before: &State, victim: &Job, to: &Job, now: Timestamp) -> bool {
    let attempt = victim.attempt().unwrap();
    let saves = victim.spec.checkpoint.is_some() || attempt.saved_at.is_some();
    let (left, takes) = (before.left_ms(victim, now), before.left_ms(to, now));
    let smaller = takes as u64 * to.spec.demand().gpu_milli < left as u64 * held_by(victim).gpu_milli;
    before.settings.objective == Objective::Fast
        && (saves || victim.preemptions == 0)
        && victim.spec.priority <= to.spec.priority
        // Who saves its work gives way to who is sooner done.
        && (smaller || (saves && takes < left))
}

/// On one node, with these tasks: devices are free or will be, and cores are enough.
fn see_room_after(before: &State, job: &Job, tasks: Vec<&PlacedTask>, victims: &[JobId]) {
    let (id, node) = (job.id, &before.nodes[&tasks[0].node]);
    assert_eq!(node.state.word, NodeWord::Ready);
    for gpu in 0..node.holders.len() as u8 {
        let stays = node.jobs.iter().filter(|job| !victims.contains(job)).map(|job| &before.jobs[job]);
        let stays = stays.flat_map(|job| &job.attempt().unwrap().tasks).filter(|task| task.node == node.id);
        let here = stays.chain(tasks.iter().copied()).filter(|task| task.gpus.contains(&gpu));
        let sum = here.map(part_of).fold((0, 0), |sum, part| (sum.0 + part.0, sum.1 + part.1));
        let wanted = tasks.iter().any(|task| task.gpus.contains(&gpu));
        assert!(!wanted || sum.0.max(sum.1) <= 1_000, "{id} would find its devices held by others");
    }
    let staying = node.jobs.iter().filter(|job| !victims.contains(job)).map(|job| &before.jobs[job]);
    let staying: u64 = staying
        .flat_map(|job| job.attempt().unwrap().tasks.iter().map(move |task| (job, task)))
        .filter(|(_, task)| task.node == node.id)
        .map(|(job, task)| own(job, task).0)
        .sum();
    let wanted: u64 = tasks.iter().map(|task| own(job, task).0).sum();
    assert!(wanted == 0 || staying + wanted <= u64::from(node.facts.cpus), "{id} would find too few cores");
}

/// A device is cut only as its model allows, or as its agent found it, and never while anyone holds or has claimed it.
fn see_cut(before: &State, gpu: &GpuId, instances: &[MigInstance], why: &str) {
    let Some(node) = before.nodes.get(&gpu.node) else { return };
    assert!(!node.is_held(usize::from(gpu.index)), "{gpu} is cut while it is held");
    let claimed = before.claims.values().any(|claim| claim.holds(&gpu.node, gpu.index));
    assert!(!claimed, "{gpu} is cut while it is claimed");
    let legal = check(&node.facts.gpus[usize::from(gpu.index)], gpu.index, instances);
    assert!(legal.is_ok() || why == "its agent found it so", "{gpu}: {legal:?}");
}

/// Who shares a device is kept apart from the others as they asked.
fn see_kept_apart(isolation: Isolation, mode: &ShareMode, model: &str) {
    match (isolation, mode) {
        (Isolation::Full, ShareMode::Mps | ShareMode::TimeSlice) => panic!("{mode:?} keeps nobody apart"),
        (Isolation::Memory, ShareMode::TimeSlice) => panic!("memory is not kept apart in turns"),
        (_, ShareMode::Mps) => assert!(model::can_limit_shares(model), "{model} knows no limits"),
        _ => {}
    }
}

/// What a task has of each of its devices, in thousandths of compute and of memory.
fn part_of(task: &PlacedTask) -> (u32, u32) {
    task.share.as_ref().map_or((1_000, 1_000), |share| (share.compute_milli, share.memory_milli))
}

/// Cores and memory of one task.
fn own(job: &Job, task: &PlacedTask) -> (u64, u64) {
    let each = &job.spec.tasks[task.group as usize].each;
    (u64::from(each.cpus), each.memory_mib)
}

/// Nobody starts again after a failure before policies that answer that have answered.
fn see_woken(before: &State, job: JobId, at: Timestamp) {
    let asleep = &before.jobs[&job];
    assert!(asleep.wakes_at.is_some_and(|moment| moment <= at), "{job} was woken early");
    let asked = policies::answer(before, Hook::Retry, &asleep.spec.tenant);
    assert!(!asked || !before.policies.failures.contains_key(&job), "{job} was woken unasked");
}

/// A policy can put a start off, by a day at most, and never bring it forward.
fn see_retry(before: &State, answer: &Retried, wakes_at: Timestamp, at: Timestamp) {
    let failure = &before.policies.failures[&answer.job];
    assert_eq!(failure.seen.attempt, answer.attempt, "{} was asked about another attempt", answer.job);
    let meant = before.jobs[&answer.job].wakes_at.unwrap();
    assert!(wakes_at >= meant, "{} starts earlier for a policy", answer.job);
    assert!(wakes_at <= meant.max(at.plus(24 * 3_600_000)), "{} is put off for too long", answer.job);
}

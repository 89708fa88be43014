//! Step 8, adopt: take a plan gang by gang, as far as it still holds.
//!
//! A plan comes from a snapshot that may be old, or from anyone. Nothing in it is believed: each gang is
//! checked against the state of now and what this same plan has already taken.

use std::collections::{BTreeMap, BTreeSet};

use crate::capacity::{Free, mask};
use crate::command::Answer;
use crate::event::Event;
use crate::guarantee::{guarantor, is_below};
use crate::ids::{JobId, NodeId, TenantId};
use crate::job::{Job, JobSpec, PlacedTask, StopCause};
use crate::model;
use crate::node::Node;
use crate::plan::{MakeRoom, Plan, Start};
use crate::state::decide::Decision;
use crate::state::tally::Tally;
use crate::state::{Claim, State};
use crate::tenant::Tenant;
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
        if !is_whole_gang(&job.spec, &start.tasks) || !self.quota_admits(job, tally) {
            return None;
        }
        if !self.array_admits(job, tally) || !self.space_admits(job, &start.tasks, tally) {
            return None;
        }
        let devices = start.tasks.iter().flat_map(|task| task.gpus.iter().map(|gpu| (&task.node, *gpu)));
        if !self.models_admit(job, &devices.collect::<Vec<_>>(), tally) {
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
            at: now,
        });
        Some(facts)
    }

    /// A job that waits, awake and without open dependencies, and was not taken by this plan already.
    fn placeable(&self, id: JobId, tally: &Tally) -> Option<&Job> {
        let job = self.jobs.get(&id)?;
        let ready = job.is_queued() && job.wakes_at.is_none() && job.open_dependencies.is_empty();
        (ready && !tally.jobs.contains(&id)).then_some(job)
    }

    fn quota_admits(&self, job: &Job, tally: &Tally) -> bool {
        let affordable = |tenant: &Tenant| !tally.broke.contains_key(&tenant.id);
        self.lineage(&job.spec.tenant).all(affordable)
            && self.lineage(&job.spec.tenant).all(|tenant| {
                let held = tally.held.get(&tenant.id).copied().unwrap_or_default();
                tenant.config.maximum.excess(held.plus(job.spec.demand())).is_empty()
            })
    }

    /// Whether the limits per model of the tenant, and of all above it, let the job have these devices.
    fn models_admit(&self, job: &Job, devices: &[(&NodeId, u8)], tally: &Tally) -> bool {
        let model_of = |(node, gpu): &(&NodeId, u8)| {
            let gpus = &self.nodes.get(*node)?.facts.gpus;
            Some(gpus.get(usize::from(*gpu))?.model.as_str())
        };
        let of_model = |limited: &str| {
            let models = devices.iter().filter_map(model_of);
            models.filter(|device| model::matches(limited, device)).count() as u64
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
        let mut used: BTreeMap<NodeId, Free> = BTreeMap::new();
        for task in tasks {
            let Some(node) = self.nodes.get(&task.node) else { return false };
            let taken = tally.used.get(&task.node).copied().unwrap_or_default();
            let here = used.entry(task.node.clone()).or_default();
            // Whoever this plan has started no longer needs its claim: what it uses is in the tally.
            let claimed = self.claimed(&task.node, |id| id == job.id || tally.jobs.contains(&id));
            if !self.task_fits(job, task, node, taken.with(*here), claimed) {
                return false;
            }
            *here = here.with(Free::used_by(&job.spec, task));
        }
        true
    }

    /// Whether one task fits beside what this plan has already used on the node, and what others claim there.
    fn task_fits(&self, job: &Job, task: &PlacedTask, node: &Node, used: Free, claimed: Free) -> bool {
        let Some(filed) = self.capacity.filed(&node.id) else { return false };
        let more = Free::used_by(&job.spec, task);
        let each = &job.spec.tasks[task.group as usize].each;
        let free = filed.free.without(claimed);
        filed.open
            && filed.kind.admits(&crate::queue::Shape::of(&job.spec))
            && more.gpus & !(free.gpus & !used.gpus & filed.kind.eligible_gpus(each)) == 0
            && used.cpus + more.cpus <= free.cpus
            && used.memory_mib + more.memory_mib <= free.memory_mib
    }

    /// What the victims of a claim still hold where it is. One that came back and runs again is no victim.
    pub fn coming_for(&self, claim: &Claim) -> Free {
        let victims = claim.victims.iter().filter_map(|victim| self.jobs.get(victim));
        let stopping = |job: &&Job| job.attempt().is_some_and(|attempt| attempt.stopping.is_some());
        let stopping = victims.filter(stopping);
        stopping.fold(Free::default(), |sum, job| sum.with(Free::used_on(&claim.node, job)))
    }

    /// What is held on a node for jobs that wait, except for some: their devices, and the cores and memory
    /// that their victims, as far as they still run, will not give them.
    pub fn claimed(&self, node: &NodeId, except: impl Fn(JobId) -> bool) -> Free {
        let others = self.claims.iter().filter(|(id, claim)| !except(**id) && claim.node == *node);
        others.fold(Free::default(), |sum, (id, claim)| {
            let wanted = self.jobs.get(id).map(|job| job.spec.demand()).unwrap_or_default();
            let coming = self.coming_for(claim);
            Free {
                gpus: sum.gpus | mask(&claim.gpus),
                cpus: sum.cpus + wanted.cpus.saturating_sub(coming.cpus),
                memory_mib: sum.memory_mib + wanted.memory_mib.saturating_sub(coming.memory_mib),
            }
        })
    }

    /// The facts of making room, if every victim may be displaced and the job fits afterwards.
    fn adopt_claim(&self, room: &MakeRoom, now: Timestamp, tally: &mut Tally) -> Option<Vec<Event>> {
        let job = self.placeable(room.job, tally)?;
        let tenant = self.tenants.get(&job.spec.tenant)?;
        let allowed = self.settings.preemption && tenant.config.may_preempt;
        if !allowed || self.claims.contains_key(&job.id) || room.victims.is_empty() {
            return None;
        }
        let victims = self.victims(job, room, tally)?;
        if !self.quota_admits(job, tally) || !self.array_admits(job, tally) {
            return None;
        }
        let devices: Vec<(&NodeId, u8)> = room.gpus.iter().map(|gpu| (&room.node, *gpu)).collect();
        if !self.fits_after(job, room, &victims, tally) || !self.models_admit(job, &devices, tally) {
            return None;
        }
        tally.jobs.extend(room.victims.iter().copied());
        victims.iter().for_each(|victim| tally.fewer.add(self, victim));
        tally.claim(self, job, room);
        let until = now.plus(self.settings.stop_grace_ms).plus(self.settings.claim_ms);
        let mut facts = vec![Event::ClaimMade {
            job: job.id,
            node: room.node.clone(),
            gpus: room.gpus.clone(),
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
    fn victims(&self, job: &Job, room: &MakeRoom, tally: &Tally) -> Option<Vec<&Job>> {
        let unique: BTreeSet<&JobId> = room.victims.iter().collect();
        if unique.len() != room.victims.len() {
            return None;
        }
        let held = |tenant: &TenantId| tally.held.get(tenant).copied().unwrap_or_default();
        let runs = |tenant: &TenantId| tally.runs.get(tenant).copied().unwrap_or_default();
        let guarantor = guarantor(self, &job.spec.tenant, job.spec.demand(), held);
        let mut fewer = tally.fewer.clone();
        let may_go = |id: &JobId| {
            let victim = self.jobs.get(id)?;
            let here = victim.attempt()?.tasks.iter().any(|task| task.node == room.node);
            let reclaimed = guarantor.is_some_and(|by| !is_below(self, &victim.spec.tenant, by));
            let weaker = victim.spec.priority < job.spec.priority;
            let allowed = here && !tally.jobs.contains(id) && self.may_be_displaced(victim);
            let owed = || fewer.allows(self, (victim, reclaimed), guarantor, runs);
            let goes = (allowed && (weaker || reclaimed) && owed()).then_some(victim)?;
            fewer.add(self, goes);
            Some(goes)
        };
        room.victims.iter().map(may_go).collect()
    }

    /// Whether its tenant's rules let a running job be displaced at all.
    fn may_be_displaced(&self, victim: &Job) -> bool {
        let Some(attempt) = victim.attempt() else { return false };
        let Some(tenant) = self.tenants.get(&victim.spec.tenant) else { return false };
        let spared = tenant.config.preemptions_per_job_max.is_some_and(|max| victim.preemptions >= max);
        attempt.stopping.is_none() && tenant.config.may_be_preempted && !spared
    }

    /// Whether the job fits once the victims are gone, on exactly the devices that are claimed for it.
    fn fits_after(&self, job: &Job, room: &MakeRoom, victims: &[&Job], tally: &Tally) -> bool {
        let (Some(node), Some(filed)) = (self.nodes.get(&room.node), self.capacity.filed(&room.node)) else {
            return false;
        };
        let wanted = mask(&room.gpus);
        let freed = victims.iter().fold(Free::default(), |sum, job| sum.with(Free::used_on(&node.id, job)));
        // Counted from what is held: a machine that came back smaller than its jobs has less than nothing free.
        let later = Free {
            gpus: (filed.free.gpus | freed.gpus & self.usable_gpus(&node.id)) & wanted,
            cpus: (u64::from(node.facts.cpus) + freed.cpus).saturating_sub(node.cpus_held),
            memory_mib: (node.facts.memory_mib + freed.memory_mib).saturating_sub(node.memory_mib_held),
        };
        let used = tally.used.get(&node.id).copied().unwrap_or_default();
        let after = later.without(self.claimed(&node.id, |id| id == job.id)).without(used);
        let shape = crate::queue::Shape::of(&job.spec);
        filed.open
            && after.gpus == wanted
            && wanted.count_ones() == job.spec.gpus()
            && room.gpus.len() == job.spec.gpus() as usize
            && filed.kind.admits(&shape)
            && filed.kind.fit(&shape, after).is_some()
    }

    /// Devices of a node that may be given out once nobody holds them, as bits.
    pub fn usable_gpus(&self, node: &NodeId) -> u64 {
        let Some(node) = self.nodes.get(node) else { return 0 };
        (0..node.facts.gpus.len())
            .filter(|index| node.gpu_usable(*index))
            .fold(0, |mask, index| mask | 1 << index)
    }
}

/// Whether the tasks are the gang, rank by rank, each with as many different devices as it asked for.
fn is_whole_gang(spec: &JobSpec, tasks: &[PlacedTask]) -> bool {
    let ranks = spec.tasks.iter().enumerate().flat_map(|(group, of)| (0..of.count).map(move |_| group));
    let expected: Vec<usize> = ranks.collect();
    let complete = |(rank, (task, group)): (usize, (&PlacedTask, &usize))| {
        let devices: BTreeSet<&u8> = task.gpus.iter().filter(|gpu| **gpu < 64).collect();
        task.rank as usize == rank
            && task.group as usize == *group
            && devices.len() == task.gpus.len()
            && devices.len() == spec.tasks[*group].each.gpus as usize
    };
    tasks.len() == expected.len() && tasks.iter().zip(&expected).enumerate().all(complete)
}

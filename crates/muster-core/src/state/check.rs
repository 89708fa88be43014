//! Invariants ("laws") of a single state. Debug builds, the simulator and all tests check them after each batch of
//! events.
//!
//! Indexes and counts that are kept for speed are recomputed from their source and compared.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::ids::{JobId, NodeId, TenantId};
use crate::objects::demand::Demand;
use crate::objects::job::{Job, Phase};
use crate::objects::node::{Lease, Sight, Slot, fit_on_one_device};
use crate::state::{ArrayState, State};

/// A violated invariant, as a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation(pub String);

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl State {
    /// Every violated invariant; empty for a valid state. O(state).
    pub fn check(&self) -> Vec<Violation> {
        let mut found = Vec::new();
        self.check_holders(&mut found);
        self.check_gangs(&mut found);
        self.check_master_ports(&mut found);
        self.check_tenants(&mut found);
        self.check_arrays(&mut found);
        self.check_claims(&mut found);
        self.check_ends(&mut found);
        self.check_fenced_nodes(&mut found);
        self.check_derived(&mut found);
        found
    }

    /// A slot has at most one holder, shares never exceed their device, and the node records exactly these holders.
    fn check_holders(&self, found: &mut Vec<Violation>) {
        let mut holders: BTreeMap<(&NodeId, usize), Vec<Lease>> = BTreeMap::new();
        let mut used: BTreeMap<&NodeId, (u64, u64)> = BTreeMap::new();
        let mut jobs: BTreeMap<&NodeId, BTreeSet<JobId>> = BTreeMap::new();
        for (job, attempt) in self.jobs.values().filter_map(|job| Some((job, job.attempt()?))) {
            for task in &attempt.tasks {
                let lease = Lease { job: job.id, slot: Slot::of(task) };
                for gpu in &task.gpus {
                    holders.entry((&task.node, usize::from(*gpu))).or_default().push(lease);
                }
                let each = &job.spec.tasks[task.group as usize].each;
                let (cpus, memory) = used.entry(&task.node).or_default();
                *cpus += u64::from(each.cpus);
                *memory += each.memory_mib;
                jobs.entry(&task.node).or_default().insert(job.id);
            }
        }
        for node in self.nodes.values() {
            for (gpu, recorded) in node.holders.iter().enumerate() {
                let mut actual = holders.remove(&(&node.id, gpu)).unwrap_or_default();
                actual.sort_unstable();
                if *recorded != actual {
                    let gpu = format!("{}/gpu-{gpu}", node.id);
                    found.push(Violation(format!("{gpu} is held by {actual:?}, the node records {recorded:?}")));
                }
                if !fit_on_one_device(recorded) {
                    found.push(Violation(format!("{}/gpu-{gpu} is oversubscribed: {recorded:?}", node.id)));
                }
            }
            let (cpus, memory) = used.get(&node.id).copied().unwrap_or_default();
            if (cpus, memory) != (node.cpus_held, node.memory_mib_held) {
                found.push(Violation(format!("{}: cores or memory held are miscounted", node.id)));
            }
            if jobs.get(&node.id).cloned().unwrap_or_default() != node.jobs {
                found.push(Violation(format!("{}: its list of jobs is wrong", node.id)));
            }
        }
        for ((node, gpu), leases) in holders {
            found.push(Violation(format!("{node}/gpu-{gpu} does not exist and is held by {leases:?}")));
        }
    }

    /// A gang is placed whole or not at all, with the requested number of devices on registered nodes.
    fn check_gangs(&self, found: &mut Vec<Violation>) {
        for (job, attempt) in self.jobs.values().filter_map(|job| Some((job, job.attempt()?))) {
            if !job.spec.is_complete(&attempt.tasks) {
                found.push(Violation(format!("{} is not a whole gang: {:?}", job.id, attempt.tasks)));
            }
            for task in &attempt.tasks {
                let each = &job.spec.tasks[task.group as usize].each;
                if task.gpus.len() != each.gpus as usize || !self.nodes.contains_key(&task.node) {
                    found.push(Violation(format!("{} rank {} does not match its request", job.id, task.rank)));
                }
            }
            if attempt.number != job.attempts {
                found.push(Violation(format!(
                    "{} counts {} attempts, but runs attempt {}",
                    job.id, job.attempts, attempt.number
                )));
            }
        }
    }

    /// No two live attempts hold the same port of the same node.
    fn check_master_ports(&self, found: &mut Vec<Violation>) {
        let mut holders: BTreeMap<(&NodeId, u16), JobId> = BTreeMap::new();
        for (job, attempt) in self.jobs.values().filter_map(|job| Some((job, job.attempt()?))) {
            let Some((master, port)) = attempt.master_and_port() else { continue };
            if let Some(other) = holders.insert((master, port), job.id) {
                found.push(Violation(format!("port {port} of {master} is held by {other} and {}", job.id)));
            }
        }
    }

    /// Tenants and members hold exactly what their attempts hold. (That a quota is never exceeded is an invariant of
    /// transitions: a quota may be lowered below what is held.)
    fn check_tenants(&self, found: &mut Vec<Violation>) {
        let mut held: BTreeMap<&TenantId, (Demand, u64, i128)> = BTreeMap::new();
        let mut members: BTreeMap<(&TenantId, &str), (Demand, u64)> = BTreeMap::new();
        for job in self.jobs.values() {
            let (demand, live, placed) = held.entry(&job.spec.tenant).or_default();
            let (own, jobs) = members.entry((&job.spec.tenant, &job.spec.user)).or_default();
            *live += 1;
            *jobs += 1;
            if let Some(attempt) = job.attempt() {
                *demand = demand.plus(job.held());
                *placed += i128::from(attempt.gpu_milli()) * i128::from(attempt.placed_at.0);
                *own = own.plus(job.held());
            }
        }
        for (tenant, (name, member)) in
            self.tenants.values().flat_map(|tenant| tenant.members.iter().map(move |member| (tenant, member)))
        {
            let actual = members.remove(&(&tenant.id, name.as_str())).unwrap_or_default();
            if actual != (member.held, member.live_jobs) {
                found.push(Violation(format!(
                    "{name} of tenant {} is miscounted: {member:?}, actually {actual:?}",
                    tenant.id
                )));
            }
        }
        for (tenant, name) in members.keys() {
            found.push(Violation(format!("{name} of tenant {tenant} has jobs but is not a member")));
        }
        for (id, tenant) in &self.tenants {
            let (demand, live, placed) = held.remove(id).unwrap_or_default();
            if (demand, live, placed) != (tenant.held, tenant.live_jobs, tenant.placed_gpu_milli_ms) {
                found.push(Violation(format!("tenant {id} is miscounted: {:?}, actually {demand:?}", tenant.held)));
            }
        }
        for tenant in held.keys() {
            found.push(Violation(format!("tenant {tenant} has jobs but does not exist")));
        }
    }

    fn check_arrays(&self, found: &mut Vec<Violation>) {
        let mut counted: BTreeMap<u64, (u32, u32)> = BTreeMap::new();
        for job in self.jobs.values().filter(|job| job.id.index.is_some()) {
            let (live, active) = counted.entry(job.id.number).or_default();
            *live += 1;
            *active += u32::from(job.attempt().is_some());
        }
        let recorded: BTreeMap<u64, (u32, u32)> =
            self.arrays.iter().map(|(number, array)| (*number, (array.live, array.active))).collect();
        if counted != recorded {
            found.push(Violation(format!("arrays are miscounted: {recorded:?}, actually {counted:?}")));
        }
        let over = |array: &ArrayState| array.running_max.is_some_and(|max| array.active > max);
        for (number, _) in self.arrays.iter().filter(|(_, array)| over(array)) {
            found.push(Violation(format!("array job-{number} exceeds its limit of running tasks")));
        }
    }

    /// Only queued jobs have claims, and no device is claimed twice.
    fn check_claims(&self, found: &mut Vec<Violation>) {
        let mut devices: BTreeMap<(&NodeId, u8), Vec<Lease>> = BTreeMap::new();
        for (id, claim) in &self.claims {
            if !self.jobs.get(id).is_some_and(Job::is_queued) {
                found.push(Violation(format!("{id} has a claim but is not queued")));
            }
            for task in &claim.tasks {
                let lease = Lease { job: *id, slot: Slot::of(task) };
                task.devices().for_each(|device| devices.entry(device).or_default().push(lease));
            }
        }
        for ((node, gpu), leases) in devices.into_iter().filter(|(_, leases)| !fit_on_one_device(leases)) {
            found.push(Violation(format!("{node}/gpu-{gpu} is claimed twice: {leases:?}")));
        }
    }

    /// No ended job is live, and no dependency on an ended job is open.
    fn check_ends(&self, found: &mut Vec<Violation>) {
        for id in self.ended.keys().filter(|id| self.jobs.contains_key(id)) {
            found.push(Violation(format!("{id} has ended but is live")));
        }
        for job in self.jobs.values() {
            for open in job.open_dependencies.iter().filter(|open| self.ended.contains_key(&open.job)) {
                found.push(Violation(format!("{} still depends on {}, which has ended", job.id, open.job)));
            }
            if matches!(job.phase, Phase::Active(_)) && !job.open_dependencies.is_empty() {
                found.push(Violation(format!("{} runs before its dependencies", job.id)));
            }
        }
    }

    /// Nothing is recorded as running on a fenced node.
    fn check_fenced_nodes(&self, found: &mut Vec<Violation>) {
        for node in self.nodes.values().filter(|node| node.state.sight.status == Sight::Fenced) {
            let open = self.attempts_on(&node.id).filter_map(|job| Some((job, job.attempt()?)));
            for (job, _) in open.filter(|(_, attempt)| attempt.has_open_part(&node.id)) {
                found.push(Violation(format!("{} runs on {}, which is fenced", job.id, node.id)));
            }
        }
    }

    /// Indexes kept for speed equal those built from scratch.
    fn check_derived(&self, found: &mut Vec<Violation>) {
        let mut fresh = State {
            jobs: self.jobs.clone(),
            nodes: self.nodes.clone(),
            tenants: self.tenants.clone(),
            arrays: self.arrays.clone(),
            workload_mix: self.workload_mix.clone(),
            policies: self.policies.clone(),
            ..State::default()
        };
        fresh.derive();
        let is_queued = |bucket| self.queue.bucket(bucket).is_some();
        let waiting = self.tenants_waiting();
        let pools = self.nodes.iter().all(|(id, node)| fresh.nodes[id].pools == node.pools);
        let parts = [
            ("answers", self.policies.answers.iter().all(|(bucket, _)| is_queued(bucket))),
            ("policy limits", self.policies.limits.keys().all(|tenant| waiting.contains(tenant))),
            ("pools", pools),
            ("exact limits", fresh.policies.bucket_criteria.exact_limits == self.policies.bucket_criteria.exact_limits),
            ("queue", fresh.queue == self.queue),
            ("resources", fresh.resources == self.resources),
            ("dependents", fresh.dependents == self.dependents),
            ("master ports", fresh.master_ports == self.master_ports),
            ("deadlines", fresh.deadlines == self.deadlines),
            ("ends", fresh.ends == self.ends),
        ];
        for (name, _) in parts.into_iter().filter(|(_, same)| !same) {
            found.push(Violation(format!("the stored {name} differ from the recomputed {name}")));
        }
    }
}

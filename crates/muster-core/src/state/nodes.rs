//! Step 4, decide: the commands about nodes and GPUs: registration, labels, partitions, health.

use std::collections::{BTreeMap, BTreeSet};

use crate::facts::command::{Actor, JobsOnGpu};
use crate::facts::event::Event;
use crate::facts::refusal::Refusal;
use crate::gpu::device::{DeclaredHealth, GPUS_PER_NODE_MAX, GpuFacts, GpuHealth, GpuStatus};
use crate::gpu::partition;
use crate::ids::{GpuId, JobId, NodeId};
use crate::objects::job::StopCause;
use crate::objects::node::NodeFacts;
use crate::state::State;
use crate::state::decision::Decision;
use crate::state::submit::{CPUS_MAX, MEMORY_MIB_MAX};
use crate::time::{HOUR, Timestamp};

/// A change of labels or taints by an operator: `None` keeps them, `Some(None)` returns them to the agent.
type OperatorChange<'a, T> = Option<&'a Option<T>>;

/// The longest interval of heartbeats, as in the configuration of agents.
const HEARTBEAT_INTERVAL_MS_MAX: i64 = HOUR;

/// New health of a GPU: a reading of its agent, or a declaration of an operator.
pub(super) struct HealthUpdate<'a> {
    pub gpu: GpuId,
    pub status: GpuStatus,
    pub why: &'a str,
    pub cooling_until: Option<Timestamp>,
    pub temperature_c: Option<i32>,
}

impl State {
    pub(super) fn decide_register(&self, id: &NodeId, facts: &NodeFacts, now: Timestamp) -> Result<Decision, Refusal> {
        check_facts(facts)?;
        let (reported, boot_id) = (&facts.gpus, facts.boot_id.clone());
        let facts = self.with_known_indexes(id, facts)?;
        // Before the registration, which may shorten the list of devices.
        let mut events = self.device_health_after(id, reported, now);
        events.extend(self.found_partitioned(id, &facts, now));
        if self.nodes.get(id).is_none_or(|node| node.facts != facts || node.declared) {
            let registered = Event::NodeRegistered { node: id.clone(), facts: Box::new(facts), at: now };
            events.insert(0, registered);
        }
        events.extend(self.node_registered_again(id, now));
        events.extend(self.node_rebooted(id, &boot_id, now));
        Ok(Decision::done(events))
    }

    pub(super) fn decide_declare(
        &self,
        by: &Actor,
        id: &NodeId,
        facts: &NodeFacts,
        now: Timestamp,
    ) -> Result<Decision, Refusal> {
        check_facts(facts)?;
        let known = self.nodes.get(id);
        if known.is_some_and(|node| !node.declared) {
            return Err(Refusal::NodeJoined { node: id.clone() });
        }
        // Labels and taints in a declaration are the operator's: the agent's registration must not erase them.
        let mut facts = Box::new(facts.clone());
        let labels = Some(std::mem::take(&mut facts.labels)).filter(|labels| !labels.is_empty());
        let taints = Some(std::mem::take(&mut facts.taints)).filter(|taints| !taints.is_empty());
        let (node, by) = (id.clone(), by.name.clone());
        let is_labelled = known
            .map_or((None, None), |node| (node.operator.labels.clone(), node.operator.taints.clone()))
            == (labels.clone(), taints.clone());
        let mut events = Vec::new();
        if known.is_none_or(|known| known.facts != *facts) {
            events.push(Event::NodeDeclared { node: node.clone(), facts, by: by.clone(), at: now });
        }
        if !is_labelled {
            events.push(Event::NodeLabelled { node, labels, taints, by, at: now });
        }
        Ok(Decision::done(events))
    }

    pub(super) fn decide_label(
        &self,
        by: &Actor,
        id: &NodeId,
        labels: OperatorChange<'_, BTreeMap<String, String>>,
        taints: OperatorChange<'_, Vec<String>>,
        now: Timestamp,
    ) -> Result<Decision, Refusal> {
        let before = &self.node(id)?.operator;
        let labels = labels.unwrap_or(&before.labels).clone();
        let taints = taints.unwrap_or(&before.taints).clone();
        if (&labels, &taints) == (&before.labels, &before.taints) {
            return Ok(Decision::done(Vec::new()));
        }
        let (node, by) = (id.clone(), by.name.clone());
        Ok(Decision::done(vec![Event::NodeLabelled { node, labels, taints, by, at: now }]))
    }

    pub(super) fn decide_remove_gpu(
        &self,
        by: &Actor,
        id: &NodeId,
        gpu: u8,
        now: Timestamp,
    ) -> Result<Decision, Refusal> {
        let node = self.node(id)?;
        if !node.declared {
            return Err(Refusal::NodeJoined { node: id.clone() });
        }
        if usize::from(gpu) >= node.facts.gpus.len() {
            return Err(Refusal::UnknownGpu { node: id.clone(), gpu });
        }
        let facts = Box::new(without_gpu(&node.facts, gpu));
        let (node, by) = (id.clone(), by.name.clone());
        Ok(Decision::done(vec![Event::NodeDeclared { node, facts, by, at: now }]))
    }

    /// Record the partitions that the agent found on idle devices, where they differ from the last registration.
    fn found_partitioned(&self, id: &NodeId, facts: &NodeFacts, now: Timestamp) -> Vec<Event> {
        let known = self.nodes.get(id);
        let partitioned = |(index, gpu): (u8, &GpuFacts)| {
            let before = known.and_then(|node| node.facts.gpus.get(usize::from(index)));
            let unchanged = |before: &GpuFacts| before.mig == gpu.mig && before.model == gpu.model;
            let recorded = known.map_or(&[][..], |node| node.instances(index)) == gpu.mig;
            let id = GpuId { node: id.clone(), index };
            let busy = known.is_some() && !self.is_unused(&id);
            (!before.is_some_and(unchanged) && !recorded && !busy).then(|| Event::GpuPartitioned {
                gpu: id,
                instances: gpu.mig.clone(),
                by: Actor::system().name,
                why: "found by its agent".to_string(),
                at: now,
            })
        };
        (0..).zip(&facts.gpus).filter_map(partitioned).collect()
    }

    pub(super) fn decide_remove_node(&self, id: &NodeId, now: Timestamp) -> Result<Decision, Refusal> {
        if !self.nodes.contains_key(id) && self.enrolments.contains_key(id) {
            // Its agent has a certificate and has never registered.
            return Ok(Decision::done(vec![Event::NodeRemoved { node: id.clone(), at: now }]));
        }
        let node = self.node(id)?;
        if !node.jobs.is_empty() {
            return Err(Refusal::NodeBusy { node: id.clone(), jobs: node.jobs.len() });
        }
        let claims = self.claims.iter().filter(|(_, claim)| claim.is_on(id));
        let mut events: Vec<Event> = claims
            .map(|(job, _)| Event::ClaimEnded { job: *job, why: "a claimed node was removed".into(), at: now })
            .collect();
        events.push(Event::NodeRemoved { node: id.clone(), at: now });
        Ok(Decision::done(events))
    }

    pub(super) fn decide_partition(
        &self,
        by: &Actor,
        why: &str,
        gpu: GpuId,
        profiles: &[String],
        now: Timestamp,
    ) -> Result<Decision, Refusal> {
        let node = self.node(&gpu.node)?;
        let Some(facts) = node.facts.gpus.get(usize::from(gpu.index)) else {
            return Err(Refusal::UnknownGpu { node: gpu.node, gpu: gpu.index });
        };
        let invalid = |problem| Refusal::Invalid { field: "profiles", problem };
        let instances = partition::laid_out(facts, profiles).map_err(invalid)?;
        partition::check(facts, gpu.index, &instances).map_err(invalid)?;
        if !self.is_unused(&gpu) {
            return Err(Refusal::GpuBusy { gpu });
        }
        if node.instances(gpu.index) == instances {
            return Ok(Decision::done(Vec::new()));
        }
        let (by, why) = (by.name.clone(), why.to_string());
        Ok(Decision::done(vec![Event::GpuPartitioned { gpu, instances, by, why, at: now }]))
    }

    /// True if no lease and no claim holds anything of a device.
    pub(super) fn is_unused(&self, gpu: &GpuId) -> bool {
        let held = self.nodes.get(&gpu.node).is_none_or(|node| node.is_held(usize::from(gpu.index)));
        !held && !self.claims.values().any(|claim| claim.holds(&gpu.node, gpu.index))
    }

    /// Record a reading of the agent or a declaration of an operator. The worse of the two counts; a declaration of
    /// `healthy` removes the former declaration, so that the next reading counts alone.
    pub(super) fn decide_gpu_health(
        &self,
        by: &Actor,
        update: &HealthUpdate,
        now: Timestamp,
    ) -> Result<Decision, Refusal> {
        let GpuId { node, index } = &update.gpu;
        let Some(known) = self.node(node)?.gpu_health.get(usize::from(*index)) else {
            return Err(Refusal::UnknownGpu { node: node.clone(), gpu: *index });
        };
        let (declared, read) = match (by.is_system(), update.status) {
            (true, read) => (known.declared.clone(), read),
            (false, GpuStatus::Healthy) => (None, GpuStatus::Healthy),
            (false, status) => {
                let (why, by) = (update.why.to_string(), by.name.clone());
                (Some(Box::new(DeclaredHealth { status, why, by })), known.reading_status())
            }
        };
        // A declaration ends a cooling period only if it declares the device healthy.
        let keeps_cooling = !by.is_system() && update.status != GpuStatus::Healthy;
        let cooling_until = match keeps_cooling {
            true => update.cooling_until.or(known.cooling_until),
            false => update.cooling_until,
        };
        let worst = declared.as_ref().map_or(read, |declared| declared.status.max(read));
        let why = match &declared {
            Some(declared) if declared.status == worst => declared.why.clone(),
            Some(_) if !by.is_system() => format!("its agent reports it as {}", worst.as_str()),
            _ => update.why.to_string(),
        };
        let read = (read != worst).then_some(read);
        let before = (&known.declared, known.reading, known.status, known.cooling_until);
        let unchanged = before == (&declared, read, worst, cooling_until);
        // Temperatures are recorded only where policies may read them.
        let has_policies = self.policies.rules().is_some();
        if unchanged && !(has_policies && known.is_worth_noting(update.temperature_c)) {
            return Ok(Decision::done(Vec::new()));
        }
        let jobs = if worst == GpuStatus::Healthy { Vec::new() } else { self.jobs_on_gpu(node, *index) };
        let health = GpuHealth {
            status: worst,
            why,
            since: now,
            cooling_until,
            temperature_c: update.temperature_c.or(known.temperature_c),
            declared,
            reading: read,
        };
        Ok(Decision::done(vec![Event::gpu_health_changed(update.gpu.clone(), health, jobs)]))
    }

    /// Add the stops of the jobs on a device that the operator requests, even if its health was declared before.
    pub(super) fn with_jobs_of_gpu(
        &self,
        mut decision: Decision,
        by: &Actor,
        update: &HealthUpdate,
        jobs: JobsOnGpu,
        now: Timestamp,
    ) -> Decision {
        let (by, gpu, status) = (by.name.clone(), &update.gpu, update.status.as_str());
        let why = match update.why {
            "" => format!("{gpu} is {status}"),
            why => format!("{gpu} is {status}: {why}"),
        };
        let cause = match jobs {
            JobsOnGpu::Keep => return decision,
            JobsOnGpu::Requeue => StopCause::Requeued { by, why },
            JobsOnGpu::Stop => StopCause::Cancelled { by, why },
        };
        for job in self.jobs_on_gpu(&gpu.node, gpu.index).iter().filter_map(|job| self.jobs.get(job)) {
            let stop = job.attempt().and_then(|attempt| self.stop_unless_ending(job, attempt, cause.clone(), now));
            decision.events.extend(stop);
        }
        decision
    }

    /// Jobs with a lease on a device.
    pub fn jobs_on_gpu(&self, node: &NodeId, gpu: u8) -> Vec<JobId> {
        let leases = self.nodes.get(node).and_then(|node| node.holders.get(usize::from(gpu)));
        let jobs: BTreeSet<JobId> = leases.into_iter().flatten().map(|lease| lease.job).collect();
        jobs.into_iter().collect()
    }
}

fn check_facts(facts: &NodeFacts) -> Result<(), Refusal> {
    if facts.gpus.len() > GPUS_PER_NODE_MAX {
        let problem = format!("{} devices; the maximum is {GPUS_PER_NODE_MAX}", facts.gpus.len());
        return Err(Refusal::Invalid { field: "gpus", problem });
    }
    if facts.cpus > CPUS_MAX || facts.memory_mib > MEMORY_MIB_MAX {
        let problem = format!("{} CPU cores and {} MiB are more than any machine has", facts.cpus, facts.memory_mib);
        return Err(Refusal::Invalid { field: "node", problem });
    }
    match facts.heartbeat_interval_ms {
        Some(ms) if !(1..=HEARTBEAT_INTERVAL_MS_MAX).contains(&ms) => {
            let problem = format!("{ms}; the interval of heartbeats is from 1 to {HEARTBEAT_INTERVAL_MS_MAX} ms");
            Err(Refusal::Invalid { field: "heartbeat_interval_ms", problem })
        }
        _ => Ok(()),
    }
}

/// The facts of a node without one of its GPUs. The GPUs after it move up, and NVLink peers are renumbered.
fn without_gpu(facts: &NodeFacts, removed: u8) -> NodeFacts {
    let mut facts = facts.clone();
    facts.gpus.remove(usize::from(removed));
    for gpu in &mut facts.gpus {
        gpu.nvlink.retain(|peer| *peer != removed);
        gpu.nvlink.iter_mut().filter(|peer| **peer > removed).for_each(|peer| *peer -= 1);
    }
    facts
}

//! Guards of the commands about nodes and GPUs.

use std::collections::{BTreeMap, BTreeSet};

use crate::command::{Actor, JobsOnGpu};
use crate::event::Event;
use crate::ids::{GpuId, JobId, NodeId};
use crate::job::{Exit, StopCause};
use crate::node::{DeclaredHealth, GPUS_PER_NODE_MAX, GpuFacts, GpuHealth, GpuWord, NodeFacts, NodeWord};
use crate::partition;
use crate::refusal::Refusal;
use crate::state::State;
use crate::state::decide::Decision;
use crate::state::report::PartEnd;
use crate::state::submit::{CPUS_MAX, MEMORY_MIB_MAX};
use crate::time::Timestamp;

/// A change of an operator's setting: absent, taken back, or set.
type Said<'a, T> = Option<&'a Option<T>>;

impl State {
    pub(super) fn decide_register(
        &self,
        id: &NodeId,
        facts: &NodeFacts,
        now: Timestamp,
    ) -> Result<Decision, Refusal> {
        check_facts(facts)?;
        let mut events = Vec::new();
        match self.nodes.get(id) {
            Some(node) if node.facts == *facts && !node.declared => {}
            Some(node) if !node.jobs.is_empty() && node.facts.gpus.len() > facts.gpus.len() => {
                // Leases point at devices by index; those must not vanish under a running job.
                return Err(Refusal::NodeBusy { node: id.clone(), jobs: node.jobs.len() });
            }
            _ => events.push(Event::NodeRegistered {
                node: id.clone(),
                facts: Box::new(facts.clone()),
                at: now,
            }),
        }
        events.extend(self.found_partitioned(id, facts, now));
        events.extend(self.welcome_back(id, now));
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
        (labels, taints): (Said<'_, BTreeMap<String, String>>, Said<'_, Vec<String>>),
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

    /// Devices that nobody uses are partitioned as their agent found them, if it found them otherwise than before.
    fn found_partitioned(&self, id: &NodeId, facts: &NodeFacts, now: Timestamp) -> Vec<Event> {
        let known = self.nodes.get(id);
        let news = |(index, gpu): (u8, &GpuFacts)| {
            let before = known.and_then(|node| node.facts.gpus.get(usize::from(index)));
            let same = |before: &GpuFacts| before.mig == gpu.mig && before.model == gpu.model;
            let as_it_is = known.map_or(&[][..], |node| node.instances(index)) == gpu.mig;
            let id = GpuId { node: id.clone(), index };
            let busy = known.is_some() && !self.is_unused(&id);
            (!before.is_some_and(same) && !as_it_is && !busy).then(|| Event::GpuPartitioned {
                gpu: id,
                instances: gpu.mig.clone(),
                by: Actor::system().name,
                why: "its agent found it so".to_string(),
                at: now,
            })
        };
        (0..).zip(&facts.gpus).filter_map(news).collect()
    }

    /// A node that was only out of sight takes work again; one that a person took out stays out.
    fn welcome_back(&self, id: &NodeId, now: Timestamp) -> Option<Event> {
        let word = self.nodes.get(id)?.state.word;
        matches!(word, NodeWord::Suspect | NodeWord::Unreachable | NodeWord::Fenced).then(|| {
            Event::NodeStateChanged {
                node: id.clone(),
                word: NodeWord::Ready,
                by: Actor::system().name,
                why: "its agent is back".to_string(),
                at: now,
            }
        })
    }

    pub(super) fn decide_node_state(
        &self,
        by: &Actor,
        id: &NodeId,
        word: NodeWord,
        why: &str,
        now: Timestamp,
    ) -> Result<Decision, Refusal> {
        let node = self.node(id)?;
        if node.state.word == word && node.state.why == why {
            return Ok(Decision::done(Vec::new()));
        }
        let mut events = vec![Event::NodeStateChanged {
            node: id.clone(),
            word,
            by: by.name.clone(),
            why: why.to_string(),
            at: now,
        }];
        if word == NodeWord::Fenced {
            self.end_parts_on(id, now, &mut events);
        }
        Ok(Decision::done(events))
    }

    /// A fenced node is proven dead, and so is everything that ran there.
    fn end_parts_on(&self, id: &NodeId, now: Timestamp, events: &mut Vec<Event>) {
        for job in self.attempts_on(id) {
            let exit = Exit::Unknown { why: format!("node `{id}` was fenced") };
            // Nobody saw when its processes ended.
            let end = PartEnd { exit: &exit, stopped: false, ended_at: None };
            self.end_part(job, id, &end, now, events);
        }
        self.settle_ends(events, now);
    }

    pub(super) fn decide_remove_node(&self, id: &NodeId, now: Timestamp) -> Result<Decision, Refusal> {
        let node = self.node(id)?;
        if !node.jobs.is_empty() {
            return Err(Refusal::NodeBusy { node: id.clone(), jobs: node.jobs.len() });
        }
        let claims = self.claims.iter().filter(|(_, claim)| claim.is_on(id));
        let mut events: Vec<Event> = claims
            .map(|(job, _)| Event::ClaimEnded { job: *job, why: "its node was removed".into(), at: now })
            .collect();
        events.push(Event::NodeRemoved { node: id.clone(), at: now });
        Ok(Decision::done(events))
    }

    pub(super) fn decide_partition(
        &self,
        (by, why): (&Actor, &str),
        (node, gpu): (&NodeId, u8),
        profiles: &[String],
        now: Timestamp,
    ) -> Result<Decision, Refusal> {
        let found = self.node(node)?;
        let Some(facts) = found.facts.gpus.get(usize::from(gpu)) else {
            return Err(Refusal::UnknownGpu { node: node.clone(), gpu });
        };
        let invalid = |problem| Refusal::Invalid { field: "profiles", problem };
        let instances = partition::laid_out(facts, profiles).map_err(invalid)?;
        partition::check(facts, gpu, &instances).map_err(invalid)?;
        let id = GpuId { node: node.clone(), index: gpu };
        if !self.is_unused(&id) {
            return Err(Refusal::GpuBusy { gpu: id });
        }
        if found.instances(gpu) == instances {
            return Ok(Decision::done(Vec::new()));
        }
        let (by, why) = (by.name.clone(), why.to_string());
        Ok(Decision::done(vec![Event::GpuPartitioned { gpu: id, instances, by, why, at: now }]))
    }

    /// Whether nobody holds anything of a device, and nothing of it is kept for anyone.
    pub(super) fn is_unused(&self, gpu: &GpuId) -> bool {
        let held = self.nodes.get(&gpu.node).is_none_or(|node| node.is_held(usize::from(gpu.index)));
        !held && !self.claims.values().any(|claim| claim.holds(&gpu.node, gpu.index))
    }

    /// A reading of the agent, or the declaration of an operator. The worse of the two counts; declaring a device healthy
    /// takes the declaration back, and the next reading counts alone.
    pub(super) fn decide_gpu_health(
        &self,
        (node, gpu): (&NodeId, u8),
        (by, why): (&Actor, &str),
        (word, temperature_c): (GpuWord, Option<i32>),
        cooling_until: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<Decision, Refusal> {
        let found = self.node(node)?;
        let Some(known) = found.gpu_health.get(usize::from(gpu)) else {
            return Err(Refusal::UnknownGpu { node: node.clone(), gpu });
        };
        let (declared, read) = match (by.is_system(), word) {
            (true, read) => (known.declared.clone(), read),
            (false, GpuWord::Healthy) => (None, GpuWord::Healthy),
            (false, word) => {
                let (why, by) = (why.to_string(), by.name.clone());
                (Some(Box::new(DeclaredHealth { word, why, by })), known.read_word())
            }
        };
        // A declaration ends no cooling period, unless it is that the device is healthy.
        let cools_on = !by.is_system() && word != GpuWord::Healthy;
        let cooling_until = if cools_on { cooling_until.or(known.cooling_until) } else { cooling_until };
        let worst = declared.as_ref().map_or(read, |declared| declared.word.max(read));
        let why = match &declared {
            Some(declared) if declared.word == worst => declared.why.clone(),
            Some(_) if !by.is_system() => format!("its agent reads it as {}", worst.word()),
            _ => why.to_string(),
        };
        let read = (read != worst).then_some(read);
        let said = (&known.declared, known.read, known.word, known.cooling_until);
        let same = said == (&declared, read, worst, cooling_until);
        // Who is warm and how much is only worth a note where policies look at it.
        let looked_at = self.policies.rules().is_some();
        if same && !(looked_at && known.is_news(temperature_c)) {
            return Ok(Decision::done(Vec::new()));
        }
        let jobs = if worst == GpuWord::Healthy { Vec::new() } else { self.jobs_on_gpu(node, gpu) };
        let health = GpuHealth {
            word: worst,
            why,
            since: now,
            cooling_until,
            temperature_c: temperature_c.or(known.temperature_c),
            declared,
            read,
        };
        let gpu = GpuId { node: node.clone(), index: gpu };
        Ok(Decision::done(vec![Event::gpu_health_changed(gpu, health, jobs)]))
    }

    /// What an operator wants done with the jobs on a device, also where its health was declared before.
    pub(super) fn with_jobs_of_gpu(
        &self,
        mut said: Decision,
        (node, gpu): (&NodeId, u8),
        (word, said_why): (GpuWord, &str),
        (by, jobs): (&Actor, JobsOnGpu),
        now: Timestamp,
    ) -> Decision {
        let by = by.name.clone();
        let id = GpuId { node: node.clone(), index: gpu };
        let why = match said_why.is_empty() {
            true => format!("{id} is {}", word.word()),
            false => format!("{id} is {}: {said_why}", word.word()),
        };
        let cause = match jobs {
            JobsOnGpu::Keep => return said,
            JobsOnGpu::Requeue => StopCause::Requeued { by, why },
            JobsOnGpu::Stop => StopCause::Cancelled { by, why },
        };
        for job in self.jobs_on_gpu(node, gpu).iter().filter_map(|job| self.jobs.get(job)) {
            let stops =
                job.attempt().and_then(|attempt| self.stop_unless_ending(job, attempt, cause.clone(), now));
            said.events.extend(stops);
        }
        said
    }

    /// The jobs that hold something of a device.
    pub fn jobs_on_gpu(&self, node: &NodeId, gpu: u8) -> Vec<JobId> {
        let leases = self.nodes.get(node).and_then(|node| node.holders.get(usize::from(gpu)));
        let jobs: BTreeSet<JobId> = leases.into_iter().flatten().map(|lease| lease.job).collect();
        jobs.into_iter().collect()
    }
}

fn check_facts(facts: &NodeFacts) -> Result<(), Refusal> {
    if facts.gpus.len() > GPUS_PER_NODE_MAX {
        let problem = format!("{} devices, {GPUS_PER_NODE_MAX} are the most", facts.gpus.len());
        return Err(Refusal::Invalid { field: "gpus", problem });
    }
    if facts.cpus > CPUS_MAX || facts.memory_mib > MEMORY_MIB_MAX {
        let problem =
            format!("{} CPU cores and {} MiB are more than any machine has", facts.cpus, facts.memory_mib);
        return Err(Refusal::Invalid { field: "node", problem });
    }
    Ok(())
}

/// A node with one GPU less. Those behind it move up, and links by NVLink follow them.
fn without_gpu(facts: &NodeFacts, gone: u8) -> NodeFacts {
    let mut facts = facts.clone();
    facts.gpus.remove(usize::from(gone));
    for gpu in &mut facts.gpus {
        gpu.nvlink.retain(|peer| *peer != gone);
        gpu.nvlink.iter_mut().filter(|peer| **peer > gone).for_each(|peer| *peer -= 1);
    }
    facts
}

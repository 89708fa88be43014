//! Device identity: a GPU is its UUID and keeps its index on the node for as long as anything refers to it.
//!
//! Leases name devices by index. An agent lists the devices that it finds, in any order; a device that has fallen off the
//! bus is simply not in the list. It keeps its index as a hole, unhealthy, so that it never shifts its neighbours, and
//! the jobs on it are not mistaken for jobs on another device.

use std::collections::{BTreeMap, BTreeSet};

use crate::facts::command::Actor;
use crate::facts::event::Event;
use crate::facts::refusal::Refusal;
use crate::gpu::device::{GPUS_PER_NODE_MAX, GpuFacts, GpuHealth, GpuStatus};
use crate::ids::{GpuId, NodeId};
use crate::objects::node::{Node, NodeFacts};
use crate::state::State;
use crate::state::nodes::HealthUpdate;
use crate::time::Timestamp;

/// The health reason of a device that its agent no longer lists.
const MISSING: &str = "its agent no longer finds the device";

/// The devices of a node after a registration, by index.
struct Devices<'a> {
    /// The reported device at each index; `None` for a hole.
    slots: Vec<Option<&'a GpuFacts>>,
}

impl State {
    /// The facts of a registration with each device at the index that it had before.
    pub(super) fn with_known_indexes(&self, id: &NodeId, facts: &NodeFacts) -> Result<NodeFacts, Refusal> {
        let Some(node) = self.nodes.get(id).filter(|node| !node.declared) else { return Ok(facts.clone()) };
        let Some(devices) = self.devices_after(node, &facts.gpus) else { return self.in_order_of_report(node, facts) };
        if devices.slots.len() > GPUS_PER_NODE_MAX {
            let problem = format!("{} devices with those that jobs still hold", devices.slots.len());
            return Err(Refusal::Invalid { field: "gpus", problem });
        }
        Ok(NodeFacts { gpus: devices.facts(&node.facts.gpus, &facts.gpus), ..facts.clone() })
    }

    /// Without UUIDs that identify the devices: refused if a device would vanish that a job holds.
    fn in_order_of_report(&self, node: &Node, facts: &NodeFacts) -> Result<NodeFacts, Refusal> {
        let vanishing = facts.gpus.len()..node.facts.gpus.len();
        let is_held = |index: &usize| !self.is_unused(&GpuId { node: node.id.clone(), index: *index as u8 });
        match vanishing.into_iter().find(is_held) {
            None => Ok(facts.clone()),
            Some(index) => {
                let problem = format!("no unique UUIDs, and gpu-{index}, which is in use, is not among the devices");
                Err(Refusal::Invalid { field: "gpus", problem })
            }
        }
    }

    /// Health of the devices that are missing, that have returned, and that have taken the index of another device.
    pub(super) fn device_health_after(&self, id: &NodeId, reported: &[GpuFacts], now: Timestamp) -> Vec<Event> {
        let Some(node) = self.nodes.get(id).filter(|node| !node.declared) else { return Vec::new() };
        let Some(devices) = self.devices_after(node, reported) else { return Vec::new() };
        let mut events = Vec::new();
        for (index, (known, slot)) in node.facts.gpus.iter().zip(&devices.slots).enumerate() {
            let gpu = GpuId { node: id.clone(), index: index as u8 };
            let is_marked_missing = node.gpu_health[index].why == MISSING;
            match slot {
                Some(found) if found.uuid != known.uuid => {
                    let health = GpuHealth::healthy(now);
                    let is_changed = node.gpu_health[index].status != GpuStatus::Healthy;
                    events.extend(is_changed.then(|| Event::gpu_health_changed(gpu, health, Vec::new())));
                }
                Some(_) if is_marked_missing => events.extend(self.read_health(gpu, GpuStatus::Healthy, "", now)),
                None if !is_marked_missing => events.extend(self.read_health(gpu, GpuStatus::Unhealthy, MISSING, now)),
                _ => {}
            }
        }
        events
    }

    /// Records a reading; an operator's declaration stays.
    fn read_health(&self, gpu: GpuId, status: GpuStatus, why: &str, now: Timestamp) -> Vec<Event> {
        let update = HealthUpdate { gpu, status, why, cooling_until: None, temperature_c: None };
        self.decide_gpu_health(&Actor::system(), &update, now).map(|decision| decision.events).unwrap_or_default()
    }

    /// `None` if UUIDs do not identify the devices: then they are taken in the order of the report.
    fn devices_after<'a>(&self, node: &Node, reported: &'a [GpuFacts]) -> Option<Devices<'a>> {
        let known = &node.facts.gpus;
        let is_unique = |gpus: &[GpuFacts]| {
            gpus.iter().map(|gpu| &gpu.uuid).collect::<BTreeSet<_>>().len() == gpus.len()
                && gpus.iter().all(|gpu| !gpu.uuid.is_empty())
        };
        if !is_unique(known) || !is_unique(reported) {
            return None;
        }
        let index_of: BTreeMap<&str, usize> = (0..).zip(known).map(|(index, gpu)| (gpu.uuid.as_str(), index)).collect();
        let is_free = |index: usize| self.is_unused(&GpuId { node: node.id.clone(), index: index as u8 });
        let mut slots: Vec<Option<&GpuFacts>> = vec![None; known.len()];
        let (old, new): (Vec<_>, Vec<_>) = reported.iter().partition(|gpu| index_of.contains_key(gpu.uuid.as_str()));
        old.into_iter().for_each(|gpu| slots[index_of[gpu.uuid.as_str()]] = Some(gpu));
        for gpu in new {
            match (0..slots.len()).find(|index| slots[*index].is_none() && is_free(*index)) {
                Some(index) => slots[index] = Some(gpu),
                None => slots.push(Some(gpu)),
            }
        }
        // Nothing refers to a missing device behind all others.
        while slots.last().is_some_and(Option::is_none) && is_free(slots.len() - 1) {
            slots.pop();
        }
        Some(Devices { slots })
    }
}

impl Devices<'_> {
    fn facts(&self, known: &[GpuFacts], reported: &[GpuFacts]) -> Vec<GpuFacts> {
        let found = (0..).zip(&self.slots).filter_map(|(index, slot)| Some(((*slot)?.uuid.as_str(), index)));
        let new_index: BTreeMap<&str, u8> = found.collect();
        let peer = |peer: &u8| new_index.get(reported.get(usize::from(*peer))?.uuid.as_str()).copied();
        let slots = self.slots.iter().zip(0..);
        let facts = slots.map(|(slot, index): (_, usize)| match slot {
            Some(gpu) => GpuFacts { nvlink: gpu.nvlink.iter().filter_map(peer).collect(), ..(*gpu).clone() },
            // Where it was attached may be gone as well.
            None => GpuFacts {
                nvlink: Vec::new(),
                numa_node: None,
                socket: None,
                pcie_switch: None,
                ..known[index].clone()
            },
        });
        facts.collect()
    }
}

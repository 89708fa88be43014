//! The language of the scenarios, as far as it speaks of devices: how they are wired, cut and how they fare.

use muster_core::GpuId;
use muster_core::command::{Command, JobsOnGpu};
use muster_core::node::{GpuWord, NodeFacts};
use muster_core::partition::MigInstance;

use crate::script::Script;
use crate::words::{Words, number, span};

impl Script {
    pub fn gpu(&mut self, words: &Words) -> Result<(), String> {
        let gpu: GpuId = words.object().parse().unwrap();
        let word = match words.plain.get(1).copied().unwrap_or_default() {
            "healthy" => GpuWord::Healthy,
            "warning" => GpuWord::Warning,
            "degraded" => GpuWord::Degraded,
            "unhealthy" => GpuWord::Unhealthy,
            word => return Err(format!("no health `{word}`")),
        };
        let cooling_until = words.get("cooling").map(|span_text| self.world.now.plus(span(span_text)));
        let (node, gpu, why) = (gpu.node, gpu.index, String::new());
        let jobs = match words.get("jobs") {
            None | Some("keep") => JobsOnGpu::Keep,
            Some("requeue") => JobsOnGpu::Requeue,
            Some("stop") => JobsOnGpu::Stop,
            Some(word) => return Err(format!("nothing called `{word}` happens to jobs")),
        };
        self.tell(Command::SetGpuHealth { node, gpu, word, why, cooling_until, temperature_c: None, jobs })
    }

    /// `partition n1/gpu-0 3g.40gb 4g.40gb`; without profiles the device is made whole again.
    pub fn partition(&mut self, words: &Words) -> Result<(), String> {
        let gpu: GpuId = words.object().parse().unwrap();
        let profiles = words.plain.iter().skip(1).map(|profile| profile.to_string()).collect();
        let why = String::new();
        self.tell(Command::PartitionGpu { node: gpu.node, gpu: gpu.index, profiles, why })
    }

    /// What a device is cut into.
    pub fn instances(&mut self, words: &Words) -> Result<(), String> {
        let gpu: GpuId = words.object().parse().unwrap();
        let node = self.world.state.nodes.get(&gpu.node).ok_or("no such node")?;
        let instances = node.instances(gpu.index).iter();
        let told: Vec<String> = instances.map(|one| format!("{}@{}", one.profile, one.start)).collect();
        self.seen
            .push(format!("{gpu}  {}", if told.is_empty() { "whole".to_string() } else { told.join(" ") }));
        Ok(())
    }
}

/// `numa=0011 socket=0011 switch=0123` say of each device where it hangs, `nvlink=pairs|ring|mesh` who reaches whom.
pub fn wire(facts: &mut NodeFacts, words: &Words) -> Result<(), String> {
    let count = facts.gpus.len() as u8;
    for (index, gpu) in (0..count).zip(&mut facts.gpus) {
        let digit = |key| words.get(key).and_then(|text| text.chars().nth(index.into())?.to_digit(10));
        (gpu.numa_node, gpu.socket, gpu.pcie_switch) = (digit("numa"), digit("socket"), digit("switch"));
        gpu.nvlink = match words.get("nvlink") {
            None => Vec::new(),
            Some("pairs") => vec![index ^ 1],
            Some("ring") => vec![(index + 1) % count],
            Some("mesh") => (0..count).filter(|peer| *peer != index).collect(),
            Some(text) => return Err(format!("no wiring `{text}`")),
        };
    }
    Ok(())
}

/// `mig.0=4g.40gb@0,3g.40gb@4`: the agent finds the first device cut like this.
pub fn cut(facts: &mut NodeFacts, words: &Words) {
    for (index, gpu) in facts.gpus.iter_mut().enumerate() {
        let text = words.get(&format!("mig.{index}")).unwrap_or_default();
        let instance = |text: &str| {
            let (profile, start) = text.split_once('@')?;
            Some(MigInstance { profile: profile.to_string(), start: number(start) })
        };
        gpu.mig = text.split(',').filter_map(instance).collect();
    }
}

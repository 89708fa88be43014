//! Scenario lines about GPUs: topology, partitions and health.

use muster_core::GpuId;
use muster_core::facts::command::{Command, JobsOnGpu};
use muster_core::gpu::device::{GpuStatus, MigInstance};
use muster_core::objects::node::NodeFacts;

use super::line::{Line, number, span};
use super::runner::ScenarioRunner;

impl ScenarioRunner {
    pub fn gpu(&mut self, line: &Line) -> Result<(), String> {
        let gpu: GpuId = line.object().parse().unwrap();
        let status = match line.plain.get(1).copied().unwrap_or_default() {
            "healthy" => GpuStatus::Healthy,
            "warning" => GpuStatus::Warning,
            "degraded" => GpuStatus::Degraded,
            "unhealthy" => GpuStatus::Unhealthy,
            text => return Err(format!("no health `{text}`")),
        };
        let cooling_until = line.get("cooling").map(|span_text| self.world.now.plus(span(span_text)));
        let (node, gpu, why) = (gpu.node, gpu.index, String::new());
        let jobs = match line.get("jobs") {
            None | Some("keep") => JobsOnGpu::Keep,
            Some("requeue") => JobsOnGpu::Requeue,
            Some("stop") => JobsOnGpu::Stop,
            Some(text) => return Err(format!("no rule `{text}` for jobs on the GPU")),
        };
        self.run(Command::SetGpuHealth { node, gpu, status, why, cooling_until, temperature_c: None, jobs })
    }

    /// `partition n1/gpu-0 3g.40gb 4g.40gb`; without profiles the device is made whole again.
    pub fn partition(&mut self, line: &Line) -> Result<(), String> {
        let gpu: GpuId = line.object().parse().unwrap();
        let profiles = line.plain.iter().skip(1).map(|profile| profile.to_string()).collect();
        let why = String::new();
        self.run(Command::PartitionGpu { node: gpu.node, gpu: gpu.index, profiles, why })
    }

    /// Show the instances of a device.
    pub fn instances(&mut self, line: &Line) -> Result<(), String> {
        let gpu: GpuId = line.object().parse().unwrap();
        let node = self.world.state.nodes.get(&gpu.node).ok_or("no such node")?;
        let instances = node.instances(gpu.index).iter();
        let shown: Vec<String> = instances.map(|one| format!("{}@{}", one.profile, one.start)).collect();
        self.shown.push(format!("{gpu}  {}", if shown.is_empty() { "whole".to_string() } else { shown.join(" ") }));
        Ok(())
    }
}

/// `numa=0011 socket=0011 switch=0123` give the NUMA node, socket and switch of each device, `nvlink=pairs|ring|mesh`
/// the links.
pub fn set_topology(facts: &mut NodeFacts, line: &Line) -> Result<(), String> {
    let count = facts.gpus.len() as u8;
    for (index, gpu) in (0..count).zip(&mut facts.gpus) {
        let digit = |key| line.get(key).and_then(|text| text.chars().nth(index.into())?.to_digit(10));
        (gpu.numa_node, gpu.socket, gpu.pcie_switch) = (digit("numa"), digit("socket"), digit("switch"));
        gpu.nvlink = match line.get("nvlink") {
            None => Vec::new(),
            Some("pairs") => vec![index ^ 1],
            Some("ring") => vec![(index + 1) % count],
            Some("mesh") => (0..count).filter(|peer| *peer != index).collect(),
            Some(text) => return Err(format!("no NVLink topology `{text}`")),
        };
    }
    Ok(())
}

/// `mig.0=4g.40gb@0,3g.40gb@4`: the instances that the agent finds on the first device.
pub fn set_instances(facts: &mut NodeFacts, line: &Line) {
    for (index, gpu) in facts.gpus.iter_mut().enumerate() {
        let text = line.get(&format!("mig.{index}")).unwrap_or_default();
        let instance = |text: &str| {
            let (profile, start) = text.split_once('@')?;
            Some(MigInstance { profile: profile.to_string(), start: number(start) })
        };
        gpu.mig = text.split(',').filter_map(instance).collect();
    }
}

//! Builder of the hardware facts of nodes and GPUs.

use std::collections::BTreeMap;

use muster_core::gpu::device::GpuFacts;
use muster_core::objects::node::NodeFacts;

pub const H100: &str = "NVIDIA H100 80GB HBM3";
pub const A100: &str = "NVIDIA A100-SXM4-80GB";

/// Power limits far apart, so that fair shares by power differ from fair shares by GPUs.
const MILLIWATTS: [(&str, u64); 2] = [("H100", 700_000), ("A100", 40_000)];

/// A simulated node with 4 H100, 64 cores and 64 GiB.
pub fn node() -> NodeBuilder {
    let facts = NodeFacts {
        hostname: String::new(),
        address: String::new(),
        cpus: 64,
        memory_mib: 64 * 1_024,
        gpus: Vec::new(),
        numa: Vec::new(),
        rack: None,
        block: None,
        power_feed: None,
        labels: BTreeMap::new(),
        taints: Vec::new(),
        agent_version: String::new(),
        incarnation: String::new(),
        heartbeat_interval_ms: None,
        boot_id: String::new(),
        simulated: true,
    };
    NodeBuilder { facts, gpus: 4, model: H100.to_string(), gpu_facts: None }
}

/// Builds [`NodeFacts`].
#[derive(Debug, Clone)]
pub struct NodeBuilder {
    facts: NodeFacts,
    gpus: usize,
    model: String,
    gpu_facts: Option<Vec<GpuFacts>>,
}

impl NodeBuilder {
    pub fn gpus(self, gpus: usize) -> NodeBuilder {
        NodeBuilder { gpus, ..self }
    }

    pub fn model(self, model: &str) -> NodeBuilder {
        NodeBuilder { model: model.to_string(), ..self }
    }

    /// Exactly these GPUs; they replace those of [`NodeBuilder::gpus`] and [`NodeBuilder::model`].
    pub fn gpu_facts(self, gpus: impl IntoIterator<Item = GpuFacts>) -> NodeBuilder {
        NodeBuilder { gpu_facts: Some(gpus.into_iter().collect()), ..self }
    }

    pub fn cpus(mut self, cpus: u32) -> NodeBuilder {
        self.facts.cpus = cpus;
        self
    }

    pub fn memory_mib(mut self, memory_mib: u64) -> NodeBuilder {
        self.facts.memory_mib = memory_mib;
        self
    }

    pub fn rack(mut self, rack: &str) -> NodeBuilder {
        self.facts.rack = Some(rack.to_string());
        self
    }

    pub fn hostname(mut self, hostname: &str) -> NodeBuilder {
        self.facts.hostname = hostname.to_string();
        self
    }

    pub fn address(mut self, address: &str) -> NodeBuilder {
        self.facts.address = address.to_string();
        self
    }

    pub fn agent_version(mut self, version: &str) -> NodeBuilder {
        self.facts.agent_version = version.to_string();
        self
    }

    pub fn build(self) -> NodeFacts {
        let NodeBuilder { facts, gpus, model, gpu_facts } = self;
        let of_model = || (0..gpus).map(|index| gpu(&format!("gpu-{index}"), &model)).collect();
        NodeFacts { gpus: gpu_facts.unwrap_or_else(of_model), ..facts }
    }
}

/// A GPU with 80 GiB, on no known NUMA node and without NVLink. It has a power limit if it is an H100 or an A100.
pub fn gpu(uuid: &str, model: &str) -> GpuFacts {
    let known = MILLIWATTS.iter().find(|(name, _)| model.contains(name));
    GpuFacts {
        uuid: uuid.to_string(),
        model: model.to_string(),
        memory_mib: 81_920,
        numa_node: None,
        nvlink: Vec::new(),
        mig: Vec::new(),
        socket: None,
        pcie_switch: None,
        power_limit_milliwatts: known.map(|(_, milliwatts)| *milliwatts),
    }
}

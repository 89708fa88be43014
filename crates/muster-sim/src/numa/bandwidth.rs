//! Bandwidth model of a node: the time of a training step on a set of GPUs.
//!
//! Each GPU computes, then all GPUs sum their gradients by a ring all-reduce. Each sends 2(n-1)/n of the gradient to
//! the next, so a step takes compute + 2(n-1)/n × bytes / bandwidth of the slowest hop. The ring is the one with the
//! fastest slowest hop. The model has no overlap of compute and communication, which would reduce the cost of a slow
//! ring, and no contention between jobs on one link, which would increase it.
//!
//! Bandwidths are those that NCCL assumes when it searches rings (`src/graph/topo.h`, v2.30), one way, in GB/s:
//! NVLink 20 per link of V100 and A100 and 20.6 of H100; PCIe ×16 12, 24 and 48 for the generations 3, 4 and 5, a sixth
//! less through an Intel host; between sockets 6 (Broadwell), 10 (up to Ice Lake), 22 (Sapphire Rapids), and 16 between
//! any two NUMA nodes of EPYC 7002.

use muster_core::objects::node::NodeFacts;

/// Bandwidths inside a machine, one way.
#[derive(Debug, Clone, Copy)]
pub struct FabricBandwidths {
    /// Name of the machine in cluster files (`box:`).
    pub machine: &'static str,
    /// Over NVLink, between linked GPUs.
    pub nvlink_gbps: f64,
    /// Over a shared PCIe switch.
    pub switch_gbps: f64,
    /// Through the host, within one NUMA node.
    pub host_gbps: f64,
    /// Between NUMA nodes, on one socket or two.
    pub socket_gbps: f64,
}

/// The machines of the benchmark.
pub const FABRICS: &[FabricBandwidths] = &[
    // 12 links per GPU, through NVSwitches.
    FabricBandwidths { machine: "dgx-a100", nvlink_gbps: 240.0, switch_gbps: 24.0, host_gbps: 24.0, socket_gbps: 16.0 },
    // 18 links per GPU, through NVSwitches.
    FabricBandwidths { machine: "hgx-h100", nvlink_gbps: 370.8, switch_gbps: 48.0, host_gbps: 40.0, socket_gbps: 22.0 },
    // One link to each peer. Some pairs have two, which node facts do not record.
    FabricBandwidths { machine: "dgx-1-v100", nvlink_gbps: 20.0, switch_gbps: 12.0, host_gbps: 10.0, socket_gbps: 6.0 },
    // Two Ice Lake sockets.
    FabricBandwidths {
        machine: "pcie-8xl40s",
        nvlink_gbps: 0.0,
        switch_gbps: 24.0,
        host_gbps: 20.0,
        socket_gbps: 10.0,
    },
    // 12 links over three bridges; two Ice Lake sockets.
    FabricBandwidths {
        machine: "pcie-4xa100",
        nvlink_gbps: 240.0,
        switch_gbps: 24.0,
        host_gbps: 20.0,
        socket_gbps: 10.0,
    },
];

/// The work of one training step.
#[derive(Debug, Clone, Copy)]
pub struct TrainingStep {
    /// Computation on each GPU.
    pub compute_ms: f64,
    /// Gradients to sum over all GPUs.
    pub gradient_mb: f64,
}

/// The bandwidth between any two GPUs of a node.
pub struct NodeBandwidths {
    pub machine: &'static str,
    gbps: Vec<Vec<f64>>,
}

impl NodeBandwidths {
    pub fn new(facts: &NodeFacts, fabric: FabricBandwidths) -> NodeBandwidths {
        let gpus = &facts.gpus;
        let between = |a: usize, b: usize| {
            let (one, other) = (&gpus[a], &gpus[b]);
            if one.nvlink.contains(&(b as u8)) {
                fabric.nvlink_gbps
            } else if one.pcie_switch.is_some() && one.pcie_switch == other.pcie_switch {
                fabric.switch_gbps
            } else if one.numa_node == other.numa_node {
                fabric.host_gbps
            } else {
                fabric.socket_gbps
            }
        };
        let row = |a: usize| (0..gpus.len()).map(|b| between(a, b)).collect();
        NodeBandwidths { machine: fabric.machine, gbps: (0..gpus.len()).map(row).collect() }
    }

    pub fn gpus(&self) -> u32 {
        self.gbps.len() as u32
    }

    /// The time of a step on a set of GPUs, given as bits.
    pub fn step_ms(&self, devices: u64, step: TrainingStep) -> f64 {
        let count = f64::from(devices.count_ones());
        if count < 2.0 {
            return step.compute_ms;
        }
        // Megabytes divided by gigabytes per second are milliseconds.
        step.compute_ms + 2.0 * (count - 1.0) / count * step.gradient_mb / self.ring_gbps(devices)
    }

    /// The bandwidth of the slowest hop of the best ring.
    pub fn ring_gbps(&self, devices: u64) -> f64 {
        let members: Vec<usize> = (0..64).filter(|index| devices >> index & 1 == 1).collect();
        let [first, rest @ ..] = &members[..] else { return f64::INFINITY };
        self.best_ring_gbps(*first, *first, rest, f64::INFINITY, 0.0)
    }

    /// The best ring that continues from `at` over `rest` and back to `first`, or `known` if that is not better.
    fn best_ring_gbps(&self, first: usize, at: usize, rest: &[usize], slowest: f64, known: f64) -> f64 {
        if slowest <= known {
            return known;
        }
        if rest.is_empty() {
            return known.max(slowest.min(self.gbps[at][first]));
        }
        rest.iter().fold(known, |known, next| {
            let others: Vec<usize> = rest.iter().copied().filter(|other| other != next).collect();
            self.best_ring_gbps(first, *next, &others, slowest.min(self.gbps[at][*next]), known)
        })
    }
}

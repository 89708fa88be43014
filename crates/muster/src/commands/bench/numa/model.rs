//! How long a step of training takes on a set of devices: a model, stated so that it can be doubted.
//!
//! Each device computes, then all of them sum up their gradients by a ring: each sends 2(n-1)/n of the
//! gradient to the next, so a step takes compute + 2(n-1)/n × bytes / the slowest hop. The ring is the one
//! whose slowest hop is fastest. Nothing overlaps and no two jobs slow each other down, which flatters
//! neither side: overlap would shrink what is lost by a slow ring, neighbours on the same link would make
//! it larger.
//!
//! Bandwidths are those that NCCL reckons with when it looks for rings (`src/graph/topo.h`, v2.30), one
//! way, in GB/s: NVLink 20 for each link of V100 and A100 and 20.6 of H100; PCIe ×16 12, 24 and 48 for the
//! generations 3, 4 and 5, a sixth less through an Intel host; between sockets 6 (Broadwell), 10 (up to Ice
//! Lake), 22 (Sapphire Rapids), and 16 between any two NUMA nodes of EPYC 7002.

use muster_core::node::NodeFacts;

/// Bandwidths inside a box, one way, in GB/s.
#[derive(Debug, Clone, Copy)]
pub struct Fabric {
    /// Which box.
    pub machine: &'static str,
    /// Over NVLink, between devices that are linked.
    pub nvlink_gbps: f64,
    /// Over a PCIe switch.
    pub switch_gbps: f64,
    /// Through the host, on one NUMA node.
    pub host_gbps: f64,
    /// From one NUMA node to another, on one socket or two.
    pub socket_gbps: f64,
}

/// The boxes that are compared.
pub const FABRICS: &[Fabric] = &[
    // 12 links each, through NVSwitches.
    Fabric { machine: "dgx-a100", nvlink_gbps: 240.0, switch_gbps: 24.0, host_gbps: 24.0, socket_gbps: 16.0 },
    // 18 links each, through NVSwitches.
    Fabric { machine: "hgx-h100", nvlink_gbps: 370.8, switch_gbps: 48.0, host_gbps: 40.0, socket_gbps: 22.0 },
    // One link to each peer; some have two, which the facts of a node do not tell.
    Fabric { machine: "dgx-1-v100", nvlink_gbps: 20.0, switch_gbps: 12.0, host_gbps: 10.0, socket_gbps: 6.0 },
    // Two sockets of Ice Lake.
    Fabric {
        machine: "pcie-8xl40s",
        nvlink_gbps: 0.0,
        switch_gbps: 24.0,
        host_gbps: 20.0,
        socket_gbps: 10.0,
    },
    // 12 links over three bridges; two sockets of Ice Lake.
    Fabric {
        machine: "pcie-4xa100",
        nvlink_gbps: 240.0,
        switch_gbps: 24.0,
        host_gbps: 20.0,
        socket_gbps: 10.0,
    },
];

/// What a job does in each step.
#[derive(Debug, Clone, Copy)]
pub struct Work {
    /// On each device by itself.
    pub compute_ms: f64,
    /// Over all of them.
    pub gradient_mb: f64,
}

/// The bandwidth between any two devices of a node.
pub struct Board {
    pub machine: &'static str,
    gbps: Vec<Vec<f64>>,
}

impl Board {
    /// The board of a node with these bandwidths.
    pub fn new(facts: &NodeFacts, fabric: Fabric) -> Board {
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
        Board { machine: fabric.machine, gbps: (0..gpus.len()).map(row).collect() }
    }

    /// How many devices it has.
    pub fn gpus(&self) -> u32 {
        self.gbps.len() as u32
    }

    /// How long a step takes on devices.
    pub fn step_ms(&self, devices: u64, work: Work) -> f64 {
        let count = f64::from(devices.count_ones());
        if count < 2.0 {
            return work.compute_ms;
        }
        // Megabytes by gigabytes per second are milliseconds.
        work.compute_ms + 2.0 * (count - 1.0) / count * work.gradient_mb / self.ring_gbps(devices)
    }

    /// The slowest hop of the best ring over devices.
    pub fn ring_gbps(&self, devices: u64) -> f64 {
        let members: Vec<usize> = (0..64).filter(|index| devices >> index & 1 == 1).collect();
        let [first, rest @ ..] = &members[..] else { return f64::INFINITY };
        self.best_ring(*first, *first, rest, f64::INFINITY, 0.0)
    }

    /// The best ring that goes on from `at` over the rest and back to `first`, if it beats the one that is
    /// known.
    fn best_ring(&self, first: usize, at: usize, rest: &[usize], slowest: f64, known: f64) -> f64 {
        if slowest <= known {
            return known;
        }
        if rest.is_empty() {
            return known.max(slowest.min(self.gbps[at][first]));
        }
        rest.iter().fold(known, |known, next| {
            let others: Vec<usize> = rest.iter().copied().filter(|other| other != next).collect();
            self.best_ring(first, *next, &others, slowest.min(self.gbps[at][*next]), known)
        })
    }
}

//! Boxes: predefined machines for the cluster file, for example `box: dgx-a100`.
//!
//! Model names and memory sizes are those of the driver (`nvidia-smi`), and the topology is that of `nvidia-smi
//! topo -m` on such machines: GPUs share a PCIe switch if they reach the same network card through it. For machines
//! with many vendors, cores and memory are those of a common build, and the comment says so.

/// A predefined machine.
pub(super) struct BoxSpec {
    /// The names in a cluster file. Builds of the same board share an entry.
    pub names: &'static [&'static str],
    /// Physical CPU cores, without hyperthreads.
    pub cpus: u64,
    pub memory_gib: u64,
    /// The socket of each NUMA node.
    pub numa_sockets: &'static [u32],
    /// As the driver spells it.
    pub model: &'static str,
    pub gpu_memory_mib: u64,
    /// The power limit of one GPU.
    pub gpu_watts: u64,
    /// The NUMA node of each GPU.
    pub gpu_numa: &'static [u32],
    /// The PCIe switch of each GPU; empty if no GPUs share one.
    pub gpu_switch: &'static [u32],
    pub nvlink: BoxNvlink,
}

/// The NVLink connections of a box.
pub(super) enum BoxNvlink {
    /// PCIe only.
    None,
    /// Every GPU is linked to every other.
    Mesh,
    /// Bridges between neighbours: 0-1, 2-3, …
    Pairs,
    /// The peers of each GPU.
    Peers(&'static [&'static [u8]]),
}

pub(super) fn box_named(name: &str) -> Option<&'static BoxSpec> {
    BOXES.iter().find(|machine| machine.names.contains(&name))
}

pub(super) fn box_names() -> Vec<&'static str> {
    BOXES.iter().flat_map(|machine| machine.names).copied().collect()
}

const TWO_SOCKETS: &[u32] = &[0, 1];
const FOUR_GPUS_PER_NUMA_NODE: &[u32] = &[0, 0, 0, 0, 1, 1, 1, 1];
const TWO_GPUS_PER_SWITCH: &[u32] = &[0, 0, 1, 1, 2, 2, 3, 3];
/// Four NUMA nodes on each of two sockets (AMD's NPS4).
const NPS4_NUMA_SOCKETS: &[u32] = &[0, 0, 0, 0, 1, 1, 1, 1];

const BOXES: &[BoxSpec] = &[
    // DGX-1: 2 × Xeon E5-2698 v4 (20 cores). Each pair of GPUs shares a switch. Six NVLinks per GPU: fully
    // connected in groups of four, and each GPU to its twin in the other group ("hybrid cube mesh").
    BoxSpec {
        names: &["dgx-1-v100"],
        cpus: 40,
        memory_gib: 512,
        numa_sockets: TWO_SOCKETS,
        model: "Tesla V100-SXM2-32GB",
        gpu_memory_mib: 32_768,
        gpu_watts: 300,
        gpu_numa: FOUR_GPUS_PER_NUMA_NODE,
        gpu_switch: TWO_GPUS_PER_SWITCH,
        nvlink: BoxNvlink::Peers(&[
            &[1, 2, 3, 4],
            &[0, 2, 3, 5],
            &[0, 1, 3, 6],
            &[0, 1, 2, 7],
            &[0, 5, 6, 7],
            &[1, 4, 6, 7],
            &[2, 4, 5, 7],
            &[3, 4, 5, 6],
        ]),
    },
    // DGX A100 640 GB: 2 × EPYC 7742 (64 cores) with four NUMA nodes each; only every second one has GPUs, in
    // the order 3, 1, 7, 5. NV12 between all of them.
    BoxSpec {
        names: &["dgx-a100"],
        cpus: 128,
        memory_gib: 2_048,
        numa_sockets: NPS4_NUMA_SOCKETS,
        model: "NVIDIA A100-SXM4-80GB",
        gpu_memory_mib: 81_920,
        gpu_watts: 400,
        gpu_numa: &[3, 3, 1, 1, 7, 7, 5, 5],
        gpu_switch: TWO_GPUS_PER_SWITCH,
        nvlink: BoxNvlink::Mesh,
    },
    // HGX A100 with four GPUs: NV4 between all, without a switch. The host is that of JUWELS Booster: 2 ×
    // EPYC 7402 (24 cores), four NUMA nodes each, one GPU on every second.
    BoxSpec {
        names: &["hgx-a100-4"],
        cpus: 48,
        memory_gib: 512,
        numa_sockets: NPS4_NUMA_SOCKETS,
        model: "NVIDIA A100-SXM4-40GB",
        gpu_memory_mib: 40_960,
        gpu_watts: 400,
        gpu_numa: &[3, 1, 7, 5],
        gpu_switch: &[],
        nvlink: BoxNvlink::Mesh,
    },
    // DGX H100: 2 × Xeon 8480C (56 cores). Each GPU reaches its own network card through a switch (PXB) and those of
    // the other GPUs through the host (NODE), so no two GPUs share a switch.
    BoxSpec {
        names: &["dgx-h100", "hgx-h100"],
        cpus: 112,
        memory_gib: 2_048,
        numa_sockets: TWO_SOCKETS,
        model: "NVIDIA H100 80GB HBM3",
        gpu_memory_mib: 81_559,
        gpu_watts: 700,
        gpu_numa: FOUR_GPUS_PER_NUMA_NODE,
        gpu_switch: &[],
        nvlink: BoxNvlink::Mesh,
    },
    // DGX H200: the same host.
    BoxSpec {
        names: &["dgx-h200", "hgx-h200"],
        cpus: 112,
        memory_gib: 2_048,
        numa_sockets: TWO_SOCKETS,
        model: "NVIDIA H200",
        gpu_memory_mib: 143_771,
        gpu_watts: 700,
        gpu_numa: FOUR_GPUS_PER_NUMA_NODE,
        gpu_switch: &[],
        nvlink: BoxNvlink::Mesh,
    },
    // DGX B200: 2 × Xeon 8570 (56 cores).
    BoxSpec {
        names: &["dgx-b200", "hgx-b200"],
        cpus: 112,
        memory_gib: 2_048,
        numa_sockets: TWO_SOCKETS,
        model: "NVIDIA B200",
        gpu_memory_mib: 183_359,
        gpu_watts: 1_000,
        gpu_numa: FOUR_GPUS_PER_NUMA_NODE,
        gpu_switch: &[],
        nvlink: BoxNvlink::Mesh,
    },
    // A compute tray of GB200 NVL72: 2 Grace (72 cores and 480 GB each), two GPUs on each. The NVLinks to the other
    // trays of the rack are not listed: a node describes only its own devices.
    BoxSpec {
        names: &["gb200-tray"],
        cpus: 144,
        memory_gib: 894,
        numa_sockets: TWO_SOCKETS,
        model: "NVIDIA GB200",
        gpu_memory_mib: 189_471,
        gpu_watts: 1_200,
        gpu_numa: &[0, 0, 1, 1],
        gpu_switch: &[],
        nvlink: BoxNvlink::Mesh,
    },
    // Eight cards behind switches, two on each, two switches on each socket. A common build: 2 × 32 cores.
    BoxSpec {
        names: &["pcie-8xl40s"],
        cpus: 64,
        memory_gib: 1_024,
        numa_sockets: TWO_SOCKETS,
        model: "NVIDIA L40S",
        gpu_memory_mib: 46_068,
        gpu_watts: 350,
        gpu_numa: FOUR_GPUS_PER_NUMA_NODE,
        gpu_switch: TWO_GPUS_PER_SWITCH,
        nvlink: BoxNvlink::None,
    },
    // Four cards on the sockets' own lanes, NVLink bridges over neighbours. A common build: 2 × 32 cores.
    BoxSpec {
        names: &["pcie-4xa100"],
        cpus: 64,
        memory_gib: 512,
        numa_sockets: TWO_SOCKETS,
        model: "NVIDIA A100 80GB PCIe",
        gpu_memory_mib: 81_920,
        gpu_watts: 300,
        gpu_numa: &[0, 0, 1, 1],
        gpu_switch: &[],
        nvlink: BoxNvlink::Pairs,
    },
    // Eight small cards, four on each socket; 2 × 24 cores as in AWS g4dn.metal.
    BoxSpec {
        names: &["pcie-8xt4"],
        cpus: 48,
        memory_gib: 384,
        numa_sockets: TWO_SOCKETS,
        model: "Tesla T4",
        gpu_memory_mib: 15_360,
        gpu_watts: 70,
        gpu_numa: FOUR_GPUS_PER_NUMA_NODE,
        gpu_switch: &[],
        nvlink: BoxNvlink::None,
    },
    // Workstations: one socket, no NVLink. Common builds.
    BoxSpec {
        names: &["workstation-2x4090"],
        cpus: 16,
        memory_gib: 128,
        numa_sockets: &[0],
        model: "NVIDIA GeForce RTX 4090",
        gpu_memory_mib: 24_564,
        gpu_watts: 450,
        gpu_numa: &[0, 0],
        gpu_switch: &[],
        nvlink: BoxNvlink::None,
    },
    BoxSpec {
        names: &["workstation-rtx6000"],
        cpus: 32,
        memory_gib: 256,
        numa_sockets: &[0],
        model: "NVIDIA RTX 6000 Ada Generation",
        gpu_memory_mib: 49_140,
        gpu_watts: 300,
        gpu_numa: &[0],
        gpu_switch: &[],
        nvlink: BoxNvlink::None,
    },
];

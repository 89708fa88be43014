use muster_core::gpu::topology::{LocalityRequirement, NodeTopology, Nvlink};

use super::job_stream::RUNTIME_MS_MEAN;
use super::serve::{DeviceAllocator, NodeDevices};
use super::*;

const MACHINES: [&str; 12] = [
    "dgx-1-v100",
    "dgx-a100",
    "hgx-a100-4",
    "hgx-h100",
    "hgx-h200",
    "hgx-b200",
    "gb200-tray",
    "pcie-8xl40s",
    "pcie-4xa100",
    "pcie-8xt4",
    "workstation-2x4090",
    "workstation-rtx6000",
];

fn bandwidths(machine: &str) -> NodeBandwidths {
    let fabric = FABRICS.iter().find(|fabric| fabric.machine == machine).unwrap();
    NodeBandwidths::new(&node_facts(machine).unwrap(), *fabric)
}

#[test]
fn a_ring_is_as_fast_as_its_slowest_hop_in_the_best_order() {
    let cases = [
        ("pcie-4xa100", 0b0011, 240.0),
        ("pcie-4xa100", 0b0110, 10.0),
        ("pcie-4xa100", 0b1111, 10.0),
        ("pcie-8xl40s", 0b0000_0011, 24.0),
        ("pcie-8xl40s", 0b0000_0101, 20.0),
        ("pcie-8xl40s", 0b0001_0001, 10.0),
        ("dgx-1-v100", 0b0000_1111, 20.0),
        // 0-1-5-4 is the only order with a link at each hop.
        ("dgx-1-v100", 0b0011_0011, 20.0),
        // Neither 0 and 5 nor 2 and 5 are linked: the ring crosses the sockets.
        ("dgx-1-v100", 0b0010_0101, 6.0),
        ("dgx-1-v100", 0b1111_1111, 20.0),
        ("hgx-h100", 0b1001_0110, 370.8),
    ];
    for (machine, devices, gbps) in cases {
        assert_eq!(bandwidths(machine).ring_gbps(devices), gbps, "{machine} {devices:b}");
    }
}

#[test]
fn step_time_is_compute_plus_ring_all_reduce() {
    let step = TrainingStep { compute_ms: 100.0, gradient_mb: 1_200.0 };
    let bandwidths = bandwidths("pcie-8xl40s");
    assert_eq!(bandwidths.step_ms(0b1, step), 100.0);
    assert_eq!(bandwidths.step_ms(0b11, step), 100.0 + 1_200.0 / 24.0);
    assert_eq!(bandwidths.step_ms(0b1111, step), 100.0 + 1.5 * 1_200.0 / 20.0);
}

#[test]
fn a_job_stream_offers_the_requested_load() {
    let jobs = job_stream(3, 50_000, 0.7, 256, 8);
    let offered: f64 = jobs.iter().map(|job| f64::from(job.gpus) * job.runtime_ms as f64).sum();
    let load = offered / (256.0 * jobs[jobs.len() - 1].arrival_ms as f64);
    assert!((0.68..0.72).contains(&load), "{load}");
    let mean = jobs.iter().map(|job| job.runtime_ms as f64).sum::<f64>() / jobs.len() as f64;
    assert!((0.97..1.03).contains(&(mean / RUNTIME_MS_MEAN as f64)), "{mean}");
    assert_eq!(jobs, job_stream(3, 50_000, 0.7, 256, 8), "the same seed, the same jobs");
    assert!(job_stream(3, 1_000, 0.7, 256, 4).iter().all(|job| job.gpus <= 4));
}

/// One node with two GPUs.
struct TwoDeviceAllocator(u32);

impl DeviceAllocator for TwoDeviceAllocator {
    fn allocate(&mut self, gpus: u32) -> Option<NodeDevices> {
        self.0 = self.0.checked_sub(gpus)?;
        Some(NodeDevices { node: 0, devices: (1 << gpus) - 1 })
    }

    fn release(&mut self, allocated: NodeDevices) {
        self.0 += allocated.devices.count_ones();
    }
}

#[test]
fn jobs_are_served_in_arrival_order() {
    let job = |arrival_ms, gpus, runtime_ms| StreamJob { arrival_ms, gpus, runtime_ms };
    let jobs = [job(0, 1, 100), job(10, 2, 50), job(20, 1, 5), job(160, 2, 5), job(161, 3, 1), job(162, 1, 1)];
    let waits: Vec<u64> = serve(&jobs, &mut TwoDeviceAllocator(2)).iter().map(|served| served.wait_ms).collect();
    assert_eq!(waits, [0, 90, 130, 0], "the second job blocks the third; the fifth never fits and ends the service");
}

fn allocator(policy: DevicePolicy, machine: &str, nodes: usize) -> Box<dyn DeviceAllocator> {
    let facts = node_facts(machine).unwrap();
    let gpus = facts.gpus.len() as u32;
    match policy {
        DevicePolicy::Planner => Box::new(PlannerAllocator::new(&facts, nodes)),
        DevicePolicy::SameNuma => Box::new(PlannerAllocator::same_numa(&facts, nodes)),
        DevicePolicy::Lowest => Box::new(TopologyBlindAllocator::new(gpus, nodes, None)),
        DevicePolicy::Random => Box::new(TopologyBlindAllocator::new(gpus, nodes, Some(Random(1)))),
    }
}

#[test]
fn devices_are_allocated_once_and_released() {
    for policy in DevicePolicy::ALL {
        let mut allocator = allocator(policy, "pcie-8xl40s", 2);
        let allocations: Vec<NodeDevices> = (0..4).map(|_| allocator.allocate(4).unwrap()).collect();
        let held: u32 = allocations.iter().map(|one| one.devices.count_ones()).sum();
        let on = |node| allocations.iter().filter(|one| one.node == node).fold(0, |all, one| all | one.devices);
        assert_eq!((held, on(0), on(1)), (16, 0xff, 0xff), "{policy:?}");
        assert_eq!(allocator.allocate(1), None, "{policy:?}");
        allocator.release(allocations[2]);
        assert!(allocator.allocate(1).is_some(), "{policy:?}: the waiting job");
        assert!(allocator.allocate(2).is_some(), "{policy:?}");
        assert_eq!(allocator.allocate(2), None, "{policy:?}");
    }
}

/// On the first node two GPUs on different sockets are free, on the second all four.
#[test]
fn the_planner_prefers_locality_over_packing() {
    let cases =
        [(DevicePolicy::Lowest, 0, 0b0110), (DevicePolicy::Planner, 1, 0b0011), (DevicePolicy::SameNuma, 1, 0b0011)];
    for (policy, node, devices) in cases {
        let mut allocator = allocator(policy, "pcie-4xa100", 2);
        let allocations: Vec<NodeDevices> = (0..8).map(|_| allocator.allocate(1).unwrap()).collect();
        let ends = |one: &&NodeDevices| one.node == 1 || one.devices & 0b0110 != 0;
        allocations.iter().filter(ends).for_each(|one| allocator.release(*one));
        assert_eq!(allocator.allocate(2), Some(NodeDevices { node, devices }), "{policy:?}");
    }
}

/// The machine has two NUMA nodes; a job that needs all of its GPUs is placed nevertheless.
#[test]
fn same_numa_is_required_only_of_jobs_that_fit_one_numa_node() {
    let mut allocator = allocator(DevicePolicy::SameNuma, "pcie-4xa100", 1);
    let allocations: Vec<NodeDevices> = (0..4).map(|_| allocator.allocate(1).unwrap()).collect();
    let ends = |one: &&NodeDevices| one.devices & 0b0110 != 0;
    allocations.iter().filter(ends).for_each(|one| allocator.release(*one));
    assert_eq!(allocator.allocate(2), None, "one GPU is free on each NUMA node");
    allocations.iter().filter(|one| !ends(one)).for_each(|one| allocator.release(*one));
    let two = allocator.allocate(2).unwrap();
    assert!([0b0011, 0b1100].contains(&two.devices), "{two:?}");
    allocator.release(two);
    assert_eq!(allocator.allocate(4), Some(NodeDevices { node: 0, devices: 0b1111 }));
}

/// Exhaustive over all sets of free GPUs of real machines.
#[test]
fn the_choice_on_every_machine_is_the_best_of_all_sets() {
    let preferences = [Nvlink::Welcome, Nvlink::Preferred, Nvlink::Required];
    for machine in MACHINES {
        let facts = node_facts(machine).unwrap();
        let (topology, all) = (NodeTopology::of(&facts.gpus, &facts.numa), (1u64 << facts.gpus.len()) - 1);
        for (free, nvlink) in (0..=all).flat_map(|free| preferences.map(|nvlink| (free, nvlink))) {
            let requirement = LocalityRequirement { nvlink, ..LocalityRequirement::default() };
            let mut best = [None; 9];
            for set in (1..=free).filter(|set| set & !free == 0) {
                let rank = topology.rank(free, set, requirement);
                let known = &mut best[set.count_ones() as usize];
                *known = [*known, rank].into_iter().flatten().min();
            }
            for count in 1..=free.count_ones() {
                let wanted = best[count as usize].map(|rank| rank.devices);
                assert_eq!(
                    topology.choose(free, count, requirement),
                    wanted,
                    "{machine}: {count} of {free:b}, {nvlink:?}"
                );
            }
        }
    }
}

#[test]
fn topology_awareness_shortens_steps_without_longer_waits() {
    let workload = NumaWorkload { nodes: 8, streams: 2, jobs_per_stream: 2_000, seed: 5 };
    let step = TrainingStep { compute_ms: 100.0, gradient_mb: 1_000.0 };
    for fabric in FABRICS {
        let facts = node_facts(fabric.machine).unwrap();
        let rows = rows_for_load(&workload, &facts, &bandwidths(fabric.machine), step, 0.7);
        let row = |policy: DevicePolicy, gpus| {
            rows.iter().find(|row| row.manner == policy.as_str() && row.gpus == gpus).unwrap()
        };
        let gain = row(DevicePolicy::Planner, 2).gain_percent;
        match fabric.machine {
            "dgx-a100" | "hgx-h100" => {
                assert_eq!(gain, 0.0, "every GPU reaches every other at the same speed")
            }
            machine => assert!(gain > 5.0, "{machine}: {gain}"),
        }
        assert!(row(DevicePolicy::Random, 2).gain_percent <= 1e-9, "{}", fabric.machine);
        assert!(row(DevicePolicy::SameNuma, 2).gain_percent >= gain - 1e-9, "{}", fabric.machine);
        assert!(row(DevicePolicy::Planner, 2).step_ms >= row(DevicePolicy::Planner, 2).step_ms_alone - 1e-9);
        // Two streams bound waits only roughly.
        let (ours, blind) = (row(DevicePolicy::Planner, 2), row(DevicePolicy::Lowest, 2));
        let added = ours.wait_added_min;
        assert!(added < 0.5 * blind.wait_min, "{}: {added} min to {}", fabric.machine, blind.wait_min);
    }
}

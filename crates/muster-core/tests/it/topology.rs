//! The choice of devices by topology, compared with trying every set, on random topologies.

use proptest::prelude::*;

use muster_core::gpu::device::NumaFacts;
use muster_core::gpu::topology::{DeviceSetRank, LocalityRequirement, NodeTopology, Nvlink};
use muster_core::objects::node::NodeFacts;

use crate::builders::node;

/// A node: for each device its NUMA node, socket and switch, some of them unknown, and its NVLink peers.
fn node_facts(devices: std::ops::RangeInclusive<usize>) -> impl Strategy<Value = NodeFacts> {
    let place = || (option(0..4), prop::option::weighted(0.1, 0..2u32), option(0..8));
    // Each device reports a subset of these links: none, all, or some.
    let links = prop_oneof![1 => Just(0u64), 1 => Just(u64::MAX), 3 => any::<u64>()];
    let part = prop_oneof![3 => Just(0u64), 1 => Just(u64::MAX), 2 => any::<u64>()];
    (devices, links)
        .prop_flat_map(move |(count, links)| {
            let device = (place(), part.clone().prop_map(move |part| part & links));
            (prop::collection::vec(device, count), prop::collection::vec(0..2u32, 0..4))
        })
        .prop_map(|(devices, sockets)| facts(&devices, &sockets))
}

fn option(range: std::ops::Range<u32>) -> impl Strategy<Value = Option<u32>> {
    prop::option::weighted(0.8, range)
}

type GpuLocation = (Option<u32>, Option<u32>, Option<u32>);

fn facts(devices: &[(GpuLocation, u64)], sockets: &[u32]) -> NodeFacts {
    let mut facts = node().gpus(devices.len()).build();
    for (gpu, ((numa, socket, switch), linked)) in facts.gpus.iter_mut().zip(devices) {
        gpu.numa_node = *numa;
        gpu.socket = *socket;
        gpu.pcie_switch = *switch;
        gpu.nvlink = (0..64).filter(|peer| linked >> peer & 1 == 1).collect();
    }
    facts.numa = sockets.iter().map(|socket| NumaFacts { cpus: 1, memory_mib: 1, socket: *socket }).collect();
    facts
}

fn requirement() -> impl Strategy<Value = LocalityRequirement> {
    let nvlink = prop_oneof![Just(Nvlink::Welcome), Just(Nvlink::Preferred), Just(Nvlink::Required)];
    (any::<bool>(), nvlink).prop_map(|(same_numa, nvlink)| LocalityRequirement { same_numa, nvlink })
}

/// The best of all sets.
fn best_of_all(
    topology: &NodeTopology,
    free: u64,
    count: u32,
    requirement: LocalityRequirement,
) -> Option<DeviceSetRank> {
    let sets = (0..=free).filter(|set| set & !free == 0 && set.count_ones() == count);
    sets.filter_map(|set| topology.rank(free, set, requirement)).min()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, ..ProptestConfig::default() })]

    #[test]
    fn the_choice_is_the_best_of_all_sets(
        facts in node_facts(0..=8), free in 0..256u64, count in 0..=8u32, requirement in requirement(),
    ) {
        let topology = NodeTopology::of(&facts.gpus, &facts.numa);
        let free = free & ((1 << facts.gpus.len()) - 1);
        let best = best_of_all(&topology, free, count, requirement);
        let chosen = topology.choose(free, count, requirement);
        prop_assert_eq!(chosen, best.map(|rank| rank.devices));
        prop_assert_eq!(chosen.is_some(), count == 0 || count <= topology.most(free, requirement));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    /// Up to 64 devices, where not every set can be tried.
    #[test]
    fn the_chosen_devices_are_free_and_meet_the_locality_requirement(
        facts in node_facts(0..=64),
        free in any::<u64>(),
        more in any::<u64>(),
        count in 0..=64u32,
        requirement in requirement(),
    ) {
        let topology = NodeTopology::of(&facts.gpus, &facts.numa);
        let count = count % (facts.gpus.len() as u32 + 2);
        match topology.choose(free, count, requirement) {
            Some(chosen) => {
                prop_assert_eq!((chosen & !free, chosen.count_ones()), (0, count));
                prop_assert!(requirement.allows(topology.locality(chosen)));
                let with_more = topology.choose(free | more, count, requirement);
                prop_assert!(with_more.is_some(), "more free devices never fit less");
            }
            None => prop_assert!(topology.most(free, requirement) < count),
        }
    }
}

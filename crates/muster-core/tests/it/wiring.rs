//! The choice of devices against trying every set, on boards nobody would build.

use proptest::prelude::*;

use muster_core::node::{NodeFacts, NumaFacts};
use muster_core::wiring::{Nvlink, Rank, Wiring, Wish};

use crate::world;

/// A board: for each device its NUMA node, socket and switch, some of them unknown, and who is linked to whom.
fn board(devices: std::ops::RangeInclusive<usize>) -> impl Strategy<Value = NodeFacts> {
    let place = || (option(0..4), prop::option::weighted(0.1, 0..2u32), option(0..8));
    // Each device reports a part of these: none of them, all, or few.
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

type Place = (Option<u32>, Option<u32>, Option<u32>);

fn facts(devices: &[(Place, u64)], sockets: &[u32]) -> NodeFacts {
    let mut facts = world::facts(devices.len(), "H100", 64, 1_024);
    for (gpu, ((numa, socket, switch), linked)) in facts.gpus.iter_mut().zip(devices) {
        gpu.numa_node = *numa;
        gpu.socket = *socket;
        gpu.pcie_switch = *switch;
        gpu.nvlink = (0..64).filter(|peer| linked >> peer & 1 == 1).collect();
    }
    facts.numa = sockets.iter().map(|socket| NumaFacts { cpus: 1, memory_mib: 1, socket: *socket }).collect();
    facts
}

fn wish() -> impl Strategy<Value = Wish> {
    let nvlink = prop_oneof![Just(Nvlink::Welcome), Just(Nvlink::Preferred), Just(Nvlink::Required)];
    (any::<bool>(), nvlink).prop_map(|(same_numa, nvlink)| Wish { same_numa, nvlink })
}

/// The best set, found by looking at all of them.
fn best_of_all(wiring: &Wiring, free: u64, count: u32, wish: Wish) -> Option<Rank> {
    let sets = (0..=free).filter(|set| set & !free == 0 && set.count_ones() == count);
    sets.filter_map(|set| wiring.rank(free, set, wish)).min()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, ..ProptestConfig::default() })]

    #[test]
    fn the_choice_is_the_best_of_all_sets(
        facts in board(0..=8), free in 0..256u64, count in 0..=8u32, wish in wish(),
    ) {
        let wiring = Wiring::of(&facts);
        let free = free & ((1 << facts.gpus.len()) - 1);
        let best = best_of_all(&wiring, free, count, wish);
        let chosen = wiring.choose(free, count, wish);
        prop_assert_eq!(chosen, best.map(|rank| rank.devices));
        prop_assert_eq!(chosen.is_some(), count == 0 || count <= wiring.most(free, wish));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    /// Up to 64 devices, where not every set can be looked at.
    #[test]
    fn what_is_chosen_is_free_enough_and_as_close_as_required(
        facts in board(0..=64), free in any::<u64>(), more in any::<u64>(), count in 0..=64u32, wish in wish(),
    ) {
        let wiring = Wiring::of(&facts);
        let count = count % (facts.gpus.len() as u32 + 2);
        match wiring.choose(free, count, wish) {
            Some(chosen) => {
                prop_assert_eq!((chosen & !free, chosen.count_ones()), (0, count));
                prop_assert!(wish.admits(wiring.closeness(chosen)));
                prop_assert!(wiring.choose(free | more, count, wish).is_some(), "more room is never less");
            }
            None => prop_assert!(wiring.most(free, wish) < count),
        }
    }
}

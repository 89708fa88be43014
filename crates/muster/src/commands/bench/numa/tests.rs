use super::serve::{Place, Places, serve};
use super::stream::{Job, MEAN_MS};
use super::*;
use muster_core::wiring::{Nvlink, Wiring, Wish};

const BOXES: [&str; 12] = [
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

fn board(machine: &str) -> Board {
    let fabric = model::FABRICS.iter().find(|fabric| fabric.machine == machine).unwrap();
    Board::new(&facts(machine).unwrap(), *fabric)
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
        // 0-1-5-4: no other order has a link at each hop.
        ("dgx-1-v100", 0b0011_0011, 20.0),
        // 0 and 5 are not linked, nor are 2 and 5: through the sockets.
        ("dgx-1-v100", 0b0010_0101, 6.0),
        ("dgx-1-v100", 0b1111_1111, 20.0),
        ("hgx-h100", 0b1001_0110, 370.8),
    ];
    for (machine, devices, gbps) in cases {
        assert_eq!(board(machine).ring_gbps(devices), gbps, "{machine} {devices:b}");
    }
}

#[test]
fn a_step_is_computing_and_then_the_ring() {
    let work = Work { compute_ms: 100.0, gradient_mb: 1_200.0 };
    let board = board("pcie-8xl40s");
    assert_eq!(board.step_ms(0b1, work), 100.0);
    assert_eq!(board.step_ms(0b11, work), 100.0 + 1_200.0 / 24.0);
    assert_eq!(board.step_ms(0b1111, work), 100.0 + 1.5 * 1_200.0 / 20.0);
}

#[test]
fn a_stream_asks_for_its_share() {
    let jobs = stream::jobs(3, 50_000, 0.7, 256, 8);
    let asked: f64 = jobs.iter().map(|job| f64::from(job.gpus) * job.lasts_ms as f64).sum();
    let load = asked / (256.0 * jobs[jobs.len() - 1].arrives_ms as f64);
    assert!((0.68..0.72).contains(&load), "{load}");
    let mean = jobs.iter().map(|job| job.lasts_ms as f64).sum::<f64>() / jobs.len() as f64;
    assert!((0.97..1.03).contains(&(mean / MEAN_MS as f64)), "{mean}");
    assert_eq!(jobs, stream::jobs(3, 50_000, 0.7, 256, 8), "the same seed, the same jobs");
    assert!(stream::jobs(3, 1_000, 0.7, 256, 4).iter().all(|job| job.gpus <= 4));
}

/// Two devices; the last two come back before the first.
struct Two(u32);

impl Places for Two {
    fn take(&mut self, gpus: u32) -> Option<Place> {
        self.0 = self.0.checked_sub(gpus)?;
        Some(Place { node: 0, devices: (1 << gpus) - 1 })
    }

    fn give_back(&mut self, place: Place) {
        self.0 += place.devices.count_ones();
    }
}

#[test]
fn nobody_passes_and_ended_work_makes_room() {
    let job = |arrives_ms, gpus, lasts_ms| Job { arrives_ms, gpus, lasts_ms };
    let jobs =
        [job(0, 1, 100), job(10, 2, 50), job(20, 1, 5), job(160, 2, 5), job(161, 3, 1), job(162, 1, 1)];
    let waits: Vec<u64> = serve(&jobs, &mut Two(2)).iter().map(|served| served.waited_ms).collect();
    assert_eq!(waits, [0, 90, 130, 0], "the second holds up the third; the last but one never fits");
}

/// One who finds devices in a manner.
fn placer(manner: Manner, machine: &str, nodes: usize) -> Box<dyn Places> {
    let facts = facts(machine).unwrap();
    let gpus = facts.gpus.len() as u32;
    match manner {
        Manner::Planner => Box::new(Planner::new(&facts, nodes)),
        Manner::SameNuma => Box::new(Planner::same_numa(&facts, nodes)),
        Manner::Lowest => Box::new(Blind::new(gpus, nodes, None)),
        Manner::Random => Box::new(Blind::new(gpus, nodes, Some(Random(1)))),
    }
}

#[test]
fn devices_are_held_once_and_come_back() {
    for manner in Manner::ALL {
        let mut placer = placer(manner, "pcie-8xl40s", 2);
        let places: Vec<Place> = (0..4).map(|_| placer.take(4).unwrap()).collect();
        let held: u32 = places.iter().map(|place| place.devices.count_ones()).sum();
        let on =
            |node| places.iter().filter(|place| place.node == node).fold(0, |all, place| all | place.devices);
        assert_eq!((held, on(0), on(1)), (16, 0xff, 0xff), "{manner:?}");
        assert_eq!(placer.take(1), None, "{manner:?}");
        placer.give_back(places[2]);
        assert!(placer.take(1).is_some(), "{manner:?}: the one that waited");
        assert!(placer.take(2).is_some(), "{manner:?}");
        assert_eq!(placer.take(2), None, "{manner:?}");
    }
}

/// On the first node two devices on different sockets are free, on the second all four.
#[test]
fn the_nearest_comes_before_the_fullest_node() {
    let cases = [(Manner::Lowest, 0, 0b0110), (Manner::Planner, 1, 0b0011), (Manner::SameNuma, 1, 0b0011)];
    for (manner, node, devices) in cases {
        let mut placer = placer(manner, "pcie-4xa100", 2);
        let places: Vec<Place> = (0..8).map(|_| placer.take(1).unwrap()).collect();
        let ends = |place: &&Place| place.node == 1 || place.devices & 0b0110 != 0;
        places.iter().filter(ends).for_each(|place| placer.give_back(*place));
        assert_eq!(placer.take(2), Some(Place { node, devices }), "{manner:?}");
    }
}

/// Half of a box is one NUMA node, a whole box is two: who needs all of it is served all the same.
#[test]
fn one_numa_node_is_demanded_by_those_who_fit_on_one() {
    let mut placer = placer(Manner::SameNuma, "pcie-4xa100", 1);
    let places: Vec<Place> = (0..4).map(|_| placer.take(1).unwrap()).collect();
    let ends = |place: &&Place| place.devices & 0b0110 != 0;
    places.iter().filter(ends).for_each(|place| placer.give_back(*place));
    assert_eq!(placer.take(2), None, "one device is free on each NUMA node");
    places.iter().filter(|place| !ends(place)).for_each(|place| placer.give_back(*place));
    let two = placer.take(2).unwrap();
    assert!([0b0011, 0b1100].contains(&two.devices), "{two:?}");
    placer.give_back(two);
    assert_eq!(placer.take(4), Some(Place { node: 0, devices: 0b1111 }));
}

/// On machines that are sold, every way is looked at: what is chosen is the best of all sets.
#[test]
fn the_choice_on_every_box_is_the_best_of_all_sets() {
    let wishes = [Nvlink::Welcome, Nvlink::Preferred, Nvlink::Required];
    for machine in BOXES {
        let facts = facts(machine).unwrap();
        let (wiring, all) = (Wiring::of(&facts), (1u64 << facts.gpus.len()) - 1);
        for (free, nvlink) in (0..=all).flat_map(|free| wishes.map(|nvlink| (free, nvlink))) {
            let wish = Wish { nvlink, ..Wish::default() };
            let mut best = [None; 9];
            for set in (1..=free).filter(|set| set & !free == 0) {
                let rank = wiring.rank(free, set, wish);
                let known = &mut best[set.count_ones() as usize];
                *known = [*known, rank].into_iter().flatten().min();
            }
            for count in 1..=free.count_ones() {
                let wanted = best[count as usize].map(|rank| rank.devices);
                assert_eq!(
                    wiring.choose(free, count, wish),
                    wanted,
                    "{machine}: {count} of {free:b}, {nvlink:?}"
                );
            }
        }
    }
}

#[test]
fn the_wiring_is_worth_something_where_paths_differ_and_costs_no_waiting() {
    let args = NumaArgs {
        nodes: 8,
        streams: 2,
        jobs: 2_000,
        seed: 5,
        compute_ms: 100.0,
        gradient_mb: 1_000.0,
        socket_gbps: None,
        show: ShowArgs { output: output::Format::Table },
    };
    let work = Work { compute_ms: args.compute_ms, gradient_mb: args.gradient_mb };
    for fabric in model::FABRICS {
        let facts = facts(fabric.machine).unwrap();
        let rows = runs(&args, &facts, &board(fabric.machine), work, 0.7);
        let row = |manner: Manner, gpus| {
            rows.iter().find(|row| row.manner == manner.word() && row.gpus == gpus).unwrap()
        };
        let gain = row(Manner::Planner, 2).gain_percent;
        match fabric.machine {
            "dgx-a100" | "hgx-h100" => assert_eq!(gain, 0.0, "all reach all"),
            machine => assert!(gain > 5.0, "{machine}: {gain}"),
        }
        assert!(row(Manner::Random, 2).gain_percent <= 1e-9, "{}", fabric.machine);
        assert!(row(Manner::SameNuma, 2).gain_percent >= gain - 1e-9, "{}", fabric.machine);
        assert!(row(Manner::Planner, 2).step_ms >= row(Manner::Planner, 2).step_ms_alone - 1e-9);
        // Two streams tell little of waits: only that they are of the same size.
        let (ours, blind) = (row(Manner::Planner, 2), row(Manner::Lowest, 2));
        let added = ours.wait_added_min;
        assert!(added < 0.5 * blind.wait_min, "{}: {added} min to {}", fabric.machine, blind.wait_min);
    }
}

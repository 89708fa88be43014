use std::collections::BTreeMap;

use super::*;
use crate::node::NumaFacts;

/// A device: its NUMA node, its switch, and its NVLink peers.
type Device<'a> = (Option<u32>, Option<u32>, &'a [u8]);

fn facts(devices: &[Device], sockets: &[u32]) -> NodeFacts {
    let gpu = |(index, (numa_node, pcie_switch, nvlink)): (usize, &Device)| GpuFacts {
        uuid: format!("gpu-{index}"),
        model: "NVIDIA H200".to_string(),
        memory_mib: 143_771,
        numa_node: *numa_node,
        nvlink: nvlink.to_vec(),
        mig: Vec::new(),
        socket: None,
        pcie_switch: *pcie_switch,
        power_limit_milliwatts: None,
    };
    let numa = |socket: &u32| NumaFacts { cpus: 16, memory_mib: 1_024, socket: *socket };
    NodeFacts {
        hostname: String::new(),
        address: String::new(),
        cpus: 64,
        memory_mib: 4_096,
        gpus: devices.iter().enumerate().map(gpu).collect(),
        numa: sockets.iter().map(numa).collect(),
        rack: None,
        block: None,
        power_feed: None,
        labels: BTreeMap::new(),
        taints: Vec::new(),
        agent_version: String::new(),
        incarnation: String::new(),
        simulated: true,
    }
}

/// Eight devices in pairs on switches, two pairs on each socket, all reaching all.
fn meshed() -> Wiring {
    let device = |index: u32| (Some(index / 4), Some(index / 2), &[0, 1, 2, 3, 4, 5, 6, 7][..]);
    Wiring::of(&facts(&(0..8).map(device).collect::<Vec<_>>(), &[]))
}

/// Four sockets' worth of NUMA nodes on two sockets, two devices on each, without NVLink.
fn quartered() -> Wiring {
    let device = |index: u32| (Some(index / 2), None, &[][..]);
    Wiring::of(&facts(&(0..8).map(device).collect::<Vec<_>>(), &[0, 0, 1, 1]))
}

/// Four devices on two sockets; bridges join 0 to 2 and 1 to 3, across the sockets.
fn bridged_across() -> Wiring {
    let peers: [&[u8]; 4] = [&[2], &[3], &[0], &[1]];
    let device = |index: usize| (Some(index as u32 / 2), None, peers[index]);
    Wiring::of(&facts(&(0..4).map(device).collect::<Vec<_>>(), &[]))
}

/// Six devices on one NUMA node, bridges between neighbours.
fn bridged() -> Wiring {
    let peers: [&[u8]; 6] = [&[1], &[0], &[3], &[2], &[5], &[4]];
    Wiring::of(&facts(&peers.map(|peers| (Some(0), None, peers)), &[]))
}

const SAME_NUMA: Wish = Wish { same_numa: true, nvlink: Nvlink::Welcome };
const PREFER_NVLINK: Wish = Wish { same_numa: false, nvlink: Nvlink::Preferred };
const NVLINK: Wish = Wish { same_numa: false, nvlink: Nvlink::Required };
const ANY: Wish = Wish { same_numa: false, nvlink: Nvlink::Welcome };

#[test]
fn closeness_is_told_by_the_smallest_part_that_holds_all() {
    let cases = [
        (meshed(), 0, Closeness::Single),
        (meshed(), 0b1000_0000, Closeness::Single),
        (meshed(), 0b1111, Closeness::NvlinkNuma),
        (meshed(), 0b1_1000, Closeness::NvlinkNode),
        (quartered(), 0b11, Closeness::Numa),
        (quartered(), 0b1001, Closeness::Socket),
        (quartered(), 0b1_1000, Closeness::Node),
        (bridged_across(), 0b0011, Closeness::Numa),
        (bridged_across(), 0b0101, Closeness::NvlinkNode),
        (bridged_across(), 0b0111, Closeness::Node),
    ];
    for (wiring, devices, closeness) in cases {
        assert_eq!(wiring.closeness(devices), closeness, "{devices:b}");
    }
}

#[test]
fn a_socket_may_be_joined_by_nvlink() {
    let devices = [(Some(0), None, &[1][..]), (Some(1), None, &[]), (Some(2), None, &[])];
    let wiring = Wiring::of(&facts(&devices, &[0, 0, 1]));
    assert_eq!(wiring.closeness(0b011), Closeness::NvlinkSocket, "a link that one side reports is a link");
    assert_eq!(wiring.closeness(0b110), Closeness::Node);
}

#[test]
fn what_a_device_says_of_its_socket_comes_before_what_its_numa_node_says() {
    let mut machine = facts(&[(Some(0), None, &[]), (Some(1), None, &[])], &[0, 0]);
    assert_eq!(Wiring::of(&machine).closeness(0b11), Closeness::Socket);
    machine.gpus[1].socket = Some(7);
    assert_eq!(Wiring::of(&machine).closeness(0b11), Closeness::Node);
    machine.numa.clear();
    machine.gpus[0].socket = Some(7);
    assert_eq!(Wiring::of(&machine).closeness(0b11), Closeness::Socket);
}

#[test]
fn what_is_not_known_keeps_nobody_apart() {
    let wiring = Wiring::of(&facts(&[(None, None, &[][..]); 8], &[]));
    assert_eq!(wiring.closeness(0xff), Closeness::Numa);
    assert_eq!(wiring.numa_nodes(0xff), [0; 0]);
    assert_eq!(wiring.choose(0b1011_0110, 3, SAME_NUMA), Some(0b1_0110), "the lowest indexes");
    assert_eq!(wiring.choose(0xff, 2, NVLINK), None);
}

#[test]
fn links_to_nowhere_and_to_itself_are_none() {
    let wiring = Wiring::of(&facts(&[(None, None, &[0, 9, 200]), (None, None, &[1])], &[]));
    assert_eq!(wiring.closeness(0b11), Closeness::Numa);
}

#[test]
fn the_numa_nodes_of_devices() {
    let wiring = Wiring::of(&facts(&[(Some(3), None, &[]), (None, None, &[]), (Some(1), None, &[])], &[]));
    assert_eq!(wiring.numa_nodes(0b111), [1, 3]);
    assert_eq!(wiring.numa_nodes(0b011), [3]);
}

#[test]
fn the_most_that_can_be_had() {
    assert_eq!(meshed().most(0b0111_0111, SAME_NUMA), 3);
    assert_eq!(meshed().most(0b0111_0111, NVLINK), 6);
    assert_eq!(bridged_across().most(0b1111, NVLINK), 2);
    assert_eq!(bridged_across().most(0b1111, Wish { same_numa: true, ..NVLINK }), 1);
    assert_eq!(bridged_across().most(0b1111, ANY), 4);
}

#[test]
fn choices_by_hand() {
    let cases = [
        // One switch is nearer than two.
        (meshed(), 0b1111_1110, 2, ANY, Some(0b0000_1100)),
        // A single one is taken from the broken pair, and from the fuller socket.
        (meshed(), 0b1111_1110, 1, ANY, Some(0b0000_0010)),
        // The pair comes from the socket that is broken already.
        (meshed(), 0b1111_1100, 2, ANY, Some(0b0000_1100)),
        // Across sockets only where one does not suffice, and then with as few switches as can be.
        (meshed(), 0b0111_0110, 3, ANY, Some(0b0111_0000)),
        (meshed(), 0b0111_0110, 4, ANY, Some(0b0011_0110)),
        (meshed(), 0b0111_0110, 4, SAME_NUMA, None),
        (meshed(), 0b0111_0110, 4, NVLINK, Some(0b0011_0110)),
        (meshed(), 0b0111_0110, 7, ANY, None),
        (meshed(), 0b0111_0110, 0, NVLINK, Some(0)),
        // A socket before the node, a NUMA node before a socket.
        (quartered(), 0b0101_0110, 2, ANY, Some(0b0000_0110)),
        (quartered(), 0b1101_0110, 2, ANY, Some(0b1100_0000)),
        // NVLink across sockets is worth more than a NUMA node to those who prefer it.
        (bridged_across(), 0b1111, 2, ANY, Some(0b0011)),
        (bridged_across(), 0b1111, 2, PREFER_NVLINK, Some(0b0101)),
        (bridged_across(), 0b0111, 2, NVLINK, Some(0b0101)),
        (bridged_across(), 0b0011, 2, PREFER_NVLINK, Some(0b0011)),
        (bridged_across(), 0b0011, 2, NVLINK, None),
        // Two that lie on one NUMA node are worth more than two that a bridge joins across sockets.
        (bridged_across(), 0b1110, 1, ANY, Some(0b0010)),
        // The one whose partner is gone is taken first; whole bridges before halves of two.
        (bridged(), 0b10_1111, 1, ANY, Some(0b10_0000)),
        (bridged(), 0b10_1110, 2, ANY, Some(0b00_1100)),
        (bridged(), 0b11_1110, 4, ANY, Some(0b11_1100)),
        (bridged(), 0b10_1110, 3, NVLINK, None),
    ];
    for (wiring, free, count, wish, chosen) in cases {
        assert_eq!(wiring.choose(free, count, wish), chosen, "{count} of {free:b} by {wish:?}");
    }
}

#[test]
fn devices_without_a_difference_are_counted_not_told_apart() {
    assert_eq!(meshed().classes, [0b11, 0b1100, 0b11_0000, 0b1100_0000]);
    assert_eq!(quartered().classes, [0b11, 0b1100, 0b11_0000, 0b1100_0000]);
    assert_eq!(bridged_across().classes, [1, 2, 4, 8]);
    assert_eq!(Wiring::of(&facts(&[(None, None, &[][..]); 64], &[])).classes, [u64::MAX]);
}

/// 32 switches with two devices each: there are more ways to take twenty than are tried.
#[test]
fn a_board_that_is_too_rich_is_filled_switch_by_switch() {
    let device = |index: u32| (Some(0), Some(index / 2), &[][..]);
    let wiring = Wiring::of(&facts(&(0..64).map(device).collect::<Vec<_>>(), &[]));
    let broken = 0b0101;
    assert_eq!(wiring.choose(!broken, 20, ANY), Some(0xf_ffff << 4));
    assert_eq!(wiring.choose(!broken, 63, ANY), None);
    assert_eq!(wiring.choose(!broken, 62, SAME_NUMA), Some(!broken));
}

#[test]
fn equal_machines_are_wired_equally() {
    assert_eq!(meshed(), meshed());
    let device = |index: u32| (Some(index / 4), Some(9 - index / 2), &[0, 1, 2, 3, 4, 5, 6, 7][..]);
    let counted_backwards = Wiring::of(&facts(&(0..8).map(device).collect::<Vec<_>>(), &[]));
    assert_eq!(meshed(), counted_backwards);
    assert!(meshed() != quartered() && meshed().cmp(&quartered()) != std::cmp::Ordering::Equal);
}

#[test]
fn a_topology_is_a_wish() {
    assert_eq!(Wish::of(Topology::Any), ANY);
    assert_eq!(Wish::of(Topology::SameRack), ANY);
    assert_eq!(Wish::of(Topology::SameNuma), SAME_NUMA);
    assert_eq!(Wish::of(Topology::Nvlink), NVLINK);
}

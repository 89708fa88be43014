//! Tests of node topology: locality of device sets, and device selection.

use super::*;

/// A device: its NUMA node, its switch, and its NVLink peers.
type Device<'a> = (Option<u32>, Option<u32>, &'a [u8]);

fn facts(devices: &[Device], sockets: &[u32]) -> (Vec<GpuFacts>, Vec<NumaFacts>) {
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
    (devices.iter().enumerate().map(gpu).collect(), sockets.iter().map(numa).collect())
}

fn topology(devices: &[Device], sockets: &[u32]) -> NodeTopology {
    let (gpus, numa_nodes) = facts(devices, sockets);
    NodeTopology::of(&gpus, &numa_nodes)
}

/// Eight devices in pairs on switches, two pairs per socket, with NVLink between all.
fn meshed() -> NodeTopology {
    let device = |index: u32| (Some(index / 4), Some(index / 2), &[0, 1, 2, 3, 4, 5, 6, 7][..]);
    topology(&(0..8).map(device).collect::<Vec<_>>(), &[])
}

/// Four NUMA nodes on two sockets, two devices per NUMA node, without NVLink.
fn quartered() -> NodeTopology {
    let device = |index: u32| (Some(index / 2), None, &[][..]);
    topology(&(0..8).map(device).collect::<Vec<_>>(), &[0, 0, 1, 1])
}

/// Four devices on two sockets; NVLink bridges join 0 to 2 and 1 to 3, across the sockets.
fn bridged_across() -> NodeTopology {
    let peers: [&[u8]; 4] = [&[2], &[3], &[0], &[1]];
    let device = |index: usize| (Some(index as u32 / 2), None, peers[index]);
    topology(&(0..4).map(device).collect::<Vec<_>>(), &[])
}

/// Six devices on one NUMA node, with NVLink bridges between neighbours.
fn bridged() -> NodeTopology {
    let peers: [&[u8]; 6] = [&[1], &[0], &[3], &[2], &[5], &[4]];
    topology(&peers.map(|peers| (Some(0), None, peers)), &[])
}

const SAME_NUMA: LocalityRequirement = LocalityRequirement { same_numa: true, nvlink: Nvlink::Welcome };
const PREFER_NVLINK: LocalityRequirement = LocalityRequirement { same_numa: false, nvlink: Nvlink::Preferred };
const NVLINK: LocalityRequirement = LocalityRequirement { same_numa: false, nvlink: Nvlink::Required };
const ANY: LocalityRequirement = LocalityRequirement { same_numa: false, nvlink: Nvlink::Welcome };

#[test]
fn locality_is_the_smallest_domain_that_contains_all_devices() {
    let cases = [
        (meshed(), 0, Locality::Single),
        (meshed(), 0b1000_0000, Locality::Single),
        (meshed(), 0b1111, Locality::NvlinkNuma),
        (meshed(), 0b1_1000, Locality::NvlinkNode),
        (quartered(), 0b11, Locality::Numa),
        (quartered(), 0b1001, Locality::Socket),
        (quartered(), 0b1_1000, Locality::Node),
        (bridged_across(), 0b0011, Locality::Numa),
        (bridged_across(), 0b0101, Locality::NvlinkNode),
        (bridged_across(), 0b0111, Locality::Node),
    ];
    for (topology, devices, locality) in cases {
        assert_eq!(topology.locality(devices), locality, "{devices:b}");
    }
}

#[test]
fn devices_of_one_socket_may_be_joined_by_nvlink() {
    let devices = [(Some(0), None, &[1][..]), (Some(1), None, &[]), (Some(2), None, &[])];
    let node = topology(&devices, &[0, 0, 1]);
    assert_eq!(node.locality(0b011), Locality::NvlinkSocket, "a link that one side reports is a link");
    assert_eq!(node.locality(0b110), Locality::Node);
}

#[test]
fn the_socket_of_a_device_overrides_that_of_its_numa_node() {
    let (mut gpus, mut numa_nodes) = facts(&[(Some(0), None, &[]), (Some(1), None, &[])], &[0, 0]);
    assert_eq!(NodeTopology::of(&gpus, &numa_nodes).locality(0b11), Locality::Socket);
    gpus[1].socket = Some(7);
    assert_eq!(NodeTopology::of(&gpus, &numa_nodes).locality(0b11), Locality::Node);
    numa_nodes.clear();
    gpus[0].socket = Some(7);
    assert_eq!(NodeTopology::of(&gpus, &numa_nodes).locality(0b11), Locality::Socket);
}

#[test]
fn devices_of_unknown_topology_count_as_one_numa_node() {
    let node = topology(&[(None, None, &[][..]); 8], &[]);
    assert_eq!(node.locality(0xff), Locality::Numa);
    assert_eq!(node.numa_nodes(0xff), [0; 0]);
    assert_eq!(node.choose(0b1011_0110, 3, SAME_NUMA), Some(0b1_0110), "the lowest indexes");
    assert_eq!(node.choose(0xff, 2, NVLINK), None);
}

#[test]
fn invalid_nvlink_peers_are_ignored() {
    let node = topology(&[(None, None, &[0, 9, 200]), (None, None, &[1])], &[]);
    assert_eq!(node.locality(0b11), Locality::Numa);
}

#[test]
fn known_numa_nodes_of_devices_are_listed_in_order() {
    let node = topology(&[(Some(3), None, &[]), (None, None, &[]), (Some(1), None, &[])], &[]);
    assert_eq!(node.numa_nodes(0b111), [1, 3]);
    assert_eq!(node.numa_nodes(0b011), [3]);
}

#[test]
fn most_is_the_largest_set_that_meets_the_requirement() {
    assert_eq!(meshed().most(0b0111_0111, SAME_NUMA), 3);
    assert_eq!(meshed().most(0b0111_0111, NVLINK), 6);
    assert_eq!(bridged_across().most(0b1111, NVLINK), 2);
    assert_eq!(bridged_across().most(0b1111, LocalityRequirement { same_numa: true, ..NVLINK }), 1);
    assert_eq!(bridged_across().most(0b1111, ANY), 4);
}

#[test]
fn chosen_devices_are_close_and_fragment_least() {
    let cases = [
        // A set on one switch is closer than a set on two.
        (meshed(), 0b1111_1110, 2, ANY, Some(0b0000_1100)),
        // A single device comes from the incomplete pair, on the socket with more devices taken.
        (meshed(), 0b1111_1110, 1, ANY, Some(0b0000_0010)),
        // The pair comes from the socket that is already incomplete.
        (meshed(), 0b1111_1100, 2, ANY, Some(0b0000_1100)),
        // Sets span sockets only if one socket is not enough, and then on as few switches as possible.
        (meshed(), 0b0111_0110, 3, ANY, Some(0b0111_0000)),
        (meshed(), 0b0111_0110, 4, ANY, Some(0b0011_0110)),
        (meshed(), 0b0111_0110, 4, SAME_NUMA, None),
        (meshed(), 0b0111_0110, 4, NVLINK, Some(0b0011_0110)),
        (meshed(), 0b0111_0110, 7, ANY, None),
        (meshed(), 0b0111_0110, 0, NVLINK, Some(0)),
        // One socket is preferred over the whole node, and one NUMA node over one socket.
        (quartered(), 0b0101_0110, 2, ANY, Some(0b0000_0110)),
        (quartered(), 0b1101_0110, 2, ANY, Some(0b1100_0000)),
        // With `Nvlink::Preferred`, NVLink across sockets beats one NUMA node.
        (bridged_across(), 0b1111, 2, ANY, Some(0b0011)),
        (bridged_across(), 0b1111, 2, PREFER_NVLINK, Some(0b0101)),
        (bridged_across(), 0b0111, 2, NVLINK, Some(0b0101)),
        (bridged_across(), 0b0011, 2, PREFER_NVLINK, Some(0b0011)),
        (bridged_across(), 0b0011, 2, NVLINK, None),
        // The bonds of a shared NUMA node outweigh those of a bridge across sockets.
        (bridged_across(), 0b1110, 1, ANY, Some(0b0010)),
        // A device whose bridge partner is taken goes first; a whole bridge is preferred over halves of two.
        (bridged(), 0b10_1111, 1, ANY, Some(0b10_0000)),
        (bridged(), 0b10_1110, 2, ANY, Some(0b00_1100)),
        (bridged(), 0b11_1110, 4, ANY, Some(0b11_1100)),
        (bridged(), 0b10_1110, 3, NVLINK, None),
    ];
    for (topology, free, count, requirement, chosen) in cases {
        assert_eq!(topology.choose(free, count, requirement), chosen, "{count} of {free:b} by {requirement:?}");
    }
}

#[test]
fn interchangeable_devices_form_one_class() {
    assert_eq!(meshed().classes, [0b11, 0b1100, 0b11_0000, 0b1100_0000]);
    assert_eq!(quartered().classes, [0b11, 0b1100, 0b11_0000, 0b1100_0000]);
    assert_eq!(bridged_across().classes, [1, 2, 4, 8]);
    assert_eq!(topology(&[(None, None, &[][..]); 64], &[]).classes, [u64::MAX]);
}

/// 32 switches with two devices each: more sets of twenty exist than `SETS_TRIED_MAX`.
#[test]
fn beyond_the_search_limit_devices_are_chosen_switch_by_switch() {
    let device = |index: u32| (Some(0), Some(index / 2), &[][..]);
    let node = topology(&(0..64).map(device).collect::<Vec<_>>(), &[]);
    let broken = 0b0101;
    assert_eq!(node.choose(!broken, 20, ANY), Some(0xf_ffff << 4));
    assert_eq!(node.choose(!broken, 63, ANY), None);
    assert_eq!(node.choose(!broken, 62, SAME_NUMA), Some(!broken));
}

#[test]
fn topologies_that_differ_only_in_switch_numbers_are_equal() {
    assert_eq!(meshed(), meshed());
    let device = |index: u32| (Some(index / 4), Some(9 - index / 2), &[0, 1, 2, 3, 4, 5, 6, 7][..]);
    let renumbered = topology(&(0..8).map(device).collect::<Vec<_>>(), &[]);
    assert_eq!(meshed(), renumbered);
    assert!(meshed() != quartered() && meshed().cmp(&quartered()) != std::cmp::Ordering::Equal);
}

//! Device selection by topology: the best set of free devices for a task, in the order defined by [`DeviceSetRank`].
//!
//! The search is exact in a region of at most `SETS_TRIED_MAX` sets, and greedy in a larger one. Three measures keep
//! it cheap. Sets within one NUMA node are tried first, then sets within one socket, and the search stops when no wider
//! set can be better. Interchangeable devices are enumerated by count, not one by one. The expensive part of a rank is
//! computed only for sets whose cheap part is no worse than that of the best set so far.

use super::{Locality, LocalityRequirement, NodeTopology, Nvlink, ones};

/// Most sets tried per region, about 0.1 µs each. Sixteen devices in pairs have at most 1,107. A region with more sets
/// is filled greedily, see `fill_greedily`.
const SETS_TRIED_MAX: u64 = 4_096;

/// The rank of a set of devices for a locality requirement; lower is better. Fields are compared from the top.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceSetRank {
    /// Position of the set's locality in the order of preference.
    pub preference: u8,
    pub spread: DeviceSetSpread,
    /// Pairs in the set without an NVLink.
    pub unlinked: u32,
    /// Bonds that taking the set removes from the free devices. A pair of devices has one bond for each of: the same
    /// switch, the same NUMA node, the same socket, an NVLink. Taking a pair from a group of two removes fewer bonds
    /// than taking it from a group of four, so small groups are used first and large ones stay whole.
    pub bonds_lost: u32,
    /// The devices as a bit mask; ties go to the lowest indexes.
    pub devices: u64,
}

/// How many sockets, NUMA nodes and switches a set of devices touches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceSetSpread {
    pub sockets: u32,
    pub numa_nodes: u32,
    /// PCIe switches; a device that shares no switch counts as one.
    pub switches: u32,
}

impl NodeTopology {
    /// The best `count` free devices that meet the requirement; `None` if there are too few.
    pub fn choose(&self, free: u64, count: u32, requirement: LocalityRequirement) -> Option<u64> {
        let free = free & self.all;
        if count == 0 || self.most(free, requirement) < count {
            return (count == 0).then_some(0);
        }
        let mut search = DeviceSetSearch { topology: self, free, requirement, bonds: self.bonds(free), best: None };
        for (_, numa) in &self.numa {
            search.search_region(numa & free, count);
        }
        if !requirement.same_numa && !search.beats(Locality::NvlinkSocket) {
            self.sockets.iter().for_each(|socket| search.search_region(socket & free, count));
            if !search.beats(Locality::NvlinkNode) {
                search.search_region(free, count);
            }
        }
        search.best.map(|rank| rank.devices)
    }

    /// The rank of taking `chosen` from the free devices; `None` if the requirement is not met.
    pub fn rank(&self, free: u64, chosen: u64, requirement: LocalityRequirement) -> Option<DeviceSetRank> {
        let (free, chosen) = (free & self.all, chosen & self.all);
        let near = self.nearness(chosen, requirement)?;
        Some(DeviceSetRank { bonds_lost: self.bonds(free) - self.bonds(free & !chosen), ..near })
    }

    /// The part of a rank that does not depend on the other free devices.
    fn nearness(&self, chosen: u64, requirement: LocalityRequirement) -> Option<DeviceSetRank> {
        let locality = self.locality(chosen);
        let unlinked = pairs(chosen) - self.linked_pairs(chosen);
        let rank = || DeviceSetRank {
            preference: requirement.preference(locality),
            spread: self.spread(chosen),
            unlinked,
            bonds_lost: 0,
            devices: chosen,
        };
        requirement.allows(locality).then(rank)
    }

    fn spread(&self, devices: u64) -> DeviceSetSpread {
        let touched = |group: &&u64| *group & devices != 0;
        let switched = self.switches.iter().fold(0, |all, group| all | group);
        let alone = (devices & !switched).count_ones();
        DeviceSetSpread {
            sockets: self.sockets.iter().filter(touched).count() as u32,
            numa_nodes: self.numa.iter().filter(|(_, group)| group & devices != 0).count() as u32,
            switches: self.switches.iter().filter(touched).count() as u32 + alone,
        }
    }

    /// The number of bonds in a set, see [`DeviceSetRank::bonds_lost`].
    fn bonds(&self, devices: u64) -> u32 {
        let within = |group: &u64| pairs(group & devices);
        self.numa.iter().map(|(_, group)| within(group)).sum::<u32>()
            + self.sockets.iter().map(within).sum::<u32>()
            + self.switches.iter().map(within).sum::<u32>()
            + self.linked_pairs(devices)
    }

    fn linked_pairs(&self, devices: u64) -> u32 {
        ones(devices).map(|device| (self.nvlink[device] & devices).count_ones()).sum::<u32>() / 2
    }
}

/// A search for the best set, with the best one so far.
struct DeviceSetSearch<'a> {
    topology: &'a NodeTopology,
    free: u64,
    requirement: LocalityRequirement,
    /// Bonds of all free devices.
    bonds: u32,
    best: Option<DeviceSetRank>,
}

impl DeviceSetSearch<'_> {
    /// True if the best set so far is better than every set with this locality or a wider one.
    fn beats(&self, locality: Locality) -> bool {
        self.best.is_some_and(|best| best.preference < self.requirement.preference(locality))
    }

    /// Tries the sets of `count` devices within a region.
    fn search_region(&mut self, region: u64, count: u32) {
        if region.count_ones() < count {
            return;
        }
        let classes: Vec<u64> = self.topology.classes.iter().map(|class| class & region).collect();
        if ways(&classes, count) <= SETS_TRIED_MAX {
            self.each_way(&classes, region, 0, count);
        } else {
            self.fill_greedily(region, count);
        }
    }

    /// Enumerates how many devices come from the first class, and recursively from the other classes.
    fn each_way(&mut self, classes: &[u64], left: u64, chosen: u64, count: u32) {
        let Some((class, rest)) = classes.split_first().filter(|_| count > 0) else {
            return self.consider(chosen);
        };
        let left = left & !class;
        let at_least = count.saturating_sub(left.count_ones());
        let (mut taken, mut offered) = (0, *class);
        for number in 0..=count.min(class.count_ones()) {
            if number >= at_least {
                self.each_way(rest, left, chosen | taken, count - number);
            }
            let lowest = offered & offered.wrapping_neg();
            taken |= lowest;
            offered &= !lowest;
        }
    }

    fn consider(&mut self, chosen: u64) {
        let Some(near) = self.topology.nearness(chosen, self.requirement) else { return };
        let nearness = |rank: &DeviceSetRank| (rank.preference, rank.spread, rank.unlinked);
        if self.best.is_some_and(|best| nearness(&best) < nearness(&near)) {
            return;
        }
        let bonds_lost = self.bonds - self.topology.bonds(self.free & !chosen);
        let rank = DeviceSetRank { bonds_lost, ..near };
        self.best = Some(self.best.map_or(rank, |best| best.min(rank)));
    }

    /// Selects greedily in a region with too many sets to try: once within each NVLink island and, unless NVLink is
    /// required, once in the whole region. Finds a set whenever one exists. The set may not be optimal, but it is never
    /// wider than the region. Takes O(islands × count × devices).
    fn fill_greedily(&mut self, region: u64, count: u32) {
        let topology = self.topology;
        for island in topology.islands(region).filter(|island| island.count_ones() >= count) {
            self.consider(topology.greedy_set(island, count, |chosen| topology.neighbours(chosen)));
        }
        if self.requirement.nvlink != Nvlink::Required {
            self.consider(topology.greedy_set(region, count, |_| u64::MAX));
        }
    }
}

impl NodeTopology {
    /// Adds devices of a region one at a time, from those that `candidates` allows next: first by least growth of the
    /// spread, then by the best fit of socket, NUMA node and switch, then by the fewest bonds lost.
    fn greedy_set(&self, region: u64, count: u32, candidates: impl Fn(u64) -> u64) -> u64 {
        let mut chosen: u64 = 0;
        for missing in (1..=count).rev() {
            let left = region & !chosen;
            let reachable = if chosen == 0 { left } else { left & candidates(chosen) };
            let cost = |device: &usize| {
                let bit = 1 << device;
                let fits = self.groups_of(bit).map(|group| fit(group & left, missing));
                (self.spread(chosen | bit), fits, self.bonds(left) - self.bonds(left & !bit), *device)
            };
            let Some(next) = ones(reachable).min_by_key(cost) else { break };
            chosen |= 1 << next;
        }
        chosen
    }

    /// Socket, NUMA node and switch of a device.
    fn groups_of(&self, device: u64) -> [u64; 3] {
        let has = |group: &&u64| *group & device != 0;
        let socket = self.sockets.iter().find(has);
        let numa = self.numa.iter().map(|(_, group)| group).find(has);
        let switch = self.switches.iter().find(has);
        [socket, numa, switch].map(|group| *group.unwrap_or(&device))
    }

    fn neighbours(&self, devices: u64) -> u64 {
        ones(devices).fold(0, |all, device| all | self.nvlink[device])
    }
}

/// How well a group fits the number of missing devices: the smallest group with enough, else the largest.
fn fit(group: u64, missing: u32) -> (bool, u32) {
    let size = group.count_ones();
    let too_small = size < missing;
    (too_small, if too_small { u64::BITS - size } else { size })
}

fn pairs(devices: u64) -> u32 {
    let count = devices.count_ones();
    count * count.saturating_sub(1) / 2
}

/// The number of ways to take `count` devices from classes, counted up to just above `SETS_TRIED_MAX`.
fn ways(classes: &[u64], count: u32) -> u64 {
    let sizes = classes.iter().map(|class| class.count_ones());
    let bound = sizes.clone().try_fold(1, |bound: u64, size| bound.checked_mul(u64::from(size) + 1));
    if let Some(bound @ ..=SETS_TRIED_MAX) = bound {
        return bound;
    }
    let mut ways = vec![0; count as usize + 1];
    ways[0] = 1;
    for size in sizes {
        for total in (1..ways.len()).rev() {
            let fewer = &ways[total.saturating_sub(size as usize)..total];
            ways[total] = (ways[total] + fewer.iter().sum::<u64>()).min(SETS_TRIED_MAX + 1);
        }
    }
    ways[count as usize]
}

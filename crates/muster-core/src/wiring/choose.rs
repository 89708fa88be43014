//! Which devices a task gets: the best set of the free ones, by an order that is written down in [`Rank`].
//!
//! The choice is the least of all sets, not a guess. Three things make that cheap. Sets on one NUMA node
//! are looked at first and those on one socket next: what is found there ends the search where nothing
//! wider could be better. Devices that are interchangeable are counted, not told apart. And the costlier
//! half of a rank is computed only for sets that are as near as the best one so far.

use super::{Closeness, Nvlink, Wiring, Wish, ones};

/// So many ways to take devices from a region are looked at, some 0.1 µs each. Sixteen devices in pairs have
/// 1,107 at most. Regions with more of them are filled by hand, see `filled`.
const WAYS_MAX: u64 = 4_096;

/// How good a set of devices is for a wish, the best first. Fields are compared from the top.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// How far down its closeness is in the order of preference.
    pub place: u8,
    /// How far it reaches.
    pub spread: Spread,
    /// Pairs in it that are not linked by NVLink.
    pub unlinked: u32,
    /// Bonds that are lost among the free devices when it is taken. A pair of devices has a bond for each
    /// of these: the same switch, the same NUMA node, the same socket, an NVLink. A pair that is taken from
    /// a group of two loses less than one from a group of four, so small groups are used up first and large
    /// ones stay whole.
    pub spoiled: u32,
    /// The devices; as a number, so that the lowest indexes come first.
    pub devices: u64,
}

/// How many parts of the board a set of devices touches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Spread {
    /// Sockets.
    pub sockets: u32,
    /// NUMA nodes.
    pub numa_nodes: u32,
    /// PCIe switches; a device that shares none with others counts as one.
    pub switches: u32,
}

impl Wiring {
    /// The best `count` of the free devices for a wish, if there are so many that it admits.
    pub fn choose(&self, free: u64, count: u32, wish: Wish) -> Option<u64> {
        let free = free & self.all;
        if count == 0 || self.most(free, wish) < count {
            return (count == 0).then_some(0);
        }
        let mut search = Search { wiring: self, free, wish, bonds: self.bonds(free), best: None };
        for (_, numa) in &self.numa {
            search.look_in(numa & free, count);
        }
        if !wish.same_numa && !search.beats(Closeness::NvlinkSocket) {
            self.sockets.iter().for_each(|socket| search.look_in(socket & free, count));
            if !search.beats(Closeness::NvlinkNode) {
                search.look_in(free, count);
            }
        }
        search.best.map(|rank| rank.devices)
    }

    /// How good it is to take these of the free devices; nothing where the wish forbids it.
    pub fn rank(&self, free: u64, chosen: u64, wish: Wish) -> Option<Rank> {
        let (free, chosen) = (free & self.all, chosen & self.all);
        let near = self.nearness(chosen, wish)?;
        Some(Rank { spoiled: self.bonds(free) - self.bonds(free & !chosen), ..near })
    }

    /// The half of a rank that does not depend on what else is free.
    fn nearness(&self, chosen: u64, wish: Wish) -> Option<Rank> {
        let closeness = self.closeness(chosen);
        let unlinked = pairs(chosen) - self.linked_pairs(chosen);
        let rank = || Rank {
            place: wish.place(closeness),
            spread: self.spread(chosen),
            unlinked,
            spoiled: 0,
            devices: chosen,
        };
        wish.admits(closeness).then(rank)
    }

    fn spread(&self, devices: u64) -> Spread {
        let touched = |group: &&u64| *group & devices != 0;
        let switched = self.switches.iter().fold(0, |all, group| all | group);
        let alone = (devices & !switched).count_ones();
        Spread {
            sockets: self.sockets.iter().filter(touched).count() as u32,
            numa_nodes: self.numa.iter().filter(|(_, group)| group & devices != 0).count() as u32,
            switches: self.switches.iter().filter(touched).count() as u32 + alone,
        }
    }

    /// What pairs of devices have in common, summed up.
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

/// The best set so far, and what is needed to compare it with the next.
struct Search<'a> {
    wiring: &'a Wiring,
    free: u64,
    wish: Wish,
    /// Those of all free devices.
    bonds: u32,
    best: Option<Rank>,
}

impl Search<'_> {
    /// Whether the best set is better than any that is not closer than this.
    fn beats(&self, closeness: Closeness) -> bool {
        self.best.is_some_and(|best| best.place < self.wish.place(closeness))
    }

    /// Consider the sets of a region.
    fn look_in(&mut self, region: u64, count: u32) {
        if region.count_ones() < count {
            return;
        }
        let classes: Vec<u64> = self.wiring.classes.iter().map(|class| class & region).collect();
        if ways(&classes, count) <= WAYS_MAX {
            self.each_way(&classes, region, 0, count);
        } else {
            self.filled(region, count);
        }
    }

    /// Take so many from the first class and the others from the rest, in each possible way.
    fn each_way(&mut self, classes: &[u64], left: u64, chosen: u64, count: u32) {
        let Some((class, rest)) = classes.split_first().filter(|_| count > 0) else {
            return self.consider(chosen);
        };
        let left = left & !class;
        let must = count.saturating_sub(left.count_ones());
        let (mut taken, mut offered) = (0, *class);
        for number in 0..=count.min(class.count_ones()) {
            if number >= must {
                self.each_way(rest, left, chosen | taken, count - number);
            }
            let lowest = offered & offered.wrapping_neg();
            taken |= lowest;
            offered &= !lowest;
        }
    }

    fn consider(&mut self, chosen: u64) {
        let Some(near) = self.wiring.nearness(chosen, self.wish) else { return };
        let nearness = |rank: &Rank| (rank.place, rank.spread, rank.unlinked);
        if self.best.is_some_and(|best| nearness(&best) < nearness(&near)) {
            return;
        }
        let spoiled = self.bonds - self.wiring.bonds(self.free & !chosen);
        let rank = Rank { spoiled, ..near };
        self.best = Some(self.best.map_or(rank, |best| best.min(rank)));
    }

    /// Fill a region that is too rich for trying all: once from each of its islands of NVLink and, where it
    /// need not be joined, once from all of it. Finds a set wherever there is one; it may not be the best,
    /// but it is never wider than the region. Takes O(islands × count × devices).
    fn filled(&mut self, region: u64, count: u32) {
        let wiring = self.wiring;
        for island in wiring.islands(region).filter(|island| island.count_ones() >= count) {
            self.consider(wiring.grown(island, count, |chosen| wiring.neighbours(chosen)));
        }
        if self.wish.nvlink != Nvlink::Required {
            self.consider(wiring.grown(region, count, |_| u64::MAX));
        }
    }
}

impl Wiring {
    /// Devices of a region one after the other, out of those that may follow: first those that widen the set
    /// least, then those whose socket, NUMA node and switch fit best, then those that leave the most bonds.
    fn grown(&self, region: u64, count: u32, may_follow: impl Fn(u64) -> u64) -> u64 {
        let mut chosen: u64 = 0;
        for missing in (1..=count).rev() {
            let left = region & !chosen;
            let reachable = if chosen == 0 { left } else { left & may_follow(chosen) };
            let worth = |device: &usize| {
                let bit = 1 << device;
                let fits = self.groups_of(bit).map(|group| fit(group & left, missing));
                (self.spread(chosen | bit), fits, self.bonds(left) - self.bonds(left & !bit), *device)
            };
            let Some(next) = ones(reachable).min_by_key(worth) else { break };
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

/// How well a group suits so many missing devices: the smallest that has enough, else the largest.
fn fit(group: u64, missing: u32) -> (bool, u32) {
    let size = group.count_ones();
    let too_small = size < missing;
    (too_small, if too_small { u64::BITS - size } else { size })
}

fn pairs(devices: u64) -> u32 {
    let count = devices.count_ones();
    count * count.saturating_sub(1) / 2
}

/// In how many ways so many devices can be taken from classes, counted up to just above the limit.
fn ways(classes: &[u64], count: u32) -> u64 {
    let sizes = classes.iter().map(|class| class.count_ones());
    let bound = sizes.clone().try_fold(1, |bound: u64, size| bound.checked_mul(u64::from(size) + 1));
    if let Some(bound @ ..=WAYS_MAX) = bound {
        return bound;
    }
    let mut ways = vec![0; count as usize + 1];
    ways[0] = 1;
    for size in sizes {
        for total in (1..ways.len()).rev() {
            let fewer = &ways[total.saturating_sub(size as usize)..total];
            ways[total] = (ways[total] + fewer.iter().sum::<u64>()).min(WAYS_MAX + 1);
        }
    }
    ways[count as usize]
}

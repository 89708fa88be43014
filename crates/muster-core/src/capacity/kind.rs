//! What nodes of one kind have in common, and where a task sits on such a node.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::free::{Free, instance};
use super::seat::Seat;
use super::{Part, bits};
use crate::ids::NodeId;
use crate::job::{PlacedTask, Resources};
use crate::mig::MigTable;
use crate::mix::Kinds;
use crate::model;
use crate::node::{GpuFacts, Node};
use crate::partition::{self, MigInstance};
use crate::queue::Shape;
use crate::share::{PARTITIONED_GPUS_MAX, SHARED_GPUS_MAX, Share, ShareMode, WHOLE};
use crate::waste::{Coming, Left, Prospect};
use crate::wiring::{Wiring, Wish};

/// What nodes of one kind have in common.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    /// The devices, by index.
    pub gpus: Vec<GpuKind>,
    /// CPU cores.
    pub cpus: u32,
    /// Main memory.
    pub memory_mib: u64,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Taints keep jobs away; nothing tolerates them yet.
    pub taints: Vec<String>,
    /// How its devices are wired.
    pub wiring: Arc<Wiring>,
}

/// What matters about a device.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct GpuKind {
    /// As the driver spells it.
    pub model: String,
    /// Memory of the device.
    pub memory_mib: u64,
    /// How it is shared, if it is not partitioned.
    pub mode: ShareMode,
    /// It is partitioned, and not given out as a whole.
    pub partitioned: bool,
    /// Its instances, if it is partitioned in a way that is known.
    pub instances: Vec<InstanceKind>,
    /// The pools it belongs to, and whether it is given out there as it is now.
    pub pools: BTreeMap<String, bool>,
}

/// Whether a device is looked at as it is now, or as it could be once it is cool and healthy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    Now,
    Ever,
}

/// An instance of a partitioned device.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct InstanceKind {
    /// Where on the device it begins.
    pub start: u8,
    /// What it is called, for example `1g.18gb`.
    pub profile: String,
    /// Thousandths of the device that it computes with.
    pub compute_milli: u32,
    /// Thousandths of the device that it counts as.
    pub held_milli: u32,
    /// Its memory.
    pub memory_mib: u64,
}

impl InstanceKind {
    /// Those of a device; none where it is cut in a way that we do not know to be legal, or not at all.
    fn all((index, gpu): (u8, &GpuFacts), instances: &[MigInstance]) -> Vec<InstanceKind> {
        if instances.is_empty() || partition::check(gpu, index, instances).is_err() {
            return Vec::new();
        }
        let Some(table) = partition::table_of(gpu) else { return Vec::new() };
        let kind = |one: &MigInstance| {
            let profile = table.profile(&one.profile)?;
            let memory_mib = table.profiles.get(usize::from(profile))?.memory_mib;
            Some(InstanceKind {
                start: one.start,
                profile: one.profile.clone(),
                compute_milli: table.compute_milli(profile),
                held_milli: table.held_milli(profile),
                memory_mib,
            })
        };
        instances.iter().filter_map(kind).collect()
    }
}

impl GpuKind {
    fn of((index, gpu): (u8, &GpuFacts), node: &Node) -> GpuKind {
        let instances = node.instances(index);
        let limits = model::can_limit_shares(&gpu.model);
        GpuKind {
            model: gpu.model.clone(),
            memory_mib: gpu.memory_mib,
            mode: if limits { ShareMode::Mps } else { ShareMode::TimeSlice },
            partitioned: !instances.is_empty(),
            instances: InstanceKind::all((index, gpu), instances),
            pools: node.pools.get(usize::from(index)).cloned().unwrap_or_default(),
        }
    }

    /// Whether a job that names a pool, or none, may have it.
    fn is_in(&self, pool: Option<&str>, when: When) -> bool {
        let Some(pool) = pool else { return true };
        self.pools.get(pool).is_some_and(|open| *open || when == When::Ever)
    }

    /// Whether it could be cut so that an instance would do for a task that shares.
    fn could_be_cut_for(&self, each: &Resources) -> bool {
        let table = model::of_device(&self.model, self.memory_mib).and_then(|model| model.mig);
        let profile = |table: &MigTable| table.smallest_profile(each.gpu_memory_mib, each.gpu_compute_milli);
        each.is_shared() && self.is_of(each) && table.and_then(profile).is_some()
    }

    /// What the smallest instance holds that a device like this could be cut into for a task.
    fn least_instance(&self, each: &Resources) -> Option<(u64, u64)> {
        let table = model::of_device(&self.model, self.memory_mib).and_then(|model| model.mig)?;
        let profile = table.smallest_profile(each.gpu_memory_mib, each.gpu_compute_milli)?;
        let memory_mib = table.profiles.get(usize::from(profile))?.memory_mib;
        self.is_of(each).then(|| (u64::from(table.held_milli(profile)), memory_mib))
    }

    fn is_of(&self, each: &Resources) -> bool {
        each.gpu_models.is_empty() || each.gpu_models.iter().any(|wish| model::matches(wish, &self.model))
    }

    /// Whether the whole device would do.
    fn would_do(&self, each: &Resources) -> bool {
        !self.partitioned && self.memory_mib >= each.gpu_memory_mib && self.is_of(each)
    }

    /// What a task that shares takes of it; nothing if it would not do.
    fn part_for(&self, each: &Resources) -> Part {
        let memory = each.memory_milli(self.memory_mib);
        let fits = !self.partitioned && each.accepts(&self.mode) && memory <= WHOLE;
        if !fits || !self.is_of(each) {
            return Part::NONE;
        }
        Part { compute: each.gpu_compute_milli as u16, memory: memory as u16 }
    }

    /// Instances that would do for a task that shares, the smallest first.
    fn instances_for(&self, each: &Resources) -> Vec<&InstanceKind> {
        if !self.is_of(each) {
            return Vec::new();
        }
        let enough = |one: &&InstanceKind| {
            one.memory_mib >= each.gpu_memory_mib && one.compute_milli >= each.gpu_compute_milli
        };
        let mut found: Vec<&InstanceKind> = self.instances.iter().filter(enough).collect();
        found.sort_by_key(|one| (one.compute_milli, one.memory_mib, one.start));
        found
    }
}

/// Which devices of a kind would do for a task, and what it would take of each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Eligible {
    /// Devices that would do as a whole, as bits; none for a task that shares.
    pub gpus: u64,
    /// What a task that shares takes of each device; nothing of those that would not do.
    parts: [Part; SHARED_GPUS_MAX],
    /// Instances that would do for a task that shares, the smallest first.
    instances: Vec<(u8, u8)>,
    /// The same as bits.
    instance_bits: u128,
    /// How close together the devices of a task are wished.
    wish: Wish,
    wiring: Arc<Wiring>,
}

impl Eligible {
    /// Devices that would do in any way, as bits.
    pub fn devices(&self) -> u64 {
        let parts = (0..).zip(&self.parts).filter(|(_, part)| **part != Part::NONE);
        let shared = parts.fold(self.gpus, |gpus, (device, _): (u8, _)| gpus | 1 << device);
        self.instances.iter().fold(shared, |gpus, (device, _)| gpus | 1 << device)
    }

    /// Whether some instance would do.
    pub fn has_instances(&self) -> bool {
        !self.instances.is_empty()
    }

    /// The size of the largest eligible MIG instance, in thousandths of its device; 0 if none is eligible.
    pub fn largest_instance_milli(&self, kind: &Kind) -> u64 {
        let all = self.instances.iter().filter_map(|(device, start)| kind.instance(*device, *start));
        all.map(|(_, one)| u64::from(one.held_milli)).max().unwrap_or(0)
    }

    /// The same with only those instances of the kind that are wanted.
    pub fn with_instances(&self, kind: &Kind, wanted: impl Fn(&GpuKind, &InstanceKind) -> bool) -> Eligible {
        let is_wanted = |(device, start): &(u8, u8)| {
            kind.instance(*device, *start).is_some_and(|(gpu, one)| wanted(gpu, one))
        };
        let instances: Vec<(u8, u8)> = self.instances.iter().copied().filter(is_wanted).collect();
        let bits = instances.iter().map(|(device, start)| instance(*device, *start));
        Eligible { instance_bits: bits.fold(0, |all, one| all | one), instances, ..self.clone() }
    }

    /// Whether a task may sit like this.
    pub fn allows(&self, seat: Seat, each: &Resources) -> bool {
        match seat {
            Seat::Whole(gpus) => gpus & !self.gpus == 0 && gpus.count_ones() == each.gpus,
            Seat::Part { device, part } => part != Part::NONE && self.part(device) == part,
            Seat::Instance { device, start } => self.instance_bits & instance(device, start) != 0,
        }
    }

    fn part(&self, device: u8) -> Part {
        self.parts.get(usize::from(device)).copied().unwrap_or_default()
    }

    /// Every seat for one task in what is free. Of whole devices only the best set is looked at.
    pub fn seats<'a>(&'a self, each: &'a Resources, free: Free) -> impl Iterator<Item = Seat> + 'a {
        // What is demanded is demanded of the gang, and seen to in `fit`.
        let whole = || self.wiring.choose(free.gpus & self.gpus, each.gpus, self.wish.as_wish());
        let whole = if each.is_shared() { None } else { whole() };
        let shares = (0..)
            .zip(self.parts)
            .filter(move |(device, part)| *part != Part::NONE && free.part(*device).holds(*part));
        let shares = shares.map(|(device, part)| Seat::Part { device, part });
        let instances = self.instances.iter().map(|(device, start)| (*device, *start));
        let instances =
            instances.filter(move |(device, start)| free.instances & instance(*device, *start) != 0);
        let instances = instances.map(|(device, start)| Seat::Instance { device, start });
        whole.map(Seat::Whole).into_iter().chain(shares).chain(instances)
    }

    /// Every seat for one task in what is free, in ascending order; of whole devices every set. Nothing if there are
    /// more than so many.
    pub(crate) fn every_seat(&self, each: &Resources, free: Free, max: usize) -> Option<Vec<Seat>> {
        let mut seats: Vec<Seat> = match each.is_shared() {
            true => self.seats(each, free).collect(),
            false => sets(free.gpus & self.gpus, each.gpus, max)?.into_iter().map(Seat::Whole).collect(),
        };
        seats.sort_unstable();
        Some(seats)
    }

    /// A seat for one task in what is free: on a device that is shared already, the fullest that has room; else in the
    /// smallest instance; else on a device nobody uses. The lowest index among equals.
    pub fn seat(&self, each: &Resources, free: Free) -> Option<Seat> {
        self.seats(each, free).min_by_key(|seat| self.order(free, *seat))
    }

    /// The place of a seat in that order.
    pub(crate) fn order(&self, free: Free, seat: Seat) -> (u8, u16, u64) {
        match seat {
            Seat::Whole(gpus) => (0, 0, gpus),
            Seat::Part { device, .. } => {
                let left = free.part(device);
                (if left == Part::WHOLE { 2 } else { 0 }, left.compute, u64::from(device))
            }
            Seat::Instance { device, start } => {
                let place = self.instances.iter().position(|one| *one == (device, start));
                (1, 0, place.unwrap_or(usize::MAX) as u64)
            }
        }
    }

    /// How many tasks fit into what is free. Unbounded for a task that needs nothing.
    pub fn tasks_that_fit(&self, each: &Resources, free: Free) -> u32 {
        let times = |have: u64, each: u64| have.checked_div(each).unwrap_or(u64::from(u32::MAX));
        let gpus = match each.is_shared() {
            false => {
                times(u64::from(self.wiring.most(free.gpus & self.gpus, self.wish)), u64::from(each.gpus))
            }
            true => u64::from(self.shares_in(free)),
        };
        let fit =
            gpus.min(times(free.cpus, u64::from(each.cpus))).min(times(free.memory_mib, each.memory_mib));
        u32::try_from(fit).unwrap_or(u32::MAX)
    }

    fn shares_in(&self, free: Free) -> u32 {
        let parts = (0..).zip(self.parts).filter(|(_, part)| *part != Part::NONE);
        let parts: u32 = parts.map(|(device, part)| free.part(device).times(part)).sum();
        parts + (free.instances & self.instance_bits).count_ones()
    }
}

impl Kind {
    /// The kind of a node.
    pub fn of(node: &Node) -> Kind {
        let facts = &node.facts;
        Kind {
            gpus: (0..).zip(&facts.gpus).map(|gpu| GpuKind::of(gpu, node)).collect(),
            cpus: facts.cpus,
            memory_mib: facts.memory_mib,
            labels: node.labels().clone(),
            taints: node.taints().to_vec(),
            wiring: Arc::new(Wiring::of(facts)),
        }
    }

    /// An empty node of this kind.
    pub fn empty(&self) -> Free {
        let devices = (0..).zip(&self.gpus);
        let whole = devices.clone().filter(|(_, gpu)| !gpu.partitioned);
        let instances = devices
            .flat_map(|(device, gpu)| gpu.instances.iter().map(move |one| instance(device, one.start)));
        Free {
            gpus: whole.fold(0, |mask, (device, _): (u8, _)| mask | 1 << device),
            instances: instances.fold(0, |all, one| all | one),
            cpus: u64::from(self.cpus),
            memory_mib: self.memory_mib,
            ..Free::default()
        }
    }

    /// Which devices would do now for a task of a shape.
    pub fn eligible(&self, shape: &Shape, each: &Resources) -> Eligible {
        self.eligible_when(shape, each, When::Now)
    }

    fn eligible_when(&self, shape: &Shape, each: &Resources, when: When) -> Eligible {
        let pool = shape.pool.as_deref();
        let in_pool = |(_, gpu): &(u8, &GpuKind)| gpu.is_in(pool, when);
        let mut eligible = Eligible {
            gpus: 0,
            parts: [Part::NONE; SHARED_GPUS_MAX],
            instances: Vec::new(),
            instance_bits: 0,
            wish: shape.wish,
            wiring: self.wiring.clone(),
        };
        if !each.is_shared() {
            let whole = (0..).zip(&self.gpus).filter(in_pool).filter(|(_, gpu)| gpu.would_do(each));
            eligible.gpus = whole.fold(0, |mask, (device, _): (u8, _)| mask | 1 << device);
            return eligible;
        }
        let mut instances = Vec::new();
        for (device, gpu) in (0..).zip(&self.gpus).take(SHARED_GPUS_MAX).filter(in_pool) {
            eligible.parts[usize::from(device)] = gpu.part_for(each);
            instances.extend(gpu.instances_for(each).into_iter().map(|one| (device, one)));
        }
        instances.sort_by_key(|(device, one)| (one.compute_milli, one.memory_mib, *device, one.start));
        eligible.instances =
            instances.into_iter().map(|(device, one): (u8, _)| (device, one.start)).collect();
        let bits = eligible.instances.iter().map(|(device, start)| instance(*device, *start));
        eligible.instance_bits = bits.fold(0, |all, one| all | one);
        eligible
    }

    /// A task that has a seat on a node of this kind, by its rank and its group.
    pub fn placed(
        &self,
        each: &Resources,
        (rank, group): (u32, u32),
        node: &NodeId,
        seat: Seat,
    ) -> PlacedTask {
        let share = self.share(each, seat).map(Box::new);
        PlacedTask { rank, group, node: node.clone(), gpus: seat.devices(), share }
    }

    /// An instance of one of its devices, and the device.
    fn instance(&self, device: u8, start: u8) -> Option<(&GpuKind, &InstanceKind)> {
        let gpu = self.gpus.get(usize::from(device))?;
        Some((gpu, gpu.instances.iter().find(|one| one.start == start)?))
    }

    /// The least that a task which must have an instance of its own would hold of a device of this kind, as thousandths
    /// of the device and MiB; nothing where no device of this kind can be cut for it.
    pub fn least_instance(&self, each: &Resources) -> Option<(u64, u64)> {
        self.gpus.iter().filter_map(|gpu| gpu.least_instance(each)).min()
    }

    /// What a task has of its device, where that is not the whole.
    fn share(&self, each: &Resources, seat: Seat) -> Option<Share> {
        let gpu = |device: u8| self.gpus.get(usize::from(device));
        match seat {
            Seat::Whole(_) => None,
            Seat::Part { device, .. } => {
                let gpu = gpu(device)?;
                Some(each.share_of(gpu.memory_mib, gpu.mode.clone()))
            }
            Seat::Instance { device, start } => {
                let (gpu, one) = self.instance(device, start)?;
                let memory_milli = one.memory_mib * u64::from(WHOLE) / gpu.memory_mib.max(1);
                Some(Share {
                    compute_milli: one.held_milli,
                    memory_milli: u32::try_from(memory_milli).unwrap_or(WHOLE).min(WHOLE),
                    memory_mib: one.memory_mib,
                    mode: ShareMode::Mig { profile: one.profile.clone(), start },
                })
            }
        }
    }

    /// Whether the labels are there and no taint is in the way.
    pub fn admits(&self, shape: &Shape) -> bool {
        let labelled = |(key, value)| self.labels.get(key) == Some(value);
        self.taints.is_empty() && shape.node_labels.iter().all(labelled)
    }

    /// Whether a device may be had now by those who name a pool, or none.
    pub fn gives_out(&self, gpu: u8, pool: Option<&str>) -> bool {
        self.gpus.get(usize::from(gpu)).is_some_and(|gpu| gpu.is_in(pool, When::Now))
    }

    /// Whether an empty node of this kind could hold the whole gang.
    pub fn could_hold(&self, shape: &Shape) -> bool {
        let eligible = |(_, each): &(u32, Resources)| self.eligible_when(shape, each, When::Ever);
        let eligible: Vec<Eligible> = shape.groups.iter().map(eligible).collect();
        self.admits(shape) && fit(shape, &eligible, self.empty()).is_some()
    }

    /// How many tasks of a group an empty node of this kind could hold.
    pub fn could_hold_tasks(&self, shape: &Shape, each: &Resources) -> u32 {
        if self.admits(shape) {
            self.eligible_when(shape, each, When::Ever).tasks_that_fit(each, self.empty())
        } else {
            0
        }
    }

    /// Seats for every task of the gang in what is free.
    pub fn fit(&self, shape: &Shape, free: Free) -> Option<Vec<Seat>> {
        let eligible: Vec<Eligible> =
            shape.groups.iter().map(|(_, each)| self.eligible(shape, each)).collect();
        fit(shape, &eligible, free)
    }

    /// What is expected to become of what is free on its nodes, from the kinds of tasks that came.
    pub(super) fn prospect(&self, lesson: &Kinds) -> Arc<Prospect> {
        let coming: Vec<Coming> = lesson.iter().map(|(each, count)| self.coming(each, count)).collect();
        let node = Left { cpus: self.cpus.into(), memory_mib: self.memory_mib, devices: &[] };
        Arc::new(Prospect::of(&coming, node))
    }

    /// A kind of task, and whether it could make use of a device.
    fn coming(&self, each: &Resources, count: u64) -> Coming {
        let gpu = self.gpus.iter().find(|gpu| gpu.is_of(each) && gpu.memory_mib >= each.gpu_memory_mib);
        let memory = match gpu {
            Some(gpu) if each.is_shared() => each.memory_milli(gpu.memory_mib),
            _ => each.gpu_compute_milli,
        };
        Coming {
            suits: gpu.is_some(),
            cpus: u64::from(each.cpus),
            memory_mib: each.memory_mib,
            gpus: each.gpus,
            gpu_milli: each.gpu_compute_milli.max(memory).min(WHOLE),
            weight: count as f64,
        }
    }

    /// Thousandths of a device that are going to be left over on a node on which so much is free.
    pub fn waste(&self, prospect: &Prospect, free: Free) -> f64 {
        let mut devices = [0; 64];
        let count = self.gpus.len().min(devices.len());
        for (index, device) in (0u8..).zip(&mut devices[..count]) {
            let part = free.part(index);
            *device = u32::from(part.compute.min(part.memory));
        }
        let left = Left { cpus: free.cpus, memory_mib: free.memory_mib, devices: &devices[..count] };
        prospect.waste(left)
    }

    /// How much is free on a node: thousandths of GPUs, then of its cores.
    pub fn emptiness(&self, free: Free) -> (u64, u64) {
        let gpus = (0..self.gpus.len()).map(|gpu| u64::from(free.part(gpu as u8).compute)).sum();
        (gpus, (free.cpus * 1_000).checked_div(u64::from(self.cpus)).unwrap_or(0))
    }

    /// What of an instance a task does not use, in thousandths of the device.
    pub fn unused_of(&self, each: &Resources, seat: Seat) -> u32 {
        let Seat::Instance { device, start } = seat else { return 0 };
        let instances = self.gpus.get(usize::from(device)).into_iter().flat_map(|gpu| &gpu.instances);
        let one = instances.into_iter().find(|one| one.start == start);
        one.map_or(0, |one| one.compute_milli.saturating_sub(each.gpu_compute_milli))
    }

    /// The same with all devices whole.
    pub(super) fn uncut(&self) -> Kind {
        let mut kind = self.clone();
        for gpu in &mut kind.gpus {
            (gpu.partitioned, gpu.instances) = (false, Vec::new());
        }
        kind
    }

    /// Whether its devices could be cut so that an instance would do for a task that shares.
    pub fn could_be_cut_for(&self, shape: &Shape, each: &Resources) -> bool {
        self.admits(shape)
            && self
                .gpus
                .iter()
                .take(PARTITIONED_GPUS_MAX as usize)
                .any(|gpu| gpu.is_in(shape.pool.as_deref(), When::Ever) && gpu.could_be_cut_for(each))
    }

    /// How many of some devices, given as bits, are of a model.
    pub fn devices_of(&self, devices: u64, model: &str) -> u64 {
        let named = bits(devices).into_iter().filter_map(|index| self.gpus.get(usize::from(index)));
        named.filter(|gpu| model::matches(model, &gpu.model)).count() as u64
    }
}

/// Seats for every task of a gang in what is free on one node, given the devices that would do for each group.
pub(crate) fn fit(shape: &Shape, eligible: &[Eligible], free: Free) -> Option<Vec<Seat>> {
    if free.cpus < shape.cpus() || free.memory_mib < shape.memory_mib() {
        return None;
    }
    let mut left = free;
    if shape.wish.is_demand() {
        left.gpus = close_together(shape, eligible, free)?;
    }
    let mut seats = Vec::new();
    for ((count, each), eligible) in shape.groups.iter().zip(eligible) {
        for _ in 0..*count {
            let seat = eligible.seat(each, left)?;
            left = left.without(seat.space());
            seats.push(seat);
        }
    }
    Some(seats)
}

/// All sets of so many of some devices; nothing if there are more than so many sets.
fn sets(devices: u64, count: u32, max: usize) -> Option<Vec<u64>> {
    let mut sets = vec![(0, 0)];
    for taken in 0..count {
        let mut larger = Vec::new();
        for (set, above) in sets {
            let next = bits(devices & u64::MAX.checked_shl(above).unwrap_or(0)).into_iter();
            // Those that are still to come must be above it.
            let next = next.filter(|device| (devices >> device).count_ones() >= count - taken);
            larger.extend(next.map(|device| (set | 1 << device, u32::from(device) + 1)));
        }
        if larger.len() > max {
            return None;
        }
        sets = larger;
    }
    Some(sets.into_iter().map(|(set, _)| set).collect())
}

/// Devices for a whole gang that must all be close together, out of those that would do for each of its tasks.
fn close_together(shape: &Shape, eligible: &[Eligible], free: Free) -> Option<u64> {
    let mut asking = shape.groups.iter().zip(eligible).filter(|((_, each), _)| each.whole_gpus() > 0);
    let Some((_, first)) = asking.clone().next() else { return Some(free.gpus) };
    let would_do = asking.clone().fold(free.gpus, |gpus, (_, eligible)| gpus & eligible.gpus);
    let count = asking.by_ref().map(|((count, each), _)| count * each.whole_gpus()).sum();
    first.wiring.choose(would_do, count, shape.wish)
}

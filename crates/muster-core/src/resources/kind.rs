//! Node kinds: nodes with equal devices, cores, memory, labels and taints. A kind tells which devices are eligible for
//! a task and which assignments fit, so the planner compares kinds instead of single nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::estimate::fragmentation::{FragmentationModel, NodeFree, TaskClass};
use crate::estimate::workload_mix::TaskCounts;
use crate::gpu::device::{GpuFacts, MigInstance};
use crate::gpu::gpu_share::GpuFraction;
use crate::gpu::gpu_share::{PARTITIONED_GPUS_MAX, SHARED_GPUS_MAX, Share, ShareMode, WHOLE};
use crate::gpu::mig::MigTable;
use crate::gpu::model;
use crate::gpu::partition;
use crate::gpu::topology::{LocalityRequirement, NodeTopology};
use crate::ids::NodeId;
use crate::objects::job::{PlacedTask, Resources};
use crate::objects::node::Node;
use crate::objects::shape::Shape;
use crate::resources::assignment::DeviceAssignment;
use crate::resources::device_mask::bits;
use crate::resources::vector::{ResourceVec, instance};

/// The properties that all nodes of one kind share.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    /// The devices, by index.
    pub gpus: Vec<GpuKind>,
    pub cpus: u32,
    pub memory_mib: u64,
    pub labels: BTreeMap<String, String>,
    /// Taints keep all jobs away: no job tolerates a taint yet.
    pub taints: Vec<String>,
    /// Jobs with an image can run here.
    pub runs_images: bool,
    /// Jobs with secrets can run here.
    pub delivers_secrets: bool,
    pub topology: Arc<NodeTopology>,
}

/// The properties of a device that placement depends on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct GpuKind {
    /// As the driver spells it.
    pub model: String,
    pub memory_mib: u64,
    /// The sharing mode while the device is not partitioned.
    pub mode: ShareMode,
    /// A partitioned device is not assigned as a whole.
    pub partitioned: bool,
    /// MIG instances; empty if the layout is not known to be legal.
    pub instances: Vec<InstanceKind>,
    /// Pools of the device, each with whether the pool admits the device in its current condition (temperature,
    /// health).
    pub pools: BTreeMap<String, bool>,
}

/// Whether a pool must admit the device in its current condition, or would do so once the device is cool and healthy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PoolCheck {
    Now,
    Ever,
}

/// A MIG instance of a partitioned device.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct InstanceKind {
    /// The memory slice at which the instance begins.
    pub start: u8,
    /// For example `1g.18gb`.
    pub profile: String,
    /// Compute of the instance, in thousandths of the device.
    pub compute_milli: u32,
    /// What the instance counts as against quota, in thousandths of the device.
    pub held_milli: u32,
    pub memory_mib: u64,
}

impl InstanceKind {
    /// The instances of a device; empty if the device is not partitioned or its layout is not known to be legal.
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

    /// Whether a job that requests `pool` may use the device; true without a pool.
    fn is_in(&self, pool: Option<&str>, when: PoolCheck) -> bool {
        let Some(pool) = pool else { return true };
        self.pools.get(pool).is_some_and(|open| *open || when == PoolCheck::Ever)
    }

    /// Whether a repartition of the device could create an eligible instance for a task that shares.
    fn could_repartition_for(&self, each: &Resources) -> bool {
        let table = model::of_device(&self.model, self.memory_mib).and_then(|model| model.mig);
        let profile = |table: &MigTable| table.smallest_profile(each.gpu_memory_mib, each.gpu_compute_milli);
        each.is_shared() && self.has_requested_model(each) && table.and_then(profile).is_some()
    }

    /// The smallest eligible instance that the device could be partitioned into: thousandths of the device, and MiB.
    fn least_instance(&self, each: &Resources) -> Option<(u64, u64)> {
        let table = model::of_device(&self.model, self.memory_mib).and_then(|model| model.mig)?;
        let profile = table.smallest_profile(each.gpu_memory_mib, each.gpu_compute_milli)?;
        let memory_mib = table.profiles.get(usize::from(profile))?.memory_mib;
        self.has_requested_model(each).then(|| (u64::from(table.held_milli(profile)), memory_mib))
    }

    fn has_requested_model(&self, each: &Resources) -> bool {
        each.gpu_models.is_empty() || each.gpu_models.iter().any(|model| model::matches(model, &self.model))
    }

    /// Whether the whole device is eligible for a task.
    fn suits(&self, each: &Resources) -> bool {
        !self.partitioned && self.memory_mib >= each.gpu_memory_mib && self.has_requested_model(each)
    }

    /// The fraction that a task that shares takes of the device; `GpuFraction::NONE` if the device is not eligible.
    fn fraction_for(&self, each: &Resources) -> GpuFraction {
        let memory = each.memory_milli(self.memory_mib);
        let fits = !self.partitioned && each.accepts(&self.mode) && memory <= WHOLE;
        if !fits || !self.has_requested_model(each) {
            return GpuFraction::NONE;
        }
        GpuFraction { compute: each.gpu_compute_milli as u16, memory: memory as u16 }
    }

    /// Eligible instances for a task that shares, the smallest first.
    fn instances_for(&self, each: &Resources) -> Vec<&InstanceKind> {
        if !self.has_requested_model(each) {
            return Vec::new();
        }
        let enough =
            |one: &&InstanceKind| one.memory_mib >= each.gpu_memory_mib && one.compute_milli >= each.gpu_compute_milli;
        let mut found: Vec<&InstanceKind> = self.instances.iter().filter(enough).collect();
        found.sort_by_key(|one| (one.compute_milli, one.memory_mib, one.start));
        found
    }
}

/// The eligible devices of a kind for one task, and the fraction or instance that the task takes of each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Eligible {
    /// Eligible whole devices, as a bit mask; 0 for a task that shares.
    pub gpus: u64,
    /// The fraction that a task that shares takes of each device; `GpuFraction::NONE` if the device is not eligible.
    fractions: [GpuFraction; SHARED_GPUS_MAX],
    /// Eligible instances for a task that shares, as (device, start), the smallest first.
    instances: Vec<(u8, u8)>,
    /// The same instances as a bit mask.
    instance_bits: u128,
    locality: LocalityRequirement,
    topology: Arc<NodeTopology>,
}

impl Eligible {
    /// Devices that are eligible as a whole, by fraction or by instance, as a bit mask.
    pub fn devices(&self) -> u64 {
        let parts = (0..).zip(&self.fractions).filter(|(_, part)| **part != GpuFraction::NONE);
        let shared = parts.fold(self.gpus, |gpus, (device, _): (u8, _)| gpus | 1 << device);
        self.instances.iter().fold(shared, |gpus, (device, _)| gpus | 1 << device)
    }

    pub fn has_instances(&self) -> bool {
        !self.instances.is_empty()
    }

    /// The size of the largest eligible MIG instance, in thousandths of its device; 0 if none is eligible.
    pub fn largest_instance_milli(&self, kind: &Kind) -> u64 {
        let all = self.instances.iter().filter_map(|(device, start)| kind.instance(*device, *start));
        all.map(|(_, one)| u64::from(one.held_milli)).max().unwrap_or(0)
    }

    /// A copy with only those instances for which `wanted` holds.
    pub fn with_instances(&self, kind: &Kind, wanted: impl Fn(&GpuKind, &InstanceKind) -> bool) -> Eligible {
        let is_wanted =
            |(device, start): &(u8, u8)| kind.instance(*device, *start).is_some_and(|(gpu, one)| wanted(gpu, one));
        let instances: Vec<(u8, u8)> = self.instances.iter().copied().filter(is_wanted).collect();
        let bits = instances.iter().map(|(device, start)| instance(*device, *start));
        Eligible { instance_bits: bits.fold(0, |all, one| all | one), instances, ..self.clone() }
    }

    /// Whether the assignment uses only eligible devices and has the size that the task requests.
    pub fn allows(&self, assignment: DeviceAssignment, each: &Resources) -> bool {
        match assignment {
            DeviceAssignment::Whole(gpus) => gpus & !self.gpus == 0 && gpus.count_ones() == each.gpus,
            DeviceAssignment::Fraction { device, part } => {
                part != GpuFraction::NONE && self.fraction_of(device) == part
            }
            DeviceAssignment::Instance { device, start } => self.instance_bits & instance(device, start) != 0,
        }
    }

    fn fraction_of(&self, device: u8) -> GpuFraction {
        self.fractions.get(usize::from(device)).copied().unwrap_or_default()
    }

    /// The assignments of free devices to one task: every fraction and every MIG instance that fits, but only one set
    /// of whole devices, the one with the best locality.
    pub fn assignments<'a>(
        &'a self,
        each: &'a Resources,
        free: ResourceVec,
    ) -> impl Iterator<Item = DeviceAssignment> + 'a {
        // A required locality applies to the whole gang: `fit` enforces it.
        let whole = || self.topology.choose(free.gpus & self.gpus, each.gpus, self.locality.as_preference());
        let whole = if each.is_shared() { None } else { whole() };
        let shares = (0..)
            .zip(self.fractions)
            .filter(move |(device, part)| *part != GpuFraction::NONE && free.fraction_of(*device).holds(*part));
        let shares = shares.map(|(device, part)| DeviceAssignment::Fraction { device, part });
        let instances = self.instances.iter().map(|(device, start)| (*device, *start));
        let instances = instances.filter(move |(device, start)| free.instances & instance(*device, *start) != 0);
        let instances = instances.map(|(device, start)| DeviceAssignment::Instance { device, start });
        whole.map(DeviceAssignment::Whole).into_iter().chain(shares).chain(instances)
    }

    /// All assignments for one task in the free resources, in ascending order; of whole devices every set. `None` if
    /// there are more than `max` sets.
    pub(crate) fn every_assignment(
        &self,
        each: &Resources,
        free: ResourceVec,
        max: usize,
    ) -> Option<Vec<DeviceAssignment>> {
        let mut assignments: Vec<DeviceAssignment> = match each.is_shared() {
            true => self.assignments(each, free).collect(),
            false => {
                device_sets(free.gpus & self.gpus, each.gpus, max)?.into_iter().map(DeviceAssignment::Whole).collect()
            }
        };
        assignments.sort_unstable();
        Some(assignments)
    }

    /// The best assignment for one task in the free resources. A task that shares gets the fullest device in shared use
    /// that has room, else the smallest instance, else an idle device; the lowest index among equals.
    pub fn best_assignment(&self, each: &Resources, free: ResourceVec) -> Option<DeviceAssignment> {
        self.assignments(each, free).min_by_key(|assignment| self.order(free, *assignment))
    }

    /// The sort key of an assignment in the order of [`Eligible::best_assignment`].
    pub(crate) fn order(&self, free: ResourceVec, assignment: DeviceAssignment) -> (u8, u16, u64) {
        match assignment {
            DeviceAssignment::Whole(gpus) => (0, 0, gpus),
            DeviceAssignment::Fraction { device, .. } => {
                let left = free.fraction_of(device);
                (if left == GpuFraction::WHOLE { 2 } else { 0 }, left.compute, u64::from(device))
            }
            DeviceAssignment::Instance { device, start } => {
                let rank = self.instances.iter().position(|one| *one == (device, start));
                (1, 0, rank.unwrap_or(usize::MAX) as u64)
            }
        }
    }

    /// The number of such tasks that fit into the free resources; `u32::MAX` for a task that requests nothing.
    pub fn tasks_that_fit(&self, each: &Resources, free: ResourceVec) -> u32 {
        let times = |have: u64, each: u64| have.checked_div(each).unwrap_or(u64::from(u32::MAX));
        let gpus = match each.is_shared() {
            false => times(u64::from(self.topology.most(free.gpus & self.gpus, self.locality)), u64::from(each.gpus)),
            true => u64::from(self.shares_in(free)),
        };
        let fit = gpus.min(times(free.cpus, u64::from(each.cpus))).min(times(free.memory_mib, each.memory_mib));
        u32::try_from(fit).unwrap_or(u32::MAX)
    }

    fn shares_in(&self, free: ResourceVec) -> u32 {
        let parts = (0..).zip(self.fractions).filter(|(_, part)| *part != GpuFraction::NONE);
        let parts: u32 = parts.map(|(device, part)| free.fraction_of(device).times(part)).sum();
        parts + (free.instances & self.instance_bits).count_ones()
    }
}

impl Kind {
    pub fn of(node: &Node) -> Kind {
        let facts = &node.facts;
        Kind {
            gpus: (0..).zip(&facts.gpus).map(|gpu| GpuKind::of(gpu, node)).collect(),
            cpus: facts.cpus,
            memory_mib: facts.memory_mib,
            labels: node.labels().clone(),
            taints: node.taints().to_vec(),
            runs_images: node.runs_images(),
            delivers_secrets: node.delivers_secrets(),
            topology: Arc::new(NodeTopology::of(&facts.gpus, &facts.numa)),
        }
    }

    /// The resources of an empty node of this kind.
    pub fn empty(&self) -> ResourceVec {
        let devices = (0..).zip(&self.gpus);
        let whole = devices.clone().filter(|(_, gpu)| !gpu.partitioned);
        let instances =
            devices.flat_map(|(device, gpu)| gpu.instances.iter().map(move |one| instance(device, one.start)));
        ResourceVec {
            gpus: whole.fold(0, |mask, (device, _): (u8, _)| mask | 1 << device),
            instances: instances.fold(0, |all, one| all | one),
            cpus: u64::from(self.cpus),
            memory_mib: self.memory_mib,
            ..ResourceVec::default()
        }
    }

    /// The devices that are eligible now for a task of a shape.
    pub fn eligible(&self, shape: &Shape, each: &Resources) -> Eligible {
        self.eligible_when(shape, each, PoolCheck::Now)
    }

    fn eligible_when(&self, shape: &Shape, each: &Resources, when: PoolCheck) -> Eligible {
        let pool = shape.pool.as_deref();
        let in_pool = |(_, gpu): &(u8, &GpuKind)| gpu.is_in(pool, when);
        let mut eligible = Eligible {
            gpus: 0,
            fractions: [GpuFraction::NONE; SHARED_GPUS_MAX],
            instances: Vec::new(),
            instance_bits: 0,
            locality: shape.locality,
            topology: self.topology.clone(),
        };
        if !each.is_shared() {
            let whole = (0..).zip(&self.gpus).filter(in_pool).filter(|(_, gpu)| gpu.suits(each));
            eligible.gpus = whole.fold(0, |mask, (device, _): (u8, _)| mask | 1 << device);
            return eligible;
        }
        let mut instances = Vec::new();
        for (device, gpu) in (0..).zip(&self.gpus).take(SHARED_GPUS_MAX).filter(in_pool) {
            eligible.fractions[usize::from(device)] = gpu.fraction_for(each);
            instances.extend(gpu.instances_for(each).into_iter().map(|one| (device, one)));
        }
        instances.sort_by_key(|(device, one)| (one.compute_milli, one.memory_mib, *device, one.start));
        eligible.instances = instances.into_iter().map(|(device, one): (u8, _)| (device, one.start)).collect();
        let bits = eligible.instances.iter().map(|(device, start)| instance(*device, *start));
        eligible.instance_bits = bits.fold(0, |all, one| all | one);
        eligible
    }

    /// A task placed on a node of this kind, with its rank and its task group.
    pub fn placed(
        &self,
        each: &Resources,
        (rank, group): (u32, u32),
        node: &NodeId,
        assignment: DeviceAssignment,
    ) -> PlacedTask {
        let share = self.share(each, assignment).map(Box::new);
        PlacedTask { rank, group, node: node.clone(), gpus: assignment.devices(), share }
    }

    /// A device and its instance that begins at `start`.
    fn instance(&self, device: u8, start: u8) -> Option<(&GpuKind, &InstanceKind)> {
        let gpu = self.gpus.get(usize::from(device))?;
        Some((gpu, gpu.instances.iter().find(|one| one.start == start)?))
    }

    /// The smallest MIG instance that any device of this kind could provide for a task: thousandths of the device, and
    /// MiB. `None` if no device of this kind can be partitioned for it.
    pub fn least_instance(&self, each: &Resources) -> Option<(u64, u64)> {
        self.gpus.iter().filter_map(|gpu| gpu.least_instance(each)).min()
    }

    /// The share of its device that a task gets; `None` for whole devices.
    fn share(&self, each: &Resources, assignment: DeviceAssignment) -> Option<Share> {
        let gpu = |device: u8| self.gpus.get(usize::from(device));
        match assignment {
            DeviceAssignment::Whole(_) => None,
            DeviceAssignment::Fraction { device, .. } => {
                let gpu = gpu(device)?;
                Some(each.share_of(gpu.memory_mib, gpu.mode.clone()))
            }
            DeviceAssignment::Instance { device, start } => {
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

    /// Whether nodes of this kind carry the requested labels and no taint, and have what the image and the secrets
    /// of the job need.
    pub fn admits(&self, shape: &Shape) -> bool {
        let labelled = |(key, value)| self.labels.get(key) == Some(value);
        let runs_it = (self.runs_images || !shape.in_container) && (self.delivers_secrets || !shape.has_secrets);
        self.taints.is_empty() && runs_it && shape.node_labels.iter().all(labelled)
    }

    /// Whether a job that requests `pool` may use the device now; true without a pool.
    pub fn is_allocatable(&self, gpu: u8, pool: Option<&str>) -> bool {
        self.gpus.get(usize::from(gpu)).is_some_and(|gpu| gpu.is_in(pool, PoolCheck::Now))
    }

    /// Whether an empty node of this kind could hold the whole gang.
    pub fn could_hold(&self, shape: &Shape) -> bool {
        let eligible = |(_, each): &(u32, Resources)| self.eligible_when(shape, each, PoolCheck::Ever);
        let eligible: Vec<Eligible> = shape.groups.iter().map(eligible).collect();
        self.admits(shape) && fit(shape, &eligible, self.empty()).is_some()
    }

    /// The number of tasks of a group that an empty node of this kind could hold.
    pub fn could_hold_tasks(&self, shape: &Shape, each: &Resources) -> u32 {
        if self.admits(shape) {
            self.eligible_when(shape, each, PoolCheck::Ever).tasks_that_fit(each, self.empty())
        } else {
            0
        }
    }

    /// Assignments for all tasks of the gang in the free resources of one node; `None` if they do not fit.
    pub fn fit(&self, shape: &Shape, free: ResourceVec) -> Option<Vec<DeviceAssignment>> {
        let eligible: Vec<Eligible> = shape.groups.iter().map(|(_, each)| self.eligible(shape, each)).collect();
        fit(shape, &eligible, free)
    }

    /// The fragmentation model of nodes of this kind under a workload mix.
    pub(super) fn fragmentation_model(&self, mix: &TaskCounts) -> Arc<FragmentationModel> {
        let classes: Vec<TaskClass> = mix.iter().map(|(each, count)| self.task_class(each, count)).collect();
        let node = NodeFree { cpus: self.cpus.into(), memory_mib: self.memory_mib, devices: &[] };
        Arc::new(FragmentationModel::of(&classes, node))
    }

    /// The task class of one entry of the workload mix, as seen by nodes of this kind.
    fn task_class(&self, each: &Resources, count: u64) -> TaskClass {
        let gpu = self.gpus.iter().find(|gpu| gpu.has_requested_model(each) && gpu.memory_mib >= each.gpu_memory_mib);
        let memory = match gpu {
            Some(gpu) if each.is_shared() => each.memory_milli(gpu.memory_mib),
            _ => each.gpu_compute_milli,
        };
        TaskClass {
            suits: gpu.is_some(),
            cpus: u64::from(each.cpus),
            memory_mib: each.memory_mib,
            gpus: each.gpus,
            gpu_milli: each.gpu_compute_milli.max(memory).min(WHOLE),
            weight: count as f64,
        }
    }

    /// Expected fragmentation of a node with these free resources, in thousandths of a device.
    pub fn fragmentation_milli(&self, model: &FragmentationModel, free: ResourceVec) -> f64 {
        let mut devices = [0; 64];
        let count = self.gpus.len().min(devices.len());
        for (index, device) in (0u8..).zip(&mut devices[..count]) {
            let part = free.fraction_of(index);
            *device = u32::from(part.compute.min(part.memory));
        }
        let left = NodeFree { cpus: free.cpus, memory_mib: free.memory_mib, devices: &devices[..count] };
        model.expected_milli(left)
    }

    /// Free thousandths of GPUs, then the free part of the cores in thousandths. Best fit prefers the lower value.
    pub fn emptiness(&self, free: ResourceVec) -> (u64, u64) {
        let gpus = (0..self.gpus.len()).map(|gpu| u64::from(free.fraction_of(gpu as u8).compute)).sum();
        (gpus, (free.cpus * 1_000).checked_div(u64::from(self.cpus)).unwrap_or(0))
    }

    /// Compute of the assigned instance that the task did not request, in thousandths of the device.
    pub fn unused_of(&self, each: &Resources, assignment: DeviceAssignment) -> u32 {
        let DeviceAssignment::Instance { device, start } = assignment else { return 0 };
        let instances = self.gpus.get(usize::from(device)).into_iter().flat_map(|gpu| &gpu.instances);
        let one = instances.into_iter().find(|one| one.start == start);
        one.map_or(0, |one| one.compute_milli.saturating_sub(each.gpu_compute_milli))
    }

    /// This kind with no device partitioned.
    pub(super) fn unpartitioned(&self) -> Kind {
        let mut kind = self.clone();
        for gpu in &mut kind.gpus {
            (gpu.partitioned, gpu.instances) = (false, Vec::new());
        }
        kind
    }

    /// Whether a repartition of some device could create an eligible instance for a task that shares.
    pub fn could_repartition_for(&self, shape: &Shape, each: &Resources) -> bool {
        self.admits(shape)
            && self
                .gpus
                .iter()
                .take(PARTITIONED_GPUS_MAX as usize)
                .any(|gpu| gpu.is_in(shape.pool.as_deref(), PoolCheck::Ever) && gpu.could_repartition_for(each))
    }

    /// The number of devices in the bit mask `devices` that are of a model.
    pub fn devices_of(&self, devices: u64, model: &str) -> u64 {
        let named = bits(devices).into_iter().filter_map(|index| self.gpus.get(usize::from(index)));
        named.filter(|gpu| model::matches(model, &gpu.model)).count() as u64
    }
}

/// Assignments for all tasks of a gang in the free resources of one node, given the eligible devices of each task
/// group.
pub(crate) fn fit(shape: &Shape, eligible: &[Eligible], free: ResourceVec) -> Option<Vec<DeviceAssignment>> {
    if free.cpus < shape.cpus() || free.memory_mib < shape.memory_mib() {
        return None;
    }
    let mut left = free;
    if shape.locality.is_required() {
        left.gpus = closest_devices(shape, eligible, free)?;
    }
    let mut assignments = Vec::new();
    for ((count, each), eligible) in shape.groups.iter().zip(eligible) {
        for _ in 0..*count {
            let assignment = eligible.best_assignment(each, left)?;
            left = left.minus(assignment.taken());
            assignments.push(assignment);
        }
    }
    Some(assignments)
}

/// All subsets of `devices` with `count` members; `None` if there are more than `max`.
fn device_sets(devices: u64, count: u32, max: usize) -> Option<Vec<u64>> {
    let mut sets = vec![(0, 0)];
    for taken in 0..count {
        let mut larger = Vec::new();
        for (set, above) in sets {
            let next = bits(devices & u64::MAX.checked_shl(above).unwrap_or(0)).into_iter();
            // Enough devices must remain above this one to complete the set.
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

/// The devices for a gang with a required locality, chosen from those that are eligible for all of its tasks.
fn closest_devices(shape: &Shape, eligible: &[Eligible], free: ResourceVec) -> Option<u64> {
    let mut with_gpus = shape.groups.iter().zip(eligible).filter(|((_, each), _)| each.whole_gpus() > 0);
    let Some((_, first)) = with_gpus.clone().next() else { return Some(free.gpus) };
    let common = with_gpus.clone().fold(free.gpus, |gpus, (_, eligible)| gpus & eligible.gpus);
    let count = with_gpus.by_ref().map(|((count, each), _)| count * each.whole_gpus()).sum();
    first.topology.choose(common, count, shape.locality)
}

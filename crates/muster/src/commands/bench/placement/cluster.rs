//! The nodes of a replay: what they have, what is free of it, and what a pod takes.

/// Thousandths of a whole GPU.
pub const WHOLE_GPU_MILLI: u32 = 1_000;
/// Pods that one node runs at most, by the rules of the published runs.
const PODS_PER_NODE_MAX: u32 = 1_001;

/// GPU models, one bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ModelSet(pub u64);

impl ModelSet {
    /// Whichever there is.
    pub const ANY: ModelSet = ModelSet(u64::MAX);

    /// Whether one of these is among the others.
    pub fn intersects(self, others: ModelSet) -> bool {
        self.0 & others.0 != 0
    }
}

/// What a pod asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodRequest {
    /// Thousandths of a core.
    pub cpu_milli: u64,
    /// Memory.
    pub memory_mib: u64,
    /// Devices.
    pub gpus: u32,
    /// Thousandths of each device; fewer than all of them only where one device is asked for.
    pub milli_per_gpu: u32,
    /// The models that will do.
    pub models: ModelSet,
}

impl PodRequest {
    /// Thousandths of a GPU in all.
    pub fn gpu_milli_total(&self) -> u64 {
        u64::from(self.gpus) * u64::from(self.milli_per_gpu)
    }

    /// Whether a part of one device is enough.
    pub fn is_shared(&self) -> bool {
        self.gpus == 1 && self.milli_per_gpu < WHOLE_GPU_MILLI
    }

    /// What kind of tenant of GPUs it is: a part of one, one, two and so on. `None` without any.
    pub fn gpu_class(&self) -> Option<u64> {
        match self.gpus {
            0 => None,
            _ if self.is_shared() => Some(1),
            gpus => Some(1 << gpus.min(63)),
        }
    }
}

/// One node.
#[derive(Debug, Clone)]
pub struct TraceNode {
    /// Its model, one bit.
    pub model: ModelSet,
    /// Thousandths of a core that are free.
    pub cpu_milli_free: u64,
    /// Memory that is free.
    pub memory_mib: u64,
    /// Thousandths that are free of each device.
    pub device_milli_free: Vec<u32>,
    /// Pods that run here.
    pub pods: u32,
    /// The kinds of GPU pods that run here, one bit each.
    pub gpu_classes: u64,
}

impl TraceNode {
    /// An empty one.
    pub fn new(cpu: u64, memory_mib: u64, gpus: u32, model: ModelSet) -> TraceNode {
        TraceNode { model, cpu_milli_free: cpu, memory_mib, device_milli_free: vec![WHOLE_GPU_MILLI; gpus as usize], pods: 0, gpu_classes: 0 }
    }

    /// Thousandths of a GPU that are free in all.
    pub fn gpu_milli_free(&self) -> u64 {
        self.device_milli_free.iter().map(|free| u64::from(*free)).sum()
    }

    /// Whether a pod fits.
    pub fn fits(&self, ask: &PodRequest) -> bool {
        self.cpu_milli_free >= ask.cpu_milli
            && self.memory_mib >= ask.memory_mib
            && self.pods < PODS_PER_NODE_MAX
            && (ask.gpus == 0 || self.model.intersects(ask.models) && self.has_devices(ask))
    }

    fn has_devices(&self, ask: &PodRequest) -> bool {
        self.device_milli_free.iter().filter(|free| **free >= ask.milli_per_gpu).count() >= ask.gpus as usize
    }

    /// The devices that a pod gets unless its policy says otherwise: the lowest that are whole, or the one that is
    /// left with the least.
    pub fn default_devices(&self, ask: &PodRequest) -> DeviceSet {
        if ask.is_shared() {
            let fitting = self.device_milli_free.iter().enumerate().filter(|(_, free)| **free >= ask.milli_per_gpu);
            return fitting
                .min_by_key(|(_, free)| **free)
                .map(|(at, _)| DeviceSet::single(at))
                .unwrap_or_default();
        }
        let fitting = self.device_milli_free.iter().enumerate().filter(|(_, free)| **free >= ask.milli_per_gpu);
        fitting.take(ask.gpus as usize).map(|(at, _)| DeviceSet::single(at)).fold(DeviceSet::default(), DeviceSet::union)
    }

    /// Let a pod run here.
    pub fn allocate(&mut self, ask: &PodRequest, devices: DeviceSet) {
        self.cpu_milli_free -= ask.cpu_milli;
        self.memory_mib -= ask.memory_mib;
        self.pods += 1;
        self.gpu_classes |= ask.gpu_class().unwrap_or_default();
        for (at, free) in self.device_milli_free.iter_mut().enumerate().filter(|(at, _)| devices.contains(*at)) {
            assert!(*free >= ask.milli_per_gpu, "device {at} is given twice");
            *free -= ask.milli_per_gpu;
        }
    }
}

/// Some devices of a node, one bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeviceSet(u64);

impl DeviceSet {
    /// One of them.
    pub fn single(at: usize) -> DeviceSet {
        DeviceSet(1 << at)
    }

    /// These and those.
    pub fn union(self, others: DeviceSet) -> DeviceSet {
        DeviceSet(self.0 | others.0)
    }

    /// Whether it is one of them.
    pub fn contains(self, at: usize) -> bool {
        self.0 >> at & 1 == 1
    }
}

/// Where a pod goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PodPlacement {
    /// The place of the node in the list of all.
    pub node: usize,
    /// Its devices.
    pub devices: DeviceSet,
}

/// All nodes, and the order in which they are preferred among equals.
#[derive(Debug, Clone)]
pub struct TraceCluster {
    /// The nodes as the file lists them.
    pub nodes: Vec<TraceNode>,
    /// The rank of each; the lowest wins.
    pub ranks: Vec<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(gpus: u32, milli: u32) -> PodRequest {
        PodRequest { cpu_milli: 1_000, memory_mib: 1_024, gpus, milli_per_gpu: milli, models: ModelSet::ANY }
    }

    #[test]
    fn a_shared_pod_takes_the_fullest_device_that_fits() {
        let mut node = TraceNode::new(8_000, 8_192, 3, ModelSet(1));
        node.device_milli_free = vec![900, 400, 500];
        assert_eq!(node.default_devices(&ask(1, 450)), DeviceSet::single(2));
        node.allocate(&ask(1, 450), DeviceSet::single(2));
        assert_eq!(node.device_milli_free, [900, 400, 50]);
        assert_eq!((node.cpu_milli_free, node.memory_mib, node.pods, node.gpu_classes), (7_000, 7_168, 1, 1));
    }

    #[test]
    fn whole_devices_are_taken_from_the_first_on() {
        let mut node = TraceNode::new(8_000, 8_192, 4, ModelSet(1));
        node.device_milli_free[1] = 999;
        let devices = node.default_devices(&ask(2, WHOLE_GPU_MILLI));
        assert_eq!(devices, DeviceSet::single(0).union(DeviceSet::single(2)));
        node.allocate(&ask(2, WHOLE_GPU_MILLI), devices);
        assert!(node.fits(&ask(1, WHOLE_GPU_MILLI)) && !node.fits(&ask(2, WHOLE_GPU_MILLI)));
    }

    #[test]
    fn a_pod_does_not_fit_a_node_of_another_model() {
        let node = TraceNode::new(8_000, 8_192, 1, ModelSet(0b10));
        let of = |models| PodRequest { models, ..ask(1, WHOLE_GPU_MILLI) };
        assert!(node.fits(&of(ModelSet(0b110))) && !node.fits(&of(ModelSet(0b101))));
        // Without GPUs the model does not matter.
        assert!(node.fits(&PodRequest { models: ModelSet(0b101), ..ask(0, 0) }));
    }
}

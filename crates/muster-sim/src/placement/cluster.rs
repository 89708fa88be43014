//! Nodes and pod requests of the OpenB trace: free capacity, fit and allocation.

/// A whole GPU in thousandths.
pub const WHOLE_GPU_MILLI: u32 = 1_000;
/// Most pods on one node, as in the published runs.
const PODS_PER_NODE_MAX: u32 = 1_001;

/// A set of GPU models, one bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ModelSet(pub u64);

impl ModelSet {
    pub const ANY: ModelSet = ModelSet(u64::MAX);

    pub fn intersects(self, others: ModelSet) -> bool {
        self.0 & others.0 != 0
    }
}

/// The resources that a pod requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodRequest {
    pub cpu_milli: u64,
    pub memory_mib: u64,
    pub gpus: u32,
    /// Thousandths of each GPU; below 1,000 only if one GPU is requested.
    pub milli_per_gpu: u32,
    /// The models that the pod accepts.
    pub models: ModelSet,
}

impl PodRequest {
    pub fn gpu_milli_total(&self) -> u64 {
        u64::from(self.gpus) * u64::from(self.milli_per_gpu)
    }

    /// True if the pod requests a fraction of one GPU.
    pub fn is_shared(&self) -> bool {
        self.gpus == 1 && self.milli_per_gpu < WHOLE_GPU_MILLI
    }

    /// One bit for the GPU count, with 1 for a fraction: the class by which GPU clustering groups pods. `None` without
    /// GPUs.
    pub fn gpu_class(&self) -> Option<u64> {
        match self.gpus {
            0 => None,
            _ if self.is_shared() => Some(1),
            gpus => Some(1 << gpus.min(63)),
        }
    }
}

/// A node and its free capacity.
#[derive(Debug, Clone)]
pub struct TraceNode {
    /// The model of its GPUs, one bit.
    pub model: ModelSet,
    pub cpu_milli_free: u64,
    /// Free memory.
    pub memory_mib: u64,
    /// Free thousandths of each GPU.
    pub device_milli_free: Vec<u32>,
    pub pods: u32,
    /// The GPU classes of the pods that run here, see [`PodRequest::gpu_class`].
    pub gpu_classes: u64,
}

impl TraceNode {
    /// An empty node.
    pub fn new(cpu_milli: u64, memory_mib: u64, gpus: u32, model: ModelSet) -> TraceNode {
        TraceNode {
            model,
            cpu_milli_free: cpu_milli,
            memory_mib,
            device_milli_free: vec![WHOLE_GPU_MILLI; gpus as usize],
            pods: 0,
            gpu_classes: 0,
        }
    }

    pub fn gpu_milli_free(&self) -> u64 {
        self.device_milli_free.iter().map(|free| u64::from(*free)).sum()
    }

    pub fn fits(&self, request: &PodRequest) -> bool {
        self.cpu_milli_free >= request.cpu_milli
            && self.memory_mib >= request.memory_mib
            && self.pods < PODS_PER_NODE_MAX
            && (request.gpus == 0 || self.model.intersects(request.models) && self.has_devices(request))
    }

    fn has_devices(&self, request: &PodRequest) -> bool {
        self.device_milli_free.iter().filter(|free| **free >= request.milli_per_gpu).count() >= request.gpus as usize
    }

    /// The GPUs that a pod gets unless its policy chooses: for a fraction the fullest GPU that fits, otherwise the
    /// lowest free indexes.
    pub fn default_devices(&self, request: &PodRequest) -> DeviceSet {
        if request.is_shared() {
            let fitting = self.device_milli_free.iter().enumerate().filter(|(_, free)| **free >= request.milli_per_gpu);
            return fitting.min_by_key(|(_, free)| **free).map(|(at, _)| DeviceSet::single(at)).unwrap_or_default();
        }
        let fitting = self.device_milli_free.iter().enumerate().filter(|(_, free)| **free >= request.milli_per_gpu);
        fitting
            .take(request.gpus as usize)
            .map(|(at, _)| DeviceSet::single(at))
            .fold(DeviceSet::default(), DeviceSet::union)
    }

    pub fn allocate(&mut self, request: &PodRequest, devices: DeviceSet) {
        self.cpu_milli_free -= request.cpu_milli;
        self.memory_mib -= request.memory_mib;
        self.pods += 1;
        self.gpu_classes |= request.gpu_class().unwrap_or_default();
        for (at, free) in self.device_milli_free.iter_mut().enumerate().filter(|(at, _)| devices.contains(*at)) {
            assert!(*free >= request.milli_per_gpu, "GPU {at} is allocated twice");
            *free -= request.milli_per_gpu;
        }
    }
}

/// A set of GPUs of a node, one bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeviceSet(u64);

impl DeviceSet {
    pub fn single(at: usize) -> DeviceSet {
        DeviceSet(1 << at)
    }

    pub fn union(self, others: DeviceSet) -> DeviceSet {
        DeviceSet(self.0 | others.0)
    }

    pub fn contains(self, at: usize) -> bool {
        self.0 >> at & 1 == 1
    }
}

/// The node and GPUs of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PodPlacement {
    /// Index in [`TraceCluster::nodes`].
    pub node: usize,
    pub devices: DeviceSet,
}

/// The nodes of the trace and their ranks.
#[derive(Debug, Clone)]
pub struct TraceCluster {
    /// In the order of the file.
    pub nodes: Vec<TraceNode>,
    /// The rank of each node: of nodes with equal score the lowest rank wins.
    pub ranks: Vec<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(gpus: u32, milli: u32) -> PodRequest {
        PodRequest { cpu_milli: 1_000, memory_mib: 1_024, gpus, milli_per_gpu: milli, models: ModelSet::ANY }
    }

    #[test]
    fn a_shared_pod_takes_the_fullest_device_that_fits() {
        let mut node = TraceNode::new(8_000, 8_192, 3, ModelSet(1));
        node.device_milli_free = vec![900, 400, 500];
        assert_eq!(node.default_devices(&request(1, 450)), DeviceSet::single(2));
        node.allocate(&request(1, 450), DeviceSet::single(2));
        assert_eq!(node.device_milli_free, [900, 400, 50]);
        assert_eq!((node.cpu_milli_free, node.memory_mib, node.pods, node.gpu_classes), (7_000, 7_168, 1, 1));
    }

    #[test]
    fn whole_devices_are_taken_in_index_order() {
        let mut node = TraceNode::new(8_000, 8_192, 4, ModelSet(1));
        node.device_milli_free[1] = 999;
        let devices = node.default_devices(&request(2, WHOLE_GPU_MILLI));
        assert_eq!(devices, DeviceSet::single(0).union(DeviceSet::single(2)));
        node.allocate(&request(2, WHOLE_GPU_MILLI), devices);
        assert!(node.fits(&request(1, WHOLE_GPU_MILLI)) && !node.fits(&request(2, WHOLE_GPU_MILLI)));
    }

    #[test]
    fn a_pod_does_not_fit_a_node_of_another_model() {
        let node = TraceNode::new(8_000, 8_192, 1, ModelSet(0b10));
        let of = |models| PodRequest { models, ..request(1, WHOLE_GPU_MILLI) };
        assert!(node.fits(&of(ModelSet(0b110))) && !node.fits(&of(ModelSet(0b101))));
        // Without GPUs the model does not matter.
        assert!(node.fits(&PodRequest { models: ModelSet(0b101), ..request(0, 0) }));
    }
}

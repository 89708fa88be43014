//! The nodes of a replay: what they have, what is free of it, and what a pod takes.

/// Thousandths of a whole GPU.
pub const WHOLE: u32 = 1_000;
/// Pods that one node runs at most, by the rules of the published runs.
const PODS_MAX: u32 = 1_001;

/// GPU models, one bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Models(pub u64);

impl Models {
    /// Whichever there is.
    pub const ANY: Models = Models(u64::MAX);

    /// Whether one of these is among the others.
    pub fn meets(self, others: Models) -> bool {
        self.0 & others.0 != 0
    }
}

/// What a pod asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ask {
    /// Thousandths of a core.
    pub cpu: u64,
    /// Memory.
    pub memory_mib: u64,
    /// Devices.
    pub gpus: u32,
    /// Thousandths of each device; fewer than all of them only where one device is asked for.
    pub milli: u32,
    /// The models that will do.
    pub models: Models,
}

impl Ask {
    /// Thousandths of a GPU in all.
    pub fn gpu_milli(&self) -> u64 {
        u64::from(self.gpus) * u64::from(self.milli)
    }

    /// Whether a part of one device is enough.
    pub fn is_shared(&self) -> bool {
        self.gpus == 1 && self.milli < WHOLE
    }

    /// What kind of tenant of GPUs it is: a part of one, one, two and so on. `None` without any.
    pub fn tag(&self) -> Option<u64> {
        match self.gpus {
            0 => None,
            _ if self.is_shared() => Some(1),
            gpus => Some(1 << gpus.min(63)),
        }
    }
}

/// One node.
#[derive(Debug, Clone)]
pub struct Node {
    /// Its model, one bit.
    pub model: Models,
    /// Thousandths of a core that are free.
    pub cpu: u64,
    /// Memory that is free.
    pub memory_mib: u64,
    /// Thousandths that are free of each device.
    pub devices: Vec<u32>,
    /// Pods that run here.
    pub pods: u32,
    /// The kinds of GPU pods that run here, one bit each.
    pub tags: u64,
}

impl Node {
    /// An empty one.
    pub fn new(cpu: u64, memory_mib: u64, gpus: u32, model: Models) -> Node {
        Node { model, cpu, memory_mib, devices: vec![WHOLE; gpus as usize], pods: 0, tags: 0 }
    }

    /// Thousandths of a GPU that are free in all.
    pub fn gpu_milli(&self) -> u64 {
        self.devices.iter().map(|free| u64::from(*free)).sum()
    }

    /// Whether a pod fits.
    pub fn holds(&self, ask: &Ask) -> bool {
        self.cpu >= ask.cpu
            && self.memory_mib >= ask.memory_mib
            && self.pods < PODS_MAX
            && (ask.gpus == 0 || self.model.meets(ask.models) && self.has_devices(ask))
    }

    fn has_devices(&self, ask: &Ask) -> bool {
        self.devices.iter().filter(|free| **free >= ask.milli).count() >= ask.gpus as usize
    }

    /// The devices that a pod gets unless its policy says otherwise: the lowest that are whole, or the one that is
    /// left with the least.
    pub fn usual_devices(&self, ask: &Ask) -> Devices {
        if ask.is_shared() {
            let fitting = self.devices.iter().enumerate().filter(|(_, free)| **free >= ask.milli);
            return fitting
                .min_by_key(|(_, free)| **free)
                .map(|(at, _)| Devices::one(at))
                .unwrap_or_default();
        }
        let fitting = self.devices.iter().enumerate().filter(|(_, free)| **free >= ask.milli);
        fitting.take(ask.gpus as usize).map(|(at, _)| Devices::one(at)).fold(Devices::default(), Devices::and)
    }

    /// Let a pod run here.
    pub fn take(&mut self, ask: &Ask, devices: Devices) {
        self.cpu -= ask.cpu;
        self.memory_mib -= ask.memory_mib;
        self.pods += 1;
        self.tags |= ask.tag().unwrap_or_default();
        for (at, free) in self.devices.iter_mut().enumerate().filter(|(at, _)| devices.has(*at)) {
            assert!(*free >= ask.milli, "device {at} is given twice");
            *free -= ask.milli;
        }
    }
}

/// Some devices of a node, one bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Devices(u64);

impl Devices {
    /// One of them.
    pub fn one(at: usize) -> Devices {
        Devices(1 << at)
    }

    /// These and those.
    pub fn and(self, others: Devices) -> Devices {
        Devices(self.0 | others.0)
    }

    /// Whether it is one of them.
    pub fn has(self, at: usize) -> bool {
        self.0 >> at & 1 == 1
    }
}

/// Where a pod goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spot {
    /// The place of the node in the list of all.
    pub node: usize,
    /// Its devices.
    pub devices: Devices,
}

/// All nodes, and the order in which they are preferred among equals.
#[derive(Debug, Clone)]
pub struct Cluster {
    /// The nodes as the file lists them.
    pub nodes: Vec<Node>,
    /// The rank of each; the lowest wins.
    pub ranks: Vec<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(gpus: u32, milli: u32) -> Ask {
        Ask { cpu: 1_000, memory_mib: 1_024, gpus, milli, models: Models::ANY }
    }

    #[test]
    fn a_shared_pod_takes_the_fullest_device_that_holds_it() {
        let mut node = Node::new(8_000, 8_192, 3, Models(1));
        node.devices = vec![900, 400, 500];
        assert_eq!(node.usual_devices(&ask(1, 450)), Devices::one(2));
        node.take(&ask(1, 450), Devices::one(2));
        assert_eq!(node.devices, [900, 400, 50]);
        assert_eq!((node.cpu, node.memory_mib, node.pods, node.tags), (7_000, 7_168, 1, 1));
    }

    #[test]
    fn whole_devices_are_taken_from_the_first_on() {
        let mut node = Node::new(8_000, 8_192, 4, Models(1));
        node.devices[1] = 999;
        let devices = node.usual_devices(&ask(2, WHOLE));
        assert_eq!(devices, Devices::one(0).and(Devices::one(2)));
        node.take(&ask(2, WHOLE), devices);
        assert!(node.holds(&ask(1, WHOLE)) && !node.holds(&ask(2, WHOLE)));
    }

    #[test]
    fn a_model_that_is_not_asked_for_does_not_hold_the_pod() {
        let node = Node::new(8_000, 8_192, 1, Models(0b10));
        let of = |models| Ask { models, ..ask(1, WHOLE) };
        assert!(node.holds(&of(Models(0b110))) && !node.holds(&of(Models(0b101))));
        // Without GPUs the model does not matter.
        assert!(node.holds(&Ask { models: Models(0b101), ..ask(0, 0) }));
    }
}

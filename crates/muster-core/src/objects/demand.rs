//! Demand: the amounts of each resource that a job counts against the limits of its tenant.

use serde::{Deserialize, Serialize};

/// Amounts counted against a tenant's quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "SavedDemand")]
pub struct Demand {
    pub gpu_milli: u64,
    /// Requested GPU memory, summed over all GPUs.
    pub gpu_memory_mib: u64,
    pub cpus: u64,
    pub memory_mib: u64,
    /// Jobs running at once.
    pub jobs: u64,
    /// Sum of the known power limits of the GPUs; 0 before the job has a placement.
    pub milliwatts: u64,
}

impl Demand {
    pub fn times(self, count: u64) -> Demand {
        Demand {
            gpu_milli: self.gpu_milli * count,
            gpu_memory_mib: self.gpu_memory_mib * count,
            cpus: self.cpus * count,
            memory_mib: self.memory_mib * count,
            jobs: self.jobs * count,
            milliwatts: self.milliwatts * count,
        }
    }

    pub fn plus(self, other: Demand) -> Demand {
        Demand {
            gpu_milli: self.gpu_milli + other.gpu_milli,
            gpu_memory_mib: self.gpu_memory_mib + other.gpu_memory_mib,
            cpus: self.cpus + other.cpus,
            memory_mib: self.memory_mib + other.memory_mib,
            jobs: self.jobs + other.jobs,
            milliwatts: self.milliwatts + other.milliwatts,
        }
    }

    /// The difference, at least zero.
    pub fn less(self, other: Demand) -> Demand {
        Demand {
            gpu_milli: self.gpu_milli.saturating_sub(other.gpu_milli),
            gpu_memory_mib: self.gpu_memory_mib.saturating_sub(other.gpu_memory_mib),
            cpus: self.cpus.saturating_sub(other.cpus),
            memory_mib: self.memory_mib.saturating_sub(other.memory_mib),
            jobs: self.jobs.saturating_sub(other.jobs),
            milliwatts: self.milliwatts.saturating_sub(other.milliwatts),
        }
    }

    /// The difference after `other` is released. Releasing more than is held is a bug.
    pub fn minus(self, other: Demand) -> Demand {
        let take = |held: u64, released: u64| {
            assert!(released <= held, "released {released} of {held}");
            held - released
        };
        Demand {
            gpu_milli: take(self.gpu_milli, other.gpu_milli),
            gpu_memory_mib: take(self.gpu_memory_mib, other.gpu_memory_mib),
            cpus: take(self.cpus, other.cpus),
            memory_mib: take(self.memory_mib, other.memory_mib),
            jobs: take(self.jobs, other.jobs),
            milliwatts: take(self.milliwatts, other.milliwatts),
        }
    }
}

impl Demand {
    /// GPUs, rounded up: for messages and for limits, which are integers.
    pub fn gpus(self) -> u64 {
        self.gpu_milli.div_ceil(1_000)
    }
}

/// The form in savepoints. Before GPU shares existed, savepoints counted whole `gpus`.
#[derive(Deserialize)]
struct SavedDemand {
    gpu_milli: Option<u64>,
    #[serde(default)]
    gpus: u64,
    gpu_memory_mib: u64,
    cpus: u64,
    memory_mib: u64,
    jobs: u64,
    #[serde(default)]
    milliwatts: u64,
}

impl From<SavedDemand> for Demand {
    fn from(saved: SavedDemand) -> Demand {
        Demand {
            gpu_milli: saved.gpu_milli.unwrap_or(saved.gpus.saturating_mul(1_000)),
            gpu_memory_mib: saved.gpu_memory_mib,
            cpus: saved.cpus,
            memory_mib: saved.memory_mib,
            jobs: saved.jobs,
            milliwatts: saved.milliwatts,
        }
    }
}

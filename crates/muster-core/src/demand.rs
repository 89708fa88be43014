//! Amounts that are counted against quotas, guarantees and shares.

use serde::{Deserialize, Serialize};

/// Amounts counted against a tenant's quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "Written")]
pub struct Demand {
    /// GPUs, in thousandths.
    pub gpu_milli: u64,
    /// GPU memory asked for, over all GPUs.
    pub gpu_memory_mib: u64,
    /// CPU cores.
    pub cpus: u64,
    /// Main memory.
    pub memory_mib: u64,
    /// Jobs running at once.
    pub jobs: u64,
    /// The power limits of the GPUs, as far as they are known; nothing before it is known which they are.
    pub milliwatts: u64,
}

impl Demand {
    /// So many times as much.
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

    /// Both together.
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

    /// What is left when `other` is gone; nothing at least.
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

    /// What is left when `other` is given back. Giving back more than was taken is a bug.
    pub fn minus(self, other: Demand) -> Demand {
        let take = |have: u64, give: u64| {
            assert!(give <= have, "gave back {give} of {have}");
            have - give
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
    /// GPUs, a part of one counted as one: for people and for limits, which are whole.
    pub fn gpus(self) -> u64 {
        self.gpu_milli.div_ceil(1_000)
    }
}

/// As savepoints have it: before GPUs were shared they were counted whole.
#[derive(Deserialize)]
struct Written {
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

impl From<Written> for Demand {
    fn from(written: Written) -> Demand {
        Demand {
            gpu_milli: written.gpu_milli.unwrap_or(written.gpus.saturating_mul(1_000)),
            gpu_memory_mib: written.gpu_memory_mib,
            cpus: written.cpus,
            memory_mib: written.memory_mib,
            jobs: written.jobs,
            milliwatts: written.milliwatts,
        }
    }
}

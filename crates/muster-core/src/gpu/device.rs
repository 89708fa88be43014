//! GPU devices: what an agent reports of one, and its health.

use serde::{Deserialize, Serialize};

use crate::gpu::partition::MigInstance;
use crate::time::Timestamp;

/// Most GPUs in one node: free devices are kept as bits of one word.
pub const GPUS_PER_NODE_MAX: usize = 64;

/// What does not change about a GPU.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GpuFacts {
    /// Unique in the world.
    pub uuid: String,
    /// As the driver spells it, for example `NVIDIA H200`.
    pub model: String,
    /// Memory of the device.
    pub memory_mib: u64,
    /// NUMA node it hangs on, where known.
    #[serde(default)]
    pub numa_node: Option<u32>,
    /// Indexes of the GPUs it reaches by NVLink.
    #[serde(default)]
    pub nvlink: Vec<u8>,
    /// Processor socket it hangs on, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<u32>,
    /// PCIe switch it hangs on, where it hangs on one and that is known; numbered within the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pcie_switch: Option<u32>,
    /// What it is partitioned into, as its agent found it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mig: Vec<MigInstance>,
    /// Power limit, where known.
    #[serde(default)]
    pub power_limit_milliwatts: Option<u64>,
}

impl GpuFacts {
    /// Its power limit; nothing where it is not known.
    pub fn milliwatts(&self) -> u64 {
        self.power_limit_milliwatts.unwrap_or(0)
    }
}

/// A NUMA node: cores and the memory that is near to them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NumaFacts {
    pub cpus: u32,
    pub memory_mib: u64,
    /// Processor socket it belongs to.
    pub socket: u32,
}

/// How a GPU is doing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuHealth {
    /// Whether it may be given out.
    pub status: GpuStatus,
    /// Why, in a sentence; empty when healthy.
    #[serde(default)]
    pub why: String,
    pub since: Timestamp,
    /// Not to be given out before this moment: the cooling period.
    #[serde(default)]
    pub cooling_until: Option<Timestamp>,
    /// How warm it is, as far as that was worth a note.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature_c: Option<i32>,
    /// What an operator declared it to be. No reading erases it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub declared: Option<Box<DeclaredHealth>>,
    /// What the readings of its agent come to, where an operator has declared something else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reading: Option<GpuStatus>,
}

/// A device as an operator declared it: warning or worse, until an operator declares it healthy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeclaredHealth {
    /// At least this bad.
    pub word: GpuStatus,
    /// Why; may be empty.
    pub why: String,
    pub by: String,
}

/// Differences in °C below this are not worth a note.
const TEMPERATURE_STEP_C: i32 = 5;

impl GpuHealth {
    /// One of which nothing is known yet.
    pub fn healthy(since: Timestamp) -> GpuHealth {
        let (word, why) = (GpuStatus::Healthy, String::new());
        GpuHealth {
            status: word,
            why,
            since,
            cooling_until: None,
            temperature_c: None,
            declared: None,
            reading: None,
        }
    }

    /// What the readings of its agent come to.
    pub fn reading_status(&self) -> GpuStatus {
        self.reading.unwrap_or(self.status)
    }

    /// Whether a temperature is worth a note.
    pub fn is_worth_noting(&self, temperature_c: Option<i32>) -> bool {
        match (self.temperature_c, temperature_c) {
            (Some(noted), Some(read)) => (noted - read).abs() >= TEMPERATURE_STEP_C,
            (None, Some(_)) => true,
            (_, None) => false,
        }
    }
}

/// The health levels of seed 004, and whether the device may be given out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GpuStatus {
    Healthy,
    /// Warm, or a first error; still given out.
    Warning,
    /// Hot, or several errors; given out only if nothing better is free.
    Degraded,
    Unhealthy,
}

impl GpuStatus {
    /// As people read it.
    pub fn as_str(self) -> &'static str {
        match self {
            GpuStatus::Healthy => "healthy",
            GpuStatus::Warning => "warning",
            GpuStatus::Degraded => "degraded",
            GpuStatus::Unhealthy => "unhealthy",
        }
    }

    /// How healthy that is in thousandths, for pools that ask for so much.
    pub fn health_milli(self) -> i64 {
        match self {
            GpuStatus::Healthy => 1_000,
            GpuStatus::Warning => 900,
            GpuStatus::Degraded => 500,
            GpuStatus::Unhealthy => 0,
        }
    }

    /// The thresholds of seed 004: temperature in °C and number of errors.
    pub fn of_reading(temperature_c: Option<i32>, errors: u32) -> GpuStatus {
        let above = |limit: i32| temperature_c.is_some_and(|celsius| celsius > limit);
        match () {
            () if above(85) || errors > 10 => GpuStatus::Unhealthy,
            () if above(75) || errors > 5 => GpuStatus::Degraded,
            () if above(65) || errors > 0 => GpuStatus::Warning,
            () => GpuStatus::Healthy,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_follows_the_thresholds_of_the_seed() {
        use GpuStatus::*;
        let cases = [
            (Some(60), 0, Healthy),
            (Some(65), 0, Healthy),
            (Some(66), 0, Warning),
            (Some(75), 1, Warning),
            (Some(76), 0, Degraded),
            (Some(50), 6, Degraded),
            (Some(85), 10, Degraded),
            (Some(86), 0, Unhealthy),
            (None, 11, Unhealthy),
            (None, 0, Healthy),
        ];
        for (temperature, errors, word) in cases {
            assert_eq!(GpuStatus::of_reading(temperature, errors), word, "{temperature:?} {errors}");
        }
    }
}

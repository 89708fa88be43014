//! GPU devices: the hardware facts that an agent reports, and GPU health with its thresholds.

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// Most GPUs in one node: the set of free devices is one 64-bit mask.
pub const GPUS_PER_NODE_MAX: usize = 64;

/// A MIG instance of a partitioned device.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MigInstance {
    /// MIG profile, for example `1g.18gb`.
    pub profile: String,
    /// First memory slice of the instance.
    pub start: u8,
}

/// Hardware facts of a GPU, as its agent reports them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GpuFacts {
    /// Globally unique.
    pub uuid: String,
    /// As the driver spells it, for example `NVIDIA H200`.
    pub model: String,
    pub memory_mib: u64,
    /// NUMA node it is attached to, if known.
    #[serde(default)]
    pub numa_node: Option<u32>,
    /// Indexes of its NVLink peers.
    #[serde(default)]
    pub nvlink: Vec<u8>,
    /// CPU socket it is attached to, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<u32>,
    /// PCIe switch it is attached to, numbered within the node; `None` if there is none or it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pcie_switch: Option<u32>,
    /// MIG instances that its agent found at registration.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mig: Vec<MigInstance>,
    /// Power limit, if known.
    #[serde(default)]
    pub power_limit_milliwatts: Option<u64>,
}

impl GpuFacts {
    /// The power limit; 0 if unknown.
    pub fn milliwatts(&self) -> u64 {
        self.power_limit_milliwatts.unwrap_or(0)
    }
}

/// A NUMA node: cores and their local memory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NumaFacts {
    pub cpus: u32,
    pub memory_mib: u64,
    /// CPU socket it belongs to.
    pub socket: u32,
}

/// The health of a GPU: the worse of the agent's readings and the operator's declaration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuHealth {
    pub status: GpuStatus,
    /// Why, in a sentence; empty when healthy.
    #[serde(default)]
    pub why: String,
    pub since: Timestamp,
    /// End of the cooling period; until then the GPU gets no job.
    #[serde(default)]
    pub cooling_until: Option<Timestamp>,
    /// Last recorded temperature; smaller changes than `TEMPERATURE_STEP_C` are not recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature_c: Option<i32>,
    /// The operator's declaration. A reading never removes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub declared: Option<Box<DeclaredHealth>>,
    /// Status by the agent's readings, if an operator declared another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reading: Option<GpuStatus>,
}

/// Health that an operator declared: warning or worse, until an operator declares the device healthy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeclaredHealth {
    /// The effective status is at least this bad.
    pub status: GpuStatus,
    /// Why; may be empty.
    pub why: String,
    pub by: String,
}

/// Temperature changes below this, in °C, are not recorded: each record is an event in the journal.
const TEMPERATURE_STEP_C: i32 = 5;

impl GpuHealth {
    /// The health of a device without any reading yet.
    pub fn healthy(since: Timestamp) -> GpuHealth {
        GpuHealth {
            status: GpuStatus::Healthy,
            why: String::new(),
            since,
            cooling_until: None,
            temperature_c: None,
            declared: None,
            reading: None,
        }
    }

    /// Status by the agent's readings alone.
    pub fn reading_status(&self) -> GpuStatus {
        self.reading.unwrap_or(self.status)
    }

    /// True if a temperature differs enough from the last recorded one to be recorded.
    pub fn is_worth_noting(&self, temperature_c: Option<i32>) -> bool {
        match (self.temperature_c, temperature_c) {
            (Some(recorded), Some(read)) => (recorded - read).abs() >= TEMPERATURE_STEP_C,
            (None, Some(_)) => true,
            (_, None) => false,
        }
    }
}

/// Health levels of specification 004; they decide whether the device gets jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GpuStatus {
    Healthy,
    /// Warm, or a first error; it still gets jobs.
    Warning,
    /// Hot, or several errors; it gets jobs only if no healthier device is free.
    Degraded,
    Unhealthy,
}

impl GpuStatus {
    pub fn as_str(self) -> &'static str {
        match self {
            GpuStatus::Healthy => "healthy",
            GpuStatus::Warning => "warning",
            GpuStatus::Degraded => "degraded",
            GpuStatus::Unhealthy => "unhealthy",
        }
    }

    /// Health in thousandths, compared with the health threshold of a pool.
    pub fn health_milli(self) -> i64 {
        match self {
            GpuStatus::Healthy => 1_000,
            GpuStatus::Warning => 900,
            GpuStatus::Degraded => 500,
            GpuStatus::Unhealthy => 0,
        }
    }

    /// The thresholds of specification 004: temperature in °C and number of errors.
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
    fn health_follows_temperature_and_error_thresholds() {
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
        for (temperature, errors, status) in cases {
            assert_eq!(GpuStatus::of_reading(temperature, errors), status, "{temperature:?} {errors}");
        }
    }
}

//! The inventory of this machine: CPUs and memory from the system, GPUs as configured.
//!
//! Real GPUs are not discovered yet; until then the runner can be configured with simulated ones.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use muster_protocol::agent::{RegisteredGpu, Registration};

use crate::error::AgentError;

const MEMINFO_PATH: &str = "/proc/meminfo";
const HOSTNAME_PATH: &str = "/proc/sys/kernel/hostname";

/// The registration of this machine under the name `node`, with the given devices.
pub fn local_registration(node: &str, gpus: Vec<RegisteredGpu>) -> Result<Registration, AgentError> {
    Ok(Registration {
        node: node.to_string(),
        hostname: read_file(HOSTNAME_PATH)?.trim().to_string(),
        address: String::new(),
        cpus: available_cpus()?,
        memory_mib: parse_memory_mib(&read_file(MEMINFO_PATH)?)
            .ok_or(AgentError::MissingInfo { path: PathBuf::from(MEMINFO_PATH), what: "`MemTotal` line" })?,
        simulated: !gpus.is_empty(),
        gpus,
        numa: Vec::new(),
        rack: None,
        block: None,
        power_feed: None,
        labels: BTreeMap::new(),
        taints: Vec::new(),
        agent_version: env!("CARGO_PKG_VERSION").to_string(),
        incarnation: String::new(),
        heartbeat_interval_ms: None,
        boot_id: String::new(),
    })
}

/// GPUs that are allocated and counted without a device: real discovery comes with the hardware adapters. The prefix
/// distinguishes those of different nodes.
pub fn counted_gpus(prefix: &str, count: u32) -> Vec<RegisteredGpu> {
    let gpu = |index| RegisteredGpu {
        uuid: format!("{prefix}counted-{index}"),
        model: "counted".to_string(),
        memory_mib: 16_384,
        numa_node: None,
        nvlink: Vec::new(),
        socket: None,
        pcie_switch: None,
        mig: Vec::new(),
        power_limit_milliwatts: None,
    };
    (0..count).map(gpu).collect()
}

/// The host name as a node name: in lower case, with `-` for each character that node names do not allow.
pub fn local_node_name() -> String {
    let hostname = fs::read_to_string(HOSTNAME_PATH).unwrap_or_default();
    let allowed = |letter: char| match letter.to_ascii_lowercase() {
        letter if letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.') => letter,
        _ => '-',
    };
    let name: String = hostname.trim().chars().map(allowed).take(63).collect();
    let name = name.trim_start_matches(['-', '_', '.']);
    if name.is_empty() { "localhost".to_string() } else { name.to_string() }
}

/// The CPUs that this process may use, after its CPU set and quota, which `/proc/cpuinfo` does not respect.
fn available_cpus() -> Result<u32, AgentError> {
    let count = std::thread::available_parallelism()
        .map_err(|source| AgentError::Read { path: PathBuf::from("/proc/self/status"), source })?;
    Ok(u32::try_from(count.get()).unwrap_or(u32::MAX))
}

fn parse_memory_mib(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib / 1024)
}

fn read_file(path: &str) -> Result<String, AgentError> {
    fs::read_to_string(path).map_err(|source| AgentError::Read { path: PathBuf::from(path), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_from_a_recorded_file() {
        assert_eq!(parse_memory_mib("MemTotal:       16384256 kB\nMemFree: 1 kB\n"), Some(16_000));
        assert_eq!(parse_memory_mib("MemFree: 1 kB\n"), None);
    }

    #[test]
    fn local_registration_has_cpus_and_memory() {
        let registration = local_registration("here", Vec::new()).unwrap();
        assert!(registration.cpus > 0 && registration.memory_mib > 0);
        assert!(!registration.simulated);
        assert!(!local_node_name().is_empty());
    }
}

//! What this machine is: CPUs and memory from the system, GPUs as they are told to us.
//!
//! Real GPUs are not looked for yet; until they are, the runner may be given simulated ones.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use muster_protocol::agent::{Gpu, Registration};

use crate::error::AgentError;

const MEMORY: &str = "/proc/meminfo";
const HOSTNAME: &str = "/proc/sys/kernel/hostname";

/// Describe this machine under a name, with these devices.
pub fn local(node: &str, gpus: Vec<Gpu>) -> Result<Registration, AgentError> {
    Ok(Registration {
        node: node.to_string(),
        hostname: read(HOSTNAME)?.trim().to_string(),
        address: String::new(),
        cpus: cpus()?,
        memory_mib: memory_mib(&read(MEMORY)?)
            .ok_or(AgentError::Silent { path: PathBuf::from(MEMORY), what: "how much memory there is" })?,
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
    })
}

/// The host name as a node name: lower case, and what a name cannot hold becomes `-`.
pub fn local_name() -> String {
    let hostname = fs::read_to_string(HOSTNAME).unwrap_or_default();
    let fit = |letter: char| match letter.to_ascii_lowercase() {
        letter if letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.') => letter,
        _ => '-',
    };
    let name: String = hostname.trim().chars().map(fit).take(63).collect();
    let name = name.trim_start_matches(['-', '_', '.']);
    if name.is_empty() { "localhost".to_string() } else { name.to_string() }
}

/// What this process may use: the system counts its CPU set and quota, which `/proc/cpuinfo` would not.
fn cpus() -> Result<u32, AgentError> {
    let count = std::thread::available_parallelism()
        .map_err(|source| AgentError::Read { path: PathBuf::from("/proc/self/status"), source })?;
    Ok(u32::try_from(count.get()).unwrap_or(u32::MAX))
}

fn memory_mib(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib / 1024)
}

fn read(path: &str) -> Result<String, AgentError> {
    fs::read_to_string(path).map_err(|source| AgentError::Read { path: PathBuf::from(path), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_from_a_recorded_file() {
        assert_eq!(memory_mib("MemTotal:       16384256 kB\nMemFree: 1 kB\n"), Some(16_000));
        assert_eq!(memory_mib("MemFree: 1 kB\n"), None);
    }

    #[test]
    fn this_machine_can_be_described() {
        let registration = local("here", Vec::new()).unwrap();
        assert!(registration.cpus > 0 && registration.memory_mib > 0);
        assert!(!registration.simulated);
        assert!(!local_name().is_empty());
    }
}

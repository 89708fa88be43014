//! The device filter of a task: the kernel lets it open the devices of an allow-list, and no other.
//!
//! `CUDA_VISIBLE_DEVICES` only asks a program to look away; the filter holds for every program. It is a BPF program on the
//! task's v2 cgroup, also where the v2 hierarchy has no controllers, or the list of the v1 `devices` controller.

mod bpf;

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use muster_protocol::agent::TaskOrder;
use rustix::fs::{major, minor};
use serde::{Deserialize, Serialize};

use crate::cgroup::{Cgroup, Controller};

/// What every program expects to find: null, zero, full, random, urandom, tty and ptmx, by major and minor number.
const COMMON_DEVICES: [(u32, u32); 7] = [(1, 3), (1, 5), (1, 7), (1, 8), (1, 9), (5, 0), (5, 2)];
/// The slave sides of pseudo-terminals, `/dev/pts/*`.
const PTS_MAJORS: std::ops::RangeInclusive<u32> = 136..=143;
/// The devices that every CUDA program opens besides those of its GPUs.
const NVIDIA_CONTROL_DEVICES: [&str; 3] = ["nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"];
const DEV_PATH: &str = "/dev";
const NVIDIA_CAPABILITIES_PATH: &str = "/proc/driver/nvidia/capabilities";

/// How the kernel enforces the allow-list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FilterKind {
    Bpf,
    V1,
}

/// Whether device nodes may be made in a cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeviceNodes {
    Denied,
    /// A container runtime makes those of the container. The program in it has no right to make any.
    Made,
}

/// A device, or all devices of a major number, that a task may read and write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DeviceRule {
    pub is_block: bool,
    pub major: u32,
    /// `None` for every minor number.
    pub minor: Option<u32>,
}

/// Why a task has no device filter.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DeviceFilterError {
    #[error("the device filter cannot be loaded into the kernel: {0}")]
    Load(#[source] std::io::Error),
    #[error("the device filter cannot be attached to `{path}`: {source}")]
    Attach { path: PathBuf, source: std::io::Error },
    #[error("the cgroup `{0}` cannot be opened: {1}")]
    Open(PathBuf, #[source] std::io::Error),
    #[error("the device list `{path}` cannot be written: {source}")]
    List { path: PathBuf, source: std::io::Error },
    #[error("the host has neither a v2 hierarchy nor the v1 controller `devices`")]
    NoHierarchy,
}

/// The allow-list of a task. GPUs that are only counted have no device.
pub(crate) fn task_devices(task: &TaskOrder, extra: &[PathBuf]) -> Vec<DeviceRule> {
    task_devices_at(Path::new(DEV_PATH), Path::new(NVIDIA_CAPABILITIES_PATH), task, extra)
}

fn task_devices_at(dev: &Path, capabilities: &Path, task: &TaskOrder, extra: &[PathBuf]) -> Vec<DeviceRule> {
    let character = |(major, minor)| DeviceRule { is_block: false, major, minor };
    let mut rules: Vec<DeviceRule> =
        COMMON_DEVICES.iter().map(|(major, minor)| character((*major, Some(*minor)))).collect();
    rules.extend(PTS_MAJORS.map(|major| character((major, None))));
    rules.extend(extra.iter().flat_map(|path| devices_at(path)));
    if !task.gpus.is_empty() {
        rules.extend(NVIDIA_CONTROL_DEVICES.iter().flat_map(|name| devices_at(&dev.join(name))));
    }
    for gpu in &task.gpus {
        rules.extend(devices_at(&dev.join(format!("nvidia{gpu}"))));
        rules.extend(mig_devices(dev, &capabilities.join(format!("gpu{gpu}/mig"))));
    }
    rules.sort_unstable();
    rules.dedup();
    rules
}

/// The rules for a device, or for all devices in a directory; none for a path that does not exist.
fn devices_at(path: &Path) -> Vec<DeviceRule> {
    let Ok(found) = fs::metadata(path) else { return Vec::new() };
    if found.is_dir() {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        return entries.filter_map(|entry| rule_for(&fs::metadata(entry.path()).ok()?)).collect();
    }
    rule_for(&found).into_iter().collect()
}

fn rule_for(found: &fs::Metadata) -> Option<DeviceRule> {
    let kind = found.file_type();
    let is_device = kind.is_char_device() || kind.is_block_device();
    let (major, minor) = (major(found.rdev()), Some(minor(found.rdev())));
    is_device.then(|| DeviceRule { is_block: kind.is_block_device(), major, minor })
}

/// The devices by which the driver grants the MIG instances of one GPU. Its files `access` name their minor numbers;
/// those that grant the repartitioning of GPUs are not below the directory of a GPU.
fn mig_devices(dev: &Path, directory: &Path) -> Vec<DeviceRule> {
    let mut rules = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            rules.extend(mig_devices(dev, &path));
        } else if path.file_name().is_some_and(|name| name == "access") {
            let text = fs::read_to_string(&path).unwrap_or_default();
            let minor = text.lines().find_map(|line| line.strip_prefix("DeviceFileMinor:"));
            let cap = minor.map(|minor| dev.join(format!("nvidia-caps/nvidia-cap{}", minor.trim())));
            rules.extend(cap.iter().flat_map(|cap| devices_at(cap)));
        }
    }
    rules
}

/// Puts the filter on a cgroup, before a process of the task is in it. The filter goes with the cgroup.
pub(crate) fn attach(
    kind: FilterKind,
    cgroup: &Cgroup,
    rules: &[DeviceRule],
    nodes: DeviceNodes,
) -> Result<(), DeviceFilterError> {
    match kind {
        FilterKind::Bpf => bpf::attach(cgroup.unified.as_deref().ok_or(DeviceFilterError::NoHierarchy)?, rules, nodes),
        FilterKind::V1 => {
            let dir = cgroup.v1.get(&Controller::Devices).ok_or(DeviceFilterError::NoHierarchy)?;
            write_v1_list(dir, &v1_entries(rules, nodes))
        }
    }
}

fn write_v1_list(dir: &Path, entries: &[String]) -> Result<(), DeviceFilterError> {
    let write = |name: &str, value: &str| {
        let path = dir.join(name);
        fs::write(&path, value).map_err(|source| DeviceFilterError::List { path, source })
    };
    write("devices.deny", "a")?;
    entries.iter().try_for_each(|entry| write("devices.allow", entry))
}

/// A container runtime writes a list of its own below, which must be a part of this one.
fn v1_entries(rules: &[DeviceRule], nodes: DeviceNodes) -> Vec<String> {
    let (access, more): (&str, &[&str]) = match nodes {
        DeviceNodes::Denied => ("rw", &[]),
        DeviceNodes::Made => ("rwm", &["c *:* m", "b *:* m", "c 10:200 rwm"]),
    };
    let entry = |rule: &DeviceRule| {
        let kind = if rule.is_block { 'b' } else { 'c' };
        let minor = rule.minor.map_or("*".to_string(), |minor| minor.to_string());
        format!("{kind} {}:{minor} {access}", rule.major)
    };
    rules.iter().map(entry).chain(more.iter().map(|entry| entry.to_string())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fixtures::{self, TempDir};

    #[test]
    fn the_list_has_common_devices_and_those_of_the_leased_gpus_only() {
        let dir = TempDir::new();
        // Links to real devices stand for those of a driver, which this host may not have.
        for (name, target) in [("nvidia0", "null"), ("nvidia1", "zero"), ("nvidiactl", "full")] {
            std::os::unix::fs::symlink(Path::new("/dev").join(target), dir.join(name)).unwrap();
        }
        let mut task = test_fixtures::order("job-1", &[]).tasks[0].clone();
        task.gpus = vec![];
        let without = task_devices_at(&dir, &dir, &task, &[]);
        task.gpus = vec![1];
        let with = task_devices_at(&dir, &dir, &task, &[PathBuf::from("/dev/kmsg"), PathBuf::from("/no/such")]);
        let kmsg = DeviceRule { is_block: false, major: 1, minor: Some(11) };
        assert!(!without.contains(&kmsg) && with.contains(&kmsg));
        assert_eq!(with.len(), without.len() + usize::from(Path::new("/dev/kmsg").exists()));
        assert!(without.contains(&DeviceRule { is_block: false, major: 136, minor: None }));
    }

    #[test]
    fn the_instances_of_a_partitioned_gpu_are_found_by_their_minor_number() {
        let dir = TempDir::new();
        fs::create_dir_all(dir.join("gpu0/mig/gi1/ci0")).unwrap();
        fs::create_dir_all(dir.join("nvidia-caps")).unwrap();
        fs::write(dir.join("gpu0/mig/gi1/access"), "DeviceFileMinor: 12\nDeviceFileMode: 292\n").unwrap();
        std::os::unix::fs::symlink("/dev/null", dir.join("nvidia-caps/nvidia-cap12")).unwrap();
        let found = mig_devices(&dir, &dir.join("gpu0/mig"));
        assert_eq!(found, [DeviceRule { is_block: false, major: 1, minor: Some(3) }]);
        assert_eq!(mig_devices(&dir, &dir.join("gpu1/mig")), []);
    }

    #[test]
    fn rules_are_written_as_the_v1_controller_reads_them() {
        let rule = |is_block, major, minor| DeviceRule { is_block, major, minor };
        let rules = [rule(false, 136, None), rule(true, 7, Some(3))];
        assert_eq!(v1_entries(&rules, DeviceNodes::Denied), ["c 136:* rw", "b 7:3 rw"]);
        let made = ["c 136:* rwm", "b 7:3 rwm", "c *:* m", "b *:* m", "c 10:200 rwm"];
        assert_eq!(v1_entries(&rules, DeviceNodes::Made), made);
    }
}

//! The configuration keys of the launcher of this machine's agent: the account, the limits and the protections of jobs.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use muster_agent::launcher::{CpuLimit, DeviceFilterMode, Protection, TaskLimits};
use muster_agent::{ImagePull, LauncherConfig, SiteProgramsConfig};

use super::merged::MergedConfig;

/// The largest umask.
const UMASK_MAX: u32 = 0o777;

/// A key whose value is not of the expected form, and the form.
pub(super) type WrongValue = (&'static str, String);

pub(super) fn launcher_from(config: &MergedConfig) -> (LauncherConfig, Vec<WrongValue>) {
    let mut wrong = Vec::new();
    let launcher = LauncherConfig {
        job_user: config.text("agent.job_user").unwrap_or_default().to_string(),
        users: users(config, &mut wrong),
        allow_root: config.boolean("agent.allow_root"),
        require: required(config, &mut wrong),
        use_cgroups: config.text("agent.cgroup") != Some("off"),
        device_filter: match config.text("agent.device_filter") {
            Some("bpf") => DeviceFilterMode::Bpf,
            Some("v1") => DeviceFilterMode::V1,
            Some("off") => DeviceFilterMode::Off,
            _ => DeviceFilterMode::Auto,
        },
        devices: config.list("agent.devices").into_iter().map(PathBuf::from).collect(),
        private_tmp: config.boolean("agent.private_tmp"),
        limits: TaskLimits {
            pids_max: config.number("agent.pids_max"),
            open_files_max: config.number("agent.open_files_max"),
            cpu_limit: if config.text("agent.cpu_limit") == Some("quota") { CpuLimit::Quota } else { CpuLimit::Weight },
            umask: umask(config, &mut wrong),
            log_max_mib: Some(config.number("agent.log_max_mib")).filter(|mib| *mib > 0),
            unkillable_after_ms: config.number("agent.unkillable_after"),
        },
        container_runtime: container_runtime(config, &mut wrong),
        image_pull: match config.text("agent.image_pull") {
            Some("always") => ImagePull::Always,
            Some("never") => ImagePull::Never,
            _ => ImagePull::Missing,
        },
        image_cache_max_mib: Some(config.number("agent.image_cache_max_mib")).filter(|mib| *mib > 0),
        image_mounts: config.list("agent.image_mounts").into_iter().map(PathBuf::from).collect(),
        programs: programs(config),
    };
    (launcher, wrong)
}

fn container_runtime(config: &MergedConfig, wrong: &mut Vec<WrongValue>) -> String {
    const KEY: &str = "agent.container_runtime";
    let text = config.text(KEY).unwrap_or_default();
    if !muster_agent::launcher::is_container_runtime(text) {
        wrong.push((KEY, "`auto`, `off`, or the name or path of podman, docker, nerdctl or apptainer".to_string()));
    }
    text.to_string()
}

fn programs(config: &MergedConfig) -> SiteProgramsConfig {
    let path = |key: &str| config.text(key).map(PathBuf::from);
    let duration = |key: &str| Duration::from_millis(config.number(key));
    SiteProgramsConfig {
        prolog: path("agent.prolog"),
        prolog_timeout: duration("agent.prolog_timeout"),
        epilog: path("agent.epilog"),
        epilog_timeout: duration("agent.epilog_timeout"),
        as_job_user: config.text("agent.program_user") == Some("job"),
        health: path("agent.health_program"),
        health_timeout: duration("agent.health_timeout"),
        health_interval: duration("agent.health_interval"),
        health_after_job: config.boolean("agent.health_after_job"),
        reboot: path("agent.reboot_program"),
    }
}

/// An entry is `ann=1001:1001` or `ann=1001:1001:44+109`; the agent checks the numbers.
fn users(config: &MergedConfig, wrong: &mut Vec<WrongValue>) -> BTreeMap<String, String> {
    const KEY: &str = "agent.users";
    let pair =
        |entry: &String| entry.split_once('=').map(|(user, ids)| (user.trim().to_string(), ids.trim().to_string()));
    let pairs: Option<BTreeMap<String, String>> = config.list(KEY).iter().map(pair).collect();
    if pairs.is_none() {
        wrong.push((KEY, "a list of `user=uid:gid` or `user=uid:gid:group+group`".to_string()));
    }
    pairs.unwrap_or_default()
}

fn required(config: &MergedConfig, wrong: &mut Vec<WrongValue>) -> Vec<Protection> {
    const KEY: &str = "agent.require";
    let found: Option<Vec<Protection>> = config.list(KEY).iter().map(|name| Protection::from_name(name)).collect();
    if found.is_none() {
        let names = Protection::ALL.map(|protection| format!("`{protection}`")).join(", ");
        wrong.push((KEY, format!("a list of {names}")));
    }
    found.unwrap_or_default()
}

fn umask(config: &MergedConfig, wrong: &mut Vec<WrongValue>) -> u32 {
    const KEY: &str = "agent.umask";
    let text = config.text(KEY).unwrap_or_default();
    let mask = u32::from_str_radix(text, 8).ok().filter(|mask| *mask <= UMASK_MAX);
    if mask.is_none() {
        wrong.push((KEY, "an octal number such as 027".to_string()));
    }
    mask.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::value::RawValue;
    use crate::config::{RawConfig, ValueSource, merged};

    fn launcher(pairs: &[(&'static str, &str)]) -> (LauncherConfig, Vec<WrongValue>) {
        let mut raw = RawConfig::default();
        for (key, value) in pairs {
            raw.set(key, RawValue::One(value.to_string()), ValueSource::Flag("--set".to_string()));
        }
        launcher_from(&merged::merge(&raw, &mut Vec::new()))
    }

    #[test]
    fn the_defaults_of_the_keys_are_those_of_the_agent() {
        assert_eq!(launcher(&[]), (LauncherConfig::default(), vec![]));
    }

    #[test]
    fn lists_and_masks_are_read() {
        let pairs = [
            ("agent.users", "ann=1:2, bob=3:4:5+6"),
            ("agent.require", "cgroup,device-filter"),
            ("agent.umask", "077"),
        ];
        let (found, wrong) = launcher(&pairs);
        assert_eq!((found.users["bob"].as_str(), found.users.len(), wrong.len()), ("3:4:5+6", 2, 0));
        assert_eq!((found.require, found.limits.umask), (vec![Protection::Cgroup, Protection::DeviceFilter], 0o077));
        for (key, value) in [
            ("agent.users", "ann"),
            ("agent.require", "magic"),
            ("agent.umask", "9"),
            ("agent.umask", "1000"),
            ("agent.container_runtime", "rkt"),
        ] {
            assert_eq!(launcher(&[(key, value)]).1.first().map(|wrong| wrong.0), Some(key), "{value}");
        }
    }
}

//! The flags that podman, docker and nerdctl share, in one order.

use std::ffi::OsString;

use super::{AGENT_LABEL, BindMount, ContainerRun, ContainerRuntime, words};

/// The flags of `run` up to those that only one runtime has. The container gets neither capabilities nor a way to gain any,
/// the network of the host, and what the job may see of the host.
pub(super) fn run_flags(runtime: &ContainerRuntime, run: &ContainerRun<'_>) -> Vec<OsString> {
    let mut flags = words(["run", "--name", &run.name, "--label", &format!("{AGENT_LABEL}={}", run.agent)]);
    flags.extend(words(["--pull", "never", "--network", "host", "--cap-drop", "ALL"]));
    flags.extend(words(["--security-opt", "no-new-privileges"]));
    if let Some(user) = run.user {
        flags.extend(words(["--user", &format!("{}:{}", user.uid, user.gid)]));
        let groups = user.groups.iter().filter(|_| runtime.kind.takes_group_numbers());
        groups.for_each(|group| flags.extend(words(["--group-add", &group.to_string()])));
    }
    match &run.cgroup_parent {
        Some(parent) if runtime.takes_cgroup_parent => flags.extend(["--cgroup-parent".into(), parent.into()]),
        _ => flags.extend(limit_flags(run)),
    }
    let open_files = run.open_files_max;
    flags.extend(words(["--ulimit", "core=0:0", "--ulimit", &format!("nofile={open_files}:{open_files}")]));
    flags.extend(["--env-file".into(), run.env_file.clone().into()]);
    run.mounts.iter().for_each(|mount| flags.extend(["--mount".into(), mount_value(mount)]));
    run.devices.iter().for_each(|device| flags.extend(words(["--device", device])));
    if let Some(directory) = run.directory {
        flags.extend(["--workdir".into(), directory.into()]);
    }
    if let Some(entrypoint) = &run.entrypoint {
        flags.extend(["--entrypoint".into(), entrypoint.into()]);
    }
    flags
}

/// Limits of the container itself, where it is outside of the cgroup of the attempt.
fn limit_flags(run: &ContainerRun<'_>) -> Vec<OsString> {
    let mut flags = words(["--pids-limit", &run.pids_max.to_string()]);
    if let Some(mib) = run.memory_mib {
        flags.extend(words(["--memory", &format!("{mib}m"), "--memory-swap", &format!("{mib}m")]));
    }
    flags
}

/// The paths contain no comma: a mount with one is refused before.
fn mount_value(mount: &BindMount) -> OsString {
    let mut value = OsString::from("type=bind,source=");
    value.push(&mount.source);
    value.push(",target=");
    value.push(&mount.target);
    if mount.read_only {
        value.push(",readonly");
    }
    value
}

/// The image and what follows it. No image begins with `-`: such a job is refused before.
pub(super) fn image_and_args(run: &ContainerRun<'_>) -> Vec<OsString> {
    let mut last = words([run.image]);
    last.extend(run.args.iter().map(OsString::from));
    last
}

/// What podman takes before a colon for another source than a registry.
const OTHER_SOURCES: [&str; 9] =
    ["containers-storage", "dir", "docker-archive", "docker-daemon", "oci", "oci-archive", "ostree", "sif", "tarball"];

/// True for `[HOST[:PORT]/]NAME[:TAG][@DIGEST]`. The runtime checks the rest.
pub(super) fn is_registry_reference(image: &str) -> bool {
    let begins_well = image.starts_with(|letter: char| letter.is_ascii_alphanumeric());
    let has_other_source = image.split_once(':').is_some_and(|(source, _)| OTHER_SOURCES.contains(&source));
    let is_allowed = |letter: char| letter.is_ascii_alphanumeric() || "._-/:@".contains(letter);
    begins_well && !has_other_source && image.chars().all(is_allowed) && !image.contains(":/") && !image.contains("//")
}

/// The status, whether the kernel killed it because of memory, and the first process; 0 if it has none.
pub(super) const STATUS_FORMAT: &str = "{{.State.Status}} {{.State.OOMKilled}} {{.State.Pid}}";

pub(super) fn image_facts_flags(image: &str) -> Vec<OsString> {
    words(["image", "inspect", "--format", "{{.Id}} {{.Size}}", image])
}

pub(super) fn list_flags(agent: &str) -> Vec<OsString> {
    words(["ps", "--all", "--filter", &format!("label={AGENT_LABEL}={agent}"), "--format", "{{.Names}}"])
}

pub(super) fn remove_flags(names: &[String]) -> Vec<OsString> {
    let mut flags = words(["rm", "--force"]);
    flags.extend(names.iter().map(OsString::from));
    flags
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_images_of_registries_are_read_with_the_rights_of_root() {
        for image in ["train", "train:1", "example.org:5000/team/train:1.2", "localhost/a_b", "a@sha256:0f", "UPPER"] {
            assert!(is_registry_reference(image), "{image}");
        }
        for image in [
            "",
            "--privileged",
            "dir:/root",
            "oci:root",
            "docker-archive:x.tar",
            "docker://x",
            "/etc",
            "a b",
            "a,b",
            "sif:x",
        ] {
            assert!(!is_registry_reference(image), "{image}");
        }
    }
}

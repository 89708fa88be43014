//! Finds the container runtime of this node: the program that the settings name, or the first that works.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{ContainerRuntime, RuntimeKind};

const AUTO: &str = "auto";
const OFF: &str = "off";
/// A daemon that is down lets its client wait.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);
/// Where distributions put the init program of podman.
const PODMAN_INITS: [&str; 4] = [
    "/usr/libexec/podman/catatonit",
    "/usr/lib/podman/catatonit",
    "/usr/bin/catatonit",
    "/usr/local/libexec/podman/catatonit",
];

/// What of this node decides which runtimes work.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HostFacts {
    pub is_root: bool,
    /// Attempts have cgroups.
    pub has_cgroups: bool,
    /// The host has the v2 hierarchy only.
    pub is_pure_v2: bool,
}

/// The runtime for a value of `agent.container_runtime`; the error says why there is none.
pub(crate) fn find(wanted: &str, host: HostFacts) -> Result<ContainerRuntime, String> {
    match wanted {
        OFF => Err("switched off by `agent.container_runtime`".to_string()),
        AUTO | "" => find_any(host),
        name => {
            let kind = kind_of(name).ok_or_else(|| unknown(name))?;
            let program = program_at(name).ok_or_else(|| format!("there is no program `{name}`"))?;
            probe(kind, program, host)
        }
    }
}

/// True for a value that can name a runtime, whether it is installed or not.
pub(crate) fn is_known(wanted: &str) -> bool {
    matches!(wanted, AUTO | OFF | "") || kind_of(wanted).is_some()
}

fn find_any(host: HostFacts) -> Result<ContainerRuntime, String> {
    let mut problems = Vec::new();
    for kind in RuntimeKind::ALL {
        let Some(program) = program_at(kind.name()) else { continue };
        match probe(kind, program, host) {
            Ok(runtime) => return Ok(runtime),
            Err(problem) => problems.push(problem),
        }
    }
    let none = || format!("none of {} is installed", RuntimeKind::ALL.map(RuntimeKind::name).join(", "));
    Err(if problems.is_empty() { none() } else { problems.join("; ") })
}

/// The kind of a program, by the name of its file.
fn kind_of(name: &str) -> Option<RuntimeKind> {
    let file_name = Path::new(name).file_name()?.to_str()?;
    RuntimeKind::ALL.into_iter().find(|kind| kind.name() == file_name)
}

fn unknown(name: &str) -> String {
    let known = RuntimeKind::ALL.map(RuntimeKind::name).join(", ");
    format!("`agent.container_runtime: {name}` is neither `auto`, `off`, nor the name or path of one of {known}")
}

/// A path as it is, a name in the directories of `PATH`.
fn program_at(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(|path| path.is_file());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|path| path.is_file())
}

fn probe(kind: RuntimeKind, program: PathBuf, host: HostFacts) -> Result<ContainerRuntime, String> {
    let has_rights = host.is_root && host.has_cgroups;
    if !has_rights && !kind.runs_as_the_job() {
        return Err(format!("{} needs an agent with the rights of root and with cgroups", kind.name()));
    }
    let ask = |arguments: &[&str]| {
        let answer = ContainerRuntime::ask(&program, arguments, PROBE_TIMEOUT);
        answer.map_err(|error| format!("{} does not work: {error}", kind.name()))
    };
    let found = |oci_runtime, takes_cgroup_parent, has_init| ContainerRuntime {
        kind,
        program: program.clone(),
        oci_runtime,
        takes_cgroup_parent,
        has_init,
    };
    Ok(match kind {
        RuntimeKind::Podman => {
            let default = ask(&["info", "--format", "{{.Host.OCIRuntime.Name}}"])?;
            let has_init = PODMAN_INITS.iter().any(|path| Path::new(path).is_file());
            found(podman_oci_runtime(&default, host, program_at("runc").is_some())?, true, has_init)
        }
        RuntimeKind::Docker => {
            let driver = ask(&["info", "--format", "{{.CgroupDriver}}"])?;
            found(None, driver == "cgroupfs", true)
        }
        RuntimeKind::Nerdctl => {
            ask(&["info", "--format", "{{.CgroupDriver}}"])?;
            found(None, true, program_at("tini").is_some())
        }
        RuntimeKind::Apptainer => {
            ask(&["--version"])?;
            found(None, false, true)
        }
    })
}

/// crun refuses a host that has cgroup v1 controllers beside a v2 hierarchy.
fn podman_oci_runtime(default: &str, host: HostFacts, has_runc: bool) -> Result<Option<String>, String> {
    match host.is_pure_v2 || default == "runc" {
        true => Ok(None),
        false if has_runc => Ok(Some("runc".to_string())),
        false => Err(format!("podman uses `{default}`, which needs a host with cgroup v2 only; install runc")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: HostFacts = HostFacts { is_root: true, has_cgroups: true, is_pure_v2: false };

    #[test]
    fn podman_uses_runc_where_crun_does_not_work() {
        assert_eq!(podman_oci_runtime("crun", HostFacts { is_pure_v2: true, ..HOST }, true), Ok(None));
        assert_eq!(podman_oci_runtime("crun", HOST, true), Ok(Some("runc".to_string())));
        assert_eq!(podman_oci_runtime("runc", HOST, true), Ok(None));
        assert!(podman_oci_runtime("crun", HOST, false).unwrap_err().contains("install runc"));
    }

    #[test]
    fn a_runtime_that_is_off_unknown_missing_or_without_rights_is_none_and_says_why() {
        for (wanted, host, why) in [
            ("off", HOST, "switched off"),
            ("rkt", HOST, "is neither `auto`, `off`, nor the name or path of one of podman, docker"),
            ("/no/such/podman", HOST, "there is no program `/no/such/podman`"),
        ] {
            assert!(find(wanted, host).unwrap_err().contains(why), "{wanted}");
        }
        for host in [HostFacts { is_root: false, ..HOST }, HostFacts { has_cgroups: false, ..HOST }] {
            let error = probe(RuntimeKind::Podman, PathBuf::from("/bin/true"), host).unwrap_err();
            assert_eq!(error, "podman needs an agent with the rights of root and with cgroups");
        }
    }

    #[test]
    fn a_program_without_its_daemon_is_no_runtime() {
        let error = probe(RuntimeKind::Docker, PathBuf::from("/bin/false"), HOST).unwrap_err();
        assert_eq!(error, "docker does not work: no reason was given");
    }
}

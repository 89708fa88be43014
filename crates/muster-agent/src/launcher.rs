//! The launcher: the settings of this node for running other people's programs, and which protections the kernel and the
//! rights of the agent allow. A protection that is missing is logged, shown as a label of the node, and can be required.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use muster_protocol::agent::AttemptOrder;

use crate::attempt_key::AttemptKey;
pub use crate::cgroup::CpuLimit;
use crate::cgroup::{self, Cgroup, CgroupBase, CgroupLimits};
use crate::container_runtime::{self, ContainerRuntime, ContainerSetup, HostFacts, ImagePull};
use crate::device_filter::{self, DeviceNodes, DeviceRule, FilterKind};
use crate::error::AgentError;
pub use crate::isolation::TaskLimits;
use crate::isolation::{Isolation, SecretsPlace};
use crate::job_user::JobUsers;
use crate::private_mounts;
use crate::proc;
use crate::secret_files;
use crate::site_program::{self, AttemptPrograms, SiteProgram};

/// The prefix of the labels that say how a node isolates jobs.
const LABEL_PREFIX: &str = "muster.io/";
/// The label of a node that runs images; jobs with an image are placed on nodes that have it.
const CONTAINER_RUNTIME_LABEL: &str = "container-runtime";
/// The label of a node that delivers secrets; jobs with secrets are placed on nodes that have it.
const SECRETS_LABEL: &str = "secrets";
const SECRETS_PRIVATE: &str = "private";
/// Other jobs of the same account can read them.
const SECRETS_SHARED: &str = "shared";
const NONE: &str = "none";

/// A protection that `agent.require` can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protection {
    Cgroup,
    DeviceFilter,
    JobUser,
    PrivateTmp,
}

impl Protection {
    pub const ALL: [Protection; 4] =
        [Protection::Cgroup, Protection::DeviceFilter, Protection::JobUser, Protection::PrivateTmp];

    /// As in settings and labels.
    pub fn name(self) -> &'static str {
        match self {
            Protection::Cgroup => "cgroup",
            Protection::DeviceFilter => "device-filter",
            Protection::JobUser => "job-user",
            Protection::PrivateTmp => "private-tmp",
        }
    }

    /// The protection with this name.
    pub fn from_name(name: &str) -> Option<Protection> {
        Protection::ALL.into_iter().find(|protection| protection.name() == name)
    }

    /// What a job can do without it.
    fn consequence(self) -> &'static str {
        match self {
            Protection::Cgroup => "a job can use more memory, cores and processes than it asked for",
            Protection::DeviceFilter => "a job can open devices that were not given to it",
            Protection::JobUser => "all jobs run as the user of the agent and can read and kill each other",
            Protection::PrivateTmp => {
                "all jobs share /tmp and /dev/shm, and jobs of one account can read the secrets of each other"
            }
        }
    }
}

impl fmt::Display for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Which kind of device filter is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeviceFilterMode {
    /// BPF, then the v1 controller.
    #[default]
    Auto,
    Bpf,
    V1,
    Off,
}

/// The settings of the launcher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LauncherConfig {
    /// The account of all jobs, if the agent runs as root and there is no map.
    pub job_user: String,
    /// `uid:gid` or `uid:gid:group+group` by user.
    pub users: BTreeMap<String, String>,
    /// Jobs may run as root.
    pub allow_root: bool,
    /// The agent does not start without these.
    pub require: Vec<Protection>,
    pub use_cgroups: bool,
    pub device_filter: DeviceFilterMode,
    /// Devices, or directories of devices, that every job may open.
    pub devices: Vec<PathBuf>,
    pub private_tmp: bool,
    pub limits: TaskLimits,
    /// `auto`, `off`, or the name or path of a container runtime.
    pub container_runtime: String,
    pub image_pull: ImagePull,
    /// Of the images that the agent has pulled; `None` for no limit.
    pub image_cache_max_mib: Option<u64>,
    /// Jobs with an image may mount what is in these directories of this machine.
    pub image_mounts: Vec<PathBuf>,
    pub programs: SiteProgramsConfig,
}

/// The programs of the site that run around attempts, and to check the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteProgramsConfig {
    /// Runs before the tasks of an attempt.
    pub prolog: Option<PathBuf>,
    pub prolog_timeout: Duration,
    /// Runs after the last process of an attempt.
    pub epilog: Option<PathBuf>,
    pub epilog_timeout: Duration,
    /// Prolog and epilog run as the account of the job, not as that of the agent.
    pub as_job_user: bool,
    /// Says whether the node is healthy.
    pub health: Option<PathBuf>,
    pub health_timeout: Duration,
    pub health_interval: Duration,
    /// The health program also runs after each attempt, before its resources are free again.
    pub health_after_job: bool,
    /// Reboots the machine; `None` for `systemctl reboot`.
    pub reboot: Option<PathBuf>,
}

impl Default for SiteProgramsConfig {
    fn default() -> SiteProgramsConfig {
        SiteProgramsConfig {
            prolog: None,
            prolog_timeout: Duration::from_secs(300),
            epilog: None,
            epilog_timeout: Duration::from_secs(300),
            as_job_user: false,
            health: None,
            health_timeout: Duration::from_secs(60),
            health_interval: Duration::from_secs(300),
            health_after_job: false,
            reboot: None,
        }
    }
}

impl SiteProgramsConfig {
    /// An error names the setting of a program that may not run.
    fn check(&self) -> Result<(), AgentError> {
        let settings = [
            ("agent.prolog", &self.prolog),
            ("agent.epilog", &self.epilog),
            ("agent.health_program", &self.health),
            ("agent.reboot_program", &self.reboot),
        ];
        for (setting, path) in settings {
            let checked = path.as_ref().map_or(Ok(()), |path| site_program::check(path));
            checked.map_err(|why| AgentError::SiteProgram { setting, why })?;
        }
        Ok(())
    }

    pub(crate) fn health_program(&self) -> Option<SiteProgram> {
        program(&self.health, self.health_timeout)
    }
}

fn program(path: &Option<PathBuf>, timeout: Duration) -> Option<SiteProgram> {
    let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
    path.clone().map(|path| SiteProgram { path, timeout_ms })
}

impl Default for LauncherConfig {
    fn default() -> LauncherConfig {
        LauncherConfig {
            job_user: "muster-job".to_string(),
            users: BTreeMap::new(),
            allow_root: false,
            require: Vec::new(),
            use_cgroups: true,
            device_filter: DeviceFilterMode::Auto,
            devices: Vec::new(),
            private_tmp: true,
            limits: TaskLimits::default(),
            container_runtime: "auto".to_string(),
            image_pull: ImagePull::default(),
            image_cache_max_mib: None,
            image_mounts: vec![PathBuf::from("/")],
            programs: SiteProgramsConfig::default(),
        }
    }
}

/// What is in force on this node; an error says why a protection is not.
#[derive(Debug, Clone)]
struct Protections {
    cgroup: Result<CgroupBase, String>,
    device_filter: Result<FilterKind, String>,
    job_users: JobUsers,
    private_tmp: Result<(), String>,
}

impl Protections {
    fn find(config: &LauncherConfig, agent_id: &str) -> Result<Protections, AgentError> {
        let is_root = rustix::process::geteuid().is_root();
        let job_users = JobUsers::resolve(is_root, &config.job_user, &config.users, config.allow_root);
        let cgroup = match config.use_cgroups {
            true => CgroupBase::open(agent_id),
            false => Err("switched off by `agent.cgroup`".to_string()),
        };
        let device_filter = match &cgroup {
            Ok(base) => probe_device_filter(base, config.device_filter),
            Err(_) => Err("it needs a cgroup".to_string()),
        };
        Ok(Protections {
            job_users: job_users.map_err(AgentError::JobUser)?,
            cgroup,
            device_filter,
            private_tmp: probe_private_tmp(is_root, config.private_tmp),
        })
    }

    /// Why a protection is not in force.
    fn missing(&self, protection: Protection) -> Option<String> {
        match protection {
            Protection::Cgroup => self.cgroup.as_ref().err().cloned(),
            Protection::DeviceFilter => self.device_filter.as_ref().err().cloned(),
            Protection::PrivateTmp => self.private_tmp.as_ref().err().cloned(),
            Protection::JobUser if self.job_users == JobUsers::Shared => {
                Some("the agent does not run as root".to_string())
            }
            Protection::JobUser => None,
        }
    }

    fn label(&self, protection: Protection) -> String {
        match protection {
            Protection::Cgroup => self.cgroup.as_ref().map_or(NONE, |base| if base.is_pure_v2 { "v2" } else { "v1" }),
            Protection::DeviceFilter => self.device_filter.as_ref().map_or(NONE, |kind| match kind {
                FilterKind::Bpf => "bpf",
                FilterKind::V1 => "v1",
            }),
            Protection::PrivateTmp => self.private_tmp.as_ref().map_or(NONE, |()| "yes"),
            Protection::JobUser => return self.job_users.label(),
        }
        .to_string()
    }
}

/// Attaches a filter to a cgroup without processes: only the kernel knows whether it takes one.
fn probe_device_filter(base: &CgroupBase, mode: DeviceFilterMode) -> Result<FilterKind, String> {
    let kinds: &[FilterKind] = match mode {
        DeviceFilterMode::Auto => &[FilterKind::Bpf, FilterKind::V1],
        DeviceFilterMode::Bpf => &[FilterKind::Bpf],
        DeviceFilterMode::V1 => &[FilterKind::V1],
        DeviceFilterMode::Off => return Err("switched off by `agent.device_filter`".to_string()),
    };
    let probe = base.probe();
    let null = [DeviceRule { is_block: false, major: 1, minor: Some(3) }];
    let attach = |kind: FilterKind| {
        probe.create(&CgroupLimits::default()).map_err(|error| error.to_string())?;
        device_filter::attach(kind, &probe, &null, DeviceNodes::Denied)
            .map(|()| kind)
            .map_err(|error| error.to_string())
    };
    let mut found = Err(String::new());
    for kind in kinds {
        found = attach(*kind);
        probe.remove();
        if found.is_ok() {
            break;
        }
    }
    found
}

/// Tries a mount namespace on a thread of its own, which ends with it.
fn probe_private_tmp(is_root: bool, wanted: bool) -> Result<(), String> {
    if !wanted {
        return Err("switched off by `agent.private_tmp`".to_string());
    }
    if !is_root {
        return Err("the agent does not run as root".to_string());
    }
    let tried = std::thread::spawn(private_mounts::enter_new_namespace).join();
    tried.map_err(|_| "the probe ended early".to_string())?.map_err(|error| error.to_string())
}

/// One protection on this node, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProtectionFinding {
    pub protection: Protection,
    /// The value of the node's label, `none` if it is not in force.
    pub label: String,
    /// Why it is not in force.
    pub missing: Option<String>,
    /// What a job can do without it.
    pub consequence: &'static str,
    /// The agent does not start without it.
    pub is_required: bool,
}

/// The protections of this machine. They are tried in a cgroup of its own, so that an agent that runs is not disturbed.
pub fn find_protections(config: &LauncherConfig) -> Result<Vec<ProtectionFinding>, AgentError> {
    let protections = Protections::find(config, &format!("doctor-{}", std::process::id()))?;
    if let Ok(base) = &protections.cgroup {
        base.remove();
    }
    let finding = |protection: Protection| ProtectionFinding {
        protection,
        label: protections.label(protection),
        missing: protections.missing(protection),
        consequence: protection.consequence(),
        is_required: config.require.contains(&protection),
    };
    Ok(Protection::ALL.map(finding).into())
}

/// The container runtime of this machine, or why there is none.
pub fn find_container_runtime(config: &LauncherConfig) -> Result<PathBuf, String> {
    let base = match config.use_cgroups {
        true => CgroupBase::open(&format!("doctor-{}", std::process::id())),
        false => Err(String::new()),
    };
    let host = HostFacts {
        is_root: rustix::process::geteuid().is_root(),
        has_cgroups: base.is_ok(),
        is_pure_v2: base.as_ref().is_ok_and(|base| base.is_pure_v2),
    };
    base.iter().for_each(CgroupBase::remove);
    container_runtime::find(&config.container_runtime, host).map(|runtime| runtime.program)
}

/// Decides how the attempts of this node are isolated.
#[derive(Debug, Clone)]
pub(crate) struct Launcher {
    config: LauncherConfig,
    protections: Protections,
    /// What the containers of this agent are marked with.
    agent_id: String,
    /// Why there is no container runtime.
    container_runtime: Result<ContainerRuntime, String>,
    /// For the secrets of jobs without a mount namespace of their own.
    shared_tmpfs: Result<PathBuf, String>,
}

impl Launcher {
    /// Finds the protections of this node, logs those that are missing, and fails if a required one is missing.
    pub fn open(config: LauncherConfig, node: &str, data_dir: &Path) -> Result<Launcher, AgentError> {
        config.programs.check()?;
        let agent_id = agent_id(node, data_dir);
        let protections = Protections::find(&config, &agent_id)?;
        for protection in Protection::ALL {
            let Some(why) = protections.missing(protection) else { continue };
            if config.require.contains(&protection) {
                return Err(AgentError::MissingProtection { protection: protection.name(), why });
            }
            tracing::warn!("this node has no protection `{protection}`: {}. Reason: {why}", protection.consequence());
        }
        if let JobUsers::One(account) = &protections.job_users
            && account.name != config.job_user
        {
            tracing::warn!("there is no account `{}`: jobs run as `{}`", config.job_user, account.name);
        }
        if config.allow_root {
            tracing::warn!("`agent.allow_root` is set: a job with the rights of root may do anything on this node");
        }
        let host = HostFacts {
            is_root: rustix::process::geteuid().is_root(),
            has_cgroups: protections.cgroup.is_ok(),
            is_pure_v2: protections.cgroup.as_ref().is_ok_and(|base| base.is_pure_v2),
        };
        let container_runtime = container_runtime::find(&config.container_runtime, host);
        match &container_runtime {
            Ok(runtime) => tracing::info!("images are run by `{}`", runtime.program.display()),
            Err(why) => tracing::info!("this node runs no images: {why}"),
        }
        let launcher = Launcher {
            config,
            protections,
            agent_id,
            container_runtime,
            shared_tmpfs: secret_files::find_shared_tmpfs(),
        };
        launcher.log_delivery_of_secrets();
        Ok(launcher)
    }

    fn log_delivery_of_secrets(&self) {
        match (&self.protections.private_tmp, &self.shared_tmpfs) {
            (Ok(()), _) => {}
            (Err(why), Ok(dir)) => tracing::warn!(
                "the secrets of jobs are in directories of `{}`: another job of the same account can read them. Reason: {why}",
                dir.display()
            ),
            (Err(_), Err(why)) => tracing::warn!("this node takes no jobs with secrets: {why}"),
        }
    }

    /// Who can read the secrets of a job besides the job; `None` if this node cannot deliver them.
    fn secrets_label(&self) -> Option<&'static str> {
        match (&self.protections.private_tmp, &self.shared_tmpfs) {
            (Ok(()), _) => Some(SECRETS_PRIVATE),
            (Err(_), Ok(_)) => Some(SECRETS_SHARED),
            (Err(_), Err(_)) => None,
        }
    }

    /// The daemon of a container runtime mounts a directory of the node, because it does not see the namespace of an attempt.
    fn secrets_place(&self, order: &AttemptOrder, has_daemon: bool) -> Result<Option<SecretsPlace>, String> {
        if order.run.secrets.is_empty() {
            return Ok(None);
        }
        if self.protections.private_tmp.is_ok() && !has_daemon {
            return Ok(Some(SecretsPlace::Private));
        }
        let tmpfs = self.shared_tmpfs.as_ref().map_err(|why| format!("the secrets cannot be delivered: {why}"))?;
        let random = proc::random_uuid().map_err(|error| error.to_string())?;
        Ok(Some(SecretsPlace::Shared(secret_files::shared_dir(tmpfs, &random))))
    }

    /// The labels of the node.
    pub fn labels(&self) -> BTreeMap<String, String> {
        let label =
            |protection: Protection| (format!("{LABEL_PREFIX}{protection}"), self.protections.label(protection));
        let runtime = self
            .container_runtime
            .as_ref()
            .ok()
            .map(|runtime| (format!("{LABEL_PREFIX}{CONTAINER_RUNTIME_LABEL}"), runtime.kind.name().to_string()));
        let secrets = self.secrets_label().map(|label| (format!("{LABEL_PREFIX}{SECRETS_LABEL}"), label.to_string()));
        Protection::ALL.into_iter().map(label).chain(runtime).chain(secrets).collect()
    }

    /// True if jobs run under another account and without mounts of their own, so that their paths must be open to them.
    pub fn jobs_use_host_paths(&self) -> bool {
        self.protections.job_users != JobUsers::Shared && self.protections.private_tmp.is_err()
    }

    /// The isolation of an attempt that is launched now.
    pub fn isolation(&self, order: &AttemptOrder) -> Isolation {
        let user = self.protections.job_users.of(&order.user);
        let container = order.run.image.as_ref().and_then(|_| self.container_setup());
        let takes_one_path = container.as_ref().is_some_and(|setup| setup.runtime.takes_cgroup_parent);
        let cgroup = self.protections.cgroup.as_ref().ok().map(|base| base.attempt(&order.job, order.attempt));
        let at_one_path = cgroup.as_ref().filter(|_| takes_one_path).and_then(Cgroup::at_one_path);
        let has_daemon = container.as_ref().is_some_and(|setup| setup.runtime.kind.has_daemon());
        let secrets = self.secrets_place(order, has_daemon);
        Isolation {
            refusal: user.as_ref().err().or(secrets.as_ref().err()).cloned(),
            cgroup: at_one_path.or(cgroup),
            device_filter: self.protections.device_filter.as_ref().ok().copied(),
            extra_devices: self.config.devices.clone(),
            private_mounts: self.protections.private_tmp.is_ok(),
            user: user.ok().flatten().cloned(),
            limits: self.config.limits.clone(),
            container,
            secrets: secrets.ok().flatten(),
        }
    }

    fn container_setup(&self) -> Option<ContainerSetup> {
        Some(ContainerSetup {
            runtime: self.container_runtime.as_ref().ok()?.clone(),
            agent: self.agent_id.clone(),
            pull: self.config.image_pull,
            allowed_mounts: self.config.image_mounts.clone(),
        })
    }

    /// The runtime whose images are limited, and the limit in MiB.
    pub fn image_cache(&self) -> Option<(ContainerRuntime, u64)> {
        self.container_runtime.as_ref().ok().cloned().zip(self.config.image_cache_max_mib)
    }

    /// Removes the containers of this agent that belong to none of these attempts, which may still need theirs.
    pub fn remove_leftover_containers(&self, uncleaned: &[AttemptKey]) {
        let Ok(runtime) = &self.container_runtime else { return };
        let prefixes: Vec<String> = uncleaned
            .iter()
            .map(|key| container_runtime::attempt_prefix(&self.agent_id, key.job(), key.attempt()))
            .collect();
        let removed = runtime.containers_of(&self.agent_id).and_then(|mut names| {
            names.retain(|name| !prefixes.iter().any(|prefix| name.starts_with(prefix)));
            if names.is_empty() { Ok(()) } else { runtime.remove(&names) }
        });
        if let Err(error) = removed {
            tracing::warn!("containers of former attempts are not removed: {error}");
        }
    }

    /// The site programs of an attempt that is launched now.
    pub fn programs(&self, order: &AttemptOrder) -> AttemptPrograms {
        let config = &self.config.programs;
        let user = self.protections.job_users.of(&order.user).ok().flatten();
        AttemptPrograms {
            prolog: program(&config.prolog, config.prolog_timeout),
            epilog: program(&config.epilog, config.epilog_timeout),
            health: config.health_program().filter(|_| config.health_after_job),
            user: user.filter(|_| config.as_job_user).cloned(),
        }
    }

    /// How long processes may survive SIGKILL before the node is drained.
    pub fn unkillable_after_ms(&self) -> i64 {
        self.config.limits.unkillable_after_ms
    }

    /// Removes the cgroup of this agent, if no attempt is in it.
    pub fn close(&self) {
        if let Ok(base) = &self.protections.cgroup {
            base.remove();
        }
    }

    /// Removes the empty cgroups that crashed shims left. Attempts that are not cleaned up may still need theirs.
    pub fn remove_leftovers(&self, uncleaned: &[AttemptKey]) {
        if let Ok(base) = &self.protections.cgroup {
            let names: Vec<String> =
                uncleaned.iter().map(|key| cgroup::attempt_name(key.job(), key.attempt())).collect();
            base.remove_leftovers(|name| names.iter().any(|known| known == name));
        }
    }
}

/// True for a value of `agent.container_runtime` that can name a runtime.
pub fn is_container_runtime(text: &str) -> bool {
    container_runtime::is_known(text)
}

/// Several agents of one machine, and of one node name, have a data directory each (FNV-1a of its path).
fn agent_id(node: &str, data_dir: &Path) -> String {
    let bytes = data_dir.as_os_str().as_encoded_bytes();
    let hash = bytes.iter().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    format!("{node}-{hash:08x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fixtures;

    fn launcher(config: LauncherConfig) -> Result<Launcher, AgentError> {
        Launcher::open(config, "n1", Path::new("/data"))
    }

    fn unprotected() -> LauncherConfig {
        LauncherConfig { use_cgroups: false, private_tmp: false, ..LauncherConfig::default() }
    }

    #[test]
    fn missing_protections_are_labels_of_the_node() {
        let labels = launcher(unprotected()).unwrap().labels();
        let label = |name: &str| labels[&format!("muster.io/{name}")].as_str();
        assert_eq!([label("cgroup"), label("device-filter"), label("private-tmp")], ["none", "none", "none"]);
        let is_root = rustix::process::geteuid().is_root();
        assert_eq!(label("job-user") == "shared-user", !is_root, "{labels:?}");
    }

    #[test]
    fn a_required_protection_that_is_missing_refuses_the_start() {
        for (protection, name) in [(Protection::Cgroup, "cgroup"), (Protection::DeviceFilter, "device-filter")] {
            let config = LauncherConfig { require: vec![protection], ..unprotected() };
            let error = launcher(config).unwrap_err().to_string();
            assert!(error.contains(&format!("`{name}`")) && error.contains("agent.require"), "{error}");
            assert_eq!(Protection::from_name(name), Some(protection));
        }
    }

    #[test]
    fn a_user_without_account_is_refused_at_the_launch() {
        if !rustix::process::geteuid().is_root() {
            return eprintln!("skipped: only an agent with root's rights has a map of users");
        }
        let users = [("ann".to_string(), "700:700".to_string())].into();
        let launcher = launcher(LauncherConfig { users, ..unprotected() }).unwrap();
        let order = |user: &str| AttemptOrder { user: user.to_string(), ..test_fixtures::order("job-1", &[]) };
        assert_eq!(launcher.isolation(&order("ann")).user.unwrap().uid, 700);
        assert!(launcher.isolation(&order("eve")).refusal.unwrap().contains("no account"));
    }

    #[test]
    fn a_site_program_that_may_not_run_refuses_the_start() {
        let programs = SiteProgramsConfig { epilog: Some(PathBuf::from("/missing")), ..SiteProgramsConfig::default() };
        let error = launcher(LauncherConfig { programs, ..unprotected() }).unwrap_err().to_string();
        assert!(error.contains("`agent.epilog`") && error.contains("`/missing`"), "{error}");
    }

    #[test]
    fn agents_of_one_machine_have_different_cgroups() {
        assert_ne!(agent_id("n1", Path::new("/a")), agent_id("n1", Path::new("/b")));
        assert_eq!(agent_id("n1", Path::new("/a")), agent_id("n1", Path::new("/a")));
    }
}

//! `muster doctor --node`: checks of this machine and of its way to the servers, with what to do about each problem.

use std::fs;
use std::path::{Path, PathBuf};

use muster_agent::launcher::{self, Protection, ProtectionFinding};
use muster_link::Identity;
use muster_link::check::{self, LinkFailure, LinkStep};
use muster_server::config::{Config, RawConfig};
use muster_wire::v1::CheckResponse;

use super::{Finding, SKEW_FAIL_MS, SKEW_WARN_MS, fail_finding, ok_finding, warn_finding};
use crate::commands::config;
use crate::error::CliError;
use crate::units;

const UNIT_PATH: &str = "/etc/systemd/system/muster-agent.service";
const INSTALLED_DATA_DIR: &str = "/var/lib/muster-agent";
const INSTALLED_CONFIG: &str = "/etc/muster/agent.yaml";
/// Less free space makes jobs fail soon.
const FREE_MIB_WARN: u64 = 5 * 1_024;
const FREE_MIB_FAIL: u64 = 256;
const FREE_INODES_WARN: u64 = 50_000;
const FREE_INODES_FAIL: u64 = 1_000;
/// Attempts, logs and site programs need some of each.
const WATCHES_MIN: u64 = 8_192;
const PIDS_MIN: u64 = 32_768;
const FILES_MIN: u64 = 65_536;
/// An agent renews its certificate long before.
const EXPIRY_WARN_MS: i64 = 6 * 3_600_000;
const SILENCE_WARN_MS: i64 = 10_000;

/// The node, by the flags of `muster agent`.
#[derive(Debug, clap::Args)]
pub struct NodeArgs {
    /// Check this machine as a node: cgroups, devices, disk, limits, and the link to the servers
    #[arg(long, conflicts_with = "deep")]
    pub node: bool,
    /// With `--node`: configuration file of the agent [default: /etc/muster/agent.yaml if it exists]
    #[arg(long, value_name = "FILE", requires = "node")]
    pub agent_config: Option<PathBuf>,
    /// With `--node`: data folder of the agent [default: /var/lib/muster-agent if it exists, else ./muster-agent]
    #[arg(long, value_name = "DIR", requires = "node")]
    pub agent_data_dir: Option<PathBuf>,
}

pub fn check_node(args: &NodeArgs) -> Result<Vec<Finding>, CliError> {
    let installed = |path: &str| Some(PathBuf::from(path)).filter(|path| path.exists());
    let file = args.agent_config.clone().or_else(|| installed(INSTALLED_CONFIG));
    let config = config::load_config(RawConfig::default(), file.as_deref())?;
    let data_dir = args.agent_data_dir.clone().or_else(|| installed(INSTALLED_DATA_DIR));
    let data_dir = data_dir.unwrap_or_else(|| PathBuf::from("muster-agent"));
    let mut findings = vec![rights_check(), cgroup_check()];
    findings.extend(delegation_check());
    findings.extend(protection_checks(&config));
    findings.push(runtime_check(&config));
    findings.extend(disk_checks(&data_dir));
    findings.extend(limit_checks());
    findings.extend(link_checks(&data_dir));
    Ok(findings)
}

fn rights_check() -> Finding {
    match rustix::process::geteuid().is_root() {
        true => ok_finding("rights", "root".to_string()),
        false => warn_finding(
            "rights",
            "this is not root: all jobs would run as one user, without cgroups and private mounts".to_string(),
            "run the agent, and this check, as root",
        ),
    }
}

fn cgroup_check() -> Finding {
    let v2 = fs::read_to_string("/sys/fs/cgroup/cgroup.controllers");
    if let Ok(controllers) = v2 {
        let wanted = ["cpu", "cpuset", "memory", "pids"];
        let has = |name: &&str| controllers.split_whitespace().any(|known| known == *name);
        let missing: Vec<&str> = wanted.into_iter().filter(|name| !has(name)).collect();
        return match missing.is_empty() {
            true => ok_finding("cgroups", format!("v2 with {}", controllers.trim())),
            false => warn_finding(
                "cgroups",
                format!("v2 without the controllers {}", missing.join(", ")),
                "enable them at boot: remove `cgroup_disable=` from the command line of the kernel",
            ),
        };
    }
    match Path::new("/sys/fs/cgroup/memory").exists() {
        true => ok_finding("cgroups", "v1 controllers; v2 is preferred".to_string()),
        false => fail_finding(
            "cgroups",
            "no cgroup file system is mounted on /sys/fs/cgroup".to_string(),
            "mount it: `mount -t cgroup2 none /sys/fs/cgroup`",
        ),
    }
}

/// Whether systemd leaves the cgroup of the agent to the agent. `None` without an installed unit.
fn delegation_check() -> Option<Finding> {
    let unit = fs::read_to_string(UNIT_PATH).ok()?;
    let has = |setting: &str| unit.lines().any(|line| line.trim() == setting);
    Some(match (has("Delegate=yes"), has("KillMode=process")) {
        (true, true) => ok_finding("unit", "Delegate=yes, KillMode=process".to_string()),
        (false, _) => fail_finding(
            "unit",
            "the unit has no `Delegate=yes`: systemd changes the cgroups of jobs".to_string(),
            "`muster agent install --force` writes a correct unit",
        ),
        (_, false) => fail_finding(
            "unit",
            "the unit has no `KillMode=process`: a restart of the agent kills the jobs".to_string(),
            "`muster agent install --force` writes a correct unit",
        ),
    })
}

fn protection_checks(config: &Config) -> Vec<Finding> {
    match launcher::find_protections(&config.agent.launcher) {
        Ok(found) => found.iter().map(protection_finding).collect(),
        Err(error) => vec![fail_finding("protections", error.to_string(), "correct the configuration of the agent")],
    }
}

fn protection_finding(finding: &ProtectionFinding) -> Finding {
    let (check, to_do) = match finding.protection {
        Protection::Cgroup => ("job cgroups", "run the agent as root, in a unit with `Delegate=yes`"),
        Protection::DeviceFilter => {
            ("device filter", "use a kernel with CONFIG_CGROUP_BPF, or mount the v1 devices controller")
        }
        Protection::JobUser => ("job user", "`muster agent install` creates the account; set `agent.job_user`"),
        Protection::PrivateTmp => ("mount namespaces", "run the agent as root, on a kernel with mount namespaces"),
    };
    match &finding.missing {
        None if finding.protection == Protection::JobUser && finding.label == "nobody" => {
            warn_finding(check, "jobs run as `nobody`, which other services use too".to_string(), to_do)
        }
        None => ok_finding(check, finding.label.clone()),
        Some(why) if finding.is_required => {
            fail_finding(check, format!("{why}; `agent.require` names it, so the agent does not start"), to_do)
        }
        Some(why) => warn_finding(check, format!("{why}: {}", finding.consequence), to_do),
    }
}

fn runtime_check(config: &Config) -> Finding {
    match launcher::find_container_runtime(&config.agent.launcher) {
        Ok(program) => ok_finding("containers", program.display().to_string()),
        Err(why) => warn_finding("containers", why, "install podman, if jobs with an image shall run here"),
    }
}

fn disk_checks(data_dir: &Path) -> Vec<Finding> {
    // Before the first start the folder does not exist.
    let Some(folder) = data_dir.ancestors().find(|folder| folder.exists() || *folder == Path::new("")) else {
        return Vec::new();
    };
    let folder = if folder == Path::new("") { Path::new(".") } else { folder };
    let usage = match rustix::fs::statvfs(folder) {
        Ok(usage) => usage,
        Err(error) => return vec![fail_finding("disk", format!("`{}`: {error}", folder.display()), "mount it")],
    };
    let free_mib = (usage.f_bavail.saturating_mul(usage.f_frsize)) >> 20;
    let found = format!("{} free in `{}`", units::memory_text(free_mib), folder.display());
    let mut findings = vec![headroom("disk", found, free_mib, (FREE_MIB_WARN, FREE_MIB_FAIL))];
    // Some file systems have no fixed number.
    if usage.f_files > 0 {
        let found = format!("{} inodes free in `{}`", units::thousands_text(usage.f_favail), folder.display());
        findings.push(headroom("inodes", found, usage.f_favail, (FREE_INODES_WARN, FREE_INODES_FAIL)));
    }
    findings.push(match muster_agent::logs::probe_hole_punching(folder) {
        Ok(()) => ok_finding("log limit", "holes can be punched: `agent.log_max_mib` holds".to_string()),
        Err(error) => warn_finding(
            "log limit",
            format!(
                "no hole can be punched into files of `{}`, so output of jobs is not limited: {error}",
                folder.display()
            ),
            "put the data folder on ext4, xfs or btrfs, and run this check as the user of the agent",
        ),
    });
    findings
}

fn headroom(check: &'static str, found: String, free: u64, (warn, fail): (u64, u64)) -> Finding {
    const TO_DO: &str = "remove old data, or give the data folder of the agent a larger file system";
    match free {
        free if free < fail => fail_finding(check, found, TO_DO),
        free if free < warn => warn_finding(check, found, TO_DO),
        _ => ok_finding(check, found),
    }
}

fn limit_checks() -> Vec<Finding> {
    let limit = |check, path: &str, min: u64, setting: &str| {
        let value = fs::read_to_string(path).ok().and_then(|text| text.trim().parse::<u64>().ok());
        match value {
            None => warn_finding(check, format!("`{path}` cannot be read"), "mount /proc"),
            Some(value) if value < min => {
                let to_do = format!("`sysctl -w {setting}={min}`, and a file in /etc/sysctl.d");
                Finding { to_do, ..warn_finding(check, format!("{value}; a busy node needs {min}"), "") }
            }
            Some(value) => ok_finding(check, value.to_string()),
        }
    };
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    vec![
        limit("inotify watches", "/proc/sys/fs/inotify/max_user_watches", WATCHES_MIN, "fs.inotify.max_user_watches"),
        limit("pids", "/proc/sys/kernel/pid_max", PIDS_MIN, "kernel.pid_max"),
        match files {
            Some(max) if max < FILES_MIN => warn_finding(
                "open files",
                format!("the limit of this shell is {max}; the unit of `muster agent install` sets its own"),
                "raise the hard limit (`ulimit -Hn`)",
            ),
            max => ok_finding("open files", max.map_or("unlimited".to_string(), |max| max.to_string())),
        },
    ]
}

fn link_checks(data_dir: &Path) -> Vec<Finding> {
    let identity = match Identity::load(data_dir) {
        Ok(Some(identity)) => identity,
        Ok(None) => {
            let found = format!("`{}` has no identity: this node has not joined", data_dir.display());
            let to_do = "`muster node token` on a server, then `muster agent --join URL`, or name the folder by --agent-data-dir";
            return vec![warn_finding("identity", found, to_do)];
        }
        Err(error) => {
            return vec![fail_finding(
                "identity",
                error.to_string(),
                "`muster node token --node NAME` on a server, and join again",
            )];
        }
    };
    let mut findings = vec![ok_finding("identity", format!("node `{}`", identity.membership.node))];
    findings.extend(certificate_check(&identity));
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return findings };
    let ask = |server: &String| {
        let answer = runtime.block_on(check::check_server(&identity, server));
        let broken = |error: muster_link::LinkError| LinkFailure { step: LinkStep::Tls, why: error.to_string() };
        (server.clone(), answer.map_err(broken).and_then(|answer| answer))
    };
    let answers: Vec<(String, Result<CheckResponse, LinkFailure>)> =
        identity.membership.servers.iter().map(ask).collect();
    findings.extend(answers.iter().map(|(server, answer)| server_finding(server, answer)));
    findings.extend(leader_checks(&answers));
    findings
}

fn certificate_check(identity: &Identity) -> Option<Finding> {
    let end = check::certificate_end(identity.certificate())?;
    let end_ms = end.parse::<jiff::Timestamp>().ok()?.as_millisecond();
    let left_ms = end_ms - units::now_ms();
    let found = format!("valid until {}", units::local_time_text(end_ms));
    const TO_DO: &str = "start the agent: it renews its certificate at each start, up to 30 days after the end";
    Some(match left_ms {
        ..0 => fail_finding("certificate", format!("expired at {}", units::local_time_text(end_ms)), TO_DO),
        0..EXPIRY_WARN_MS => warn_finding("certificate", found, TO_DO),
        _ => ok_finding("certificate", found),
    })
}

fn server_finding(server: &str, answer: &Result<CheckResponse, LinkFailure>) -> Finding {
    match answer {
        Ok(answer) if answer.leading => {
            ok_finding("server", format!("{server} leads, version {}", answer.server_version))
        }
        Ok(answer) => ok_finding("server", format!("{server} answers; it does not lead ({})", answer.leader)),
        Err(LinkFailure { step, why }) => {
            let (what, to_do) = match step {
                LinkStep::Dns => ("its name is not found", "correct the name server, or /etc/hosts"),
                LinkStep::Tcp => {
                    ("no connection", "start the server, and open the port of the agent link (50052) in firewalls")
                }
                LinkStep::Tls => ("no TLS", "the port must be that of the agent link of this cluster, without a proxy"),
                LinkStep::Answer => {
                    ("it refuses this node", "if the node was removed: `muster node token --node NAME`, and join again")
                }
            };
            warn_finding("server", format!("{server}: {what}: {why}"), to_do)
        }
    }
}

/// What the leader knows of this node. Fails if no server leads: one of several may be down.
fn leader_checks(answers: &[(String, Result<CheckResponse, LinkFailure>)]) -> Vec<Finding> {
    let leader = answers.iter().find_map(|(_, answer)| answer.as_ref().ok().filter(|answer| answer.leading));
    let Some(leader) = leader else {
        let found = "none of the known servers leads".to_string();
        return vec![fail_finding("link", found, "see the checks of the servers above")];
    };
    let skew_ms = (units::now_ms() - leader.time_ms).abs();
    let found = format!("{skew_ms} ms apart from the server");
    let clock = match skew_ms {
        ..SKEW_WARN_MS => ok_finding("clock", "in sync with the server".to_string()),
        SKEW_WARN_MS..SKEW_FAIL_MS => warn_finding("clock", found, "enable time synchronisation"),
        _ => fail_finding("clock", found, "enable time synchronisation on both machines"),
    };
    vec![clock, heartbeat_finding(leader)]
}

fn heartbeat_finding(leader: &CheckResponse) -> Finding {
    const TO_DO: &str =
        "start the agent: `systemctl start muster-agent`, or `muster agent`; its log says what is wrong";
    match leader.silent_ms {
        _ if leader.node_state.is_empty() => warn_finding("heartbeat", "this node never registered".to_string(), TO_DO),
        None => warn_finding(
            "heartbeat",
            format!("none since the leader started; the node is {}", leader.node_state),
            TO_DO,
        ),
        Some(ms) if ms > SILENCE_WARN_MS => fail_finding(
            "heartbeat",
            format!("the last one is {} old; the node is {}", units::duration_text(ms), leader.node_state),
            TO_DO,
        ),
        Some(ms) => ok_finding("heartbeat", format!("{ms} ms ago; the node is {}", leader.node_state)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::CheckResult;
    use super::*;

    fn leader(silent_ms: Option<i64>, skew_ms: i64) -> CheckResponse {
        let (server_version, node_state) = ("1".to_string(), "Ready".to_string());
        let time_ms = units::now_ms() + skew_ms;
        CheckResponse { server_version, leading: true, leader: String::new(), time_ms, node_state, silent_ms }
    }

    fn results(findings: &[Finding]) -> Vec<(&'static str, CheckResult)> {
        findings.iter().map(|finding| (finding.check, finding.result)).collect()
    }

    #[test]
    fn clock_and_silence_are_judged_by_the_leader() {
        let of = |answer: CheckResponse| results(&leader_checks(&[("a".to_string(), Ok(answer))]));
        use CheckResult::{Fail, Ok as Good, Warn};
        assert_eq!(of(leader(Some(300), 0)), [("clock", Good), ("heartbeat", Good)]);
        assert_eq!(of(leader(Some(60_000), 30_000)), [("clock", Warn), ("heartbeat", Fail)]);
        assert_eq!(of(leader(None, -90_000)), [("clock", Fail), ("heartbeat", Warn)]);
        let standby = CheckResponse { leading: false, ..leader(None, 0) };
        assert_eq!(of(standby), [("link", Fail)]);
    }

    #[test]
    fn little_headroom_warns_and_none_fails() {
        let of = |free| headroom("disk", String::new(), free, (100, 10)).result;
        assert_eq!([of(500), of(50), of(5)], [CheckResult::Ok, CheckResult::Warn, CheckResult::Fail]);
    }
}

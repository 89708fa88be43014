//! Namespaces of network, processes and mounts: a test in a world of its own, and the network of each node.
//!
//! Everything in such a world ends with the test, also if it panics.

use std::process::{Command, Stdio};

/// Set inside the world of a test.
const INSIDE: &str = "MUSTER_TEST_IN_NAMESPACES";
/// The address of the server, on the loopback device of its namespace; nodes have a route to it.
pub const SERVER_ADDRESS: &str = "10.77.0.1";

/// Runs a test in namespaces of its own: this program is executed again, for this test only. The shell is the first process
/// there and reaps orphans, as the init process of a machine does.
pub fn in_own_namespaces(test: &str, run: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        set_up();
        return run();
    }
    if let Some(missing) = missing_requirement() {
        return skip(&missing);
    }
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c"]);
    command.args([r#""$0" "$@"; exit $?"#]).arg(std::env::current_exe().unwrap());
    let status = command.args([test, "--exact", "--nocapture", "--test-threads=1"]).env(INSIDE, "1").status();
    assert!(status.unwrap().success(), "`{test}` failed in its namespaces, see above");
}

/// Skips a test with a line; on CI it fails.
pub fn skip(missing: &str) {
    let may_skip = std::env::var_os("CI").is_none() || std::env::var_os("MUSTER_TESTS_WITHOUT_ROOT").is_some();
    assert!(may_skip, "{missing}");
    eprintln!("skipped: {missing}");
}

pub fn missing_requirement() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("namespaces need the rights of root".to_string());
    }
    if std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).starts_with("/tmp") {
        return Some(
            "the build folder lies below /tmp, and jobs, which have a /tmp of their own, do not see it".to_string(),
        );
    }
    let ip = Command::new("ip").arg("-V").stdout(Stdio::null()).status();
    (!ip.is_ok_and(|status| status.success())).then(|| "the program `ip` (package iproute2) is missing".to_string())
}

fn set_up() {
    run("mount --make-rprivate / && mkdir -p /run/netns && mount -t tmpfs tmpfs /run/netns");
    run(&format!("ip link set lo up && ip address add {SERVER_ADDRESS}/32 dev lo"));
}

/// Runs a line of a shell.
pub fn run(line: &str) {
    let status = Command::new("sh").args(["-ec", line]).status().unwrap();
    assert!(status.success(), "`{line}` failed");
}

/// The network of one node: a namespace with one link to the namespace of the server.
#[derive(Debug, Clone)]
pub struct NodeNetwork {
    name: String,
    /// Address of the node; that of the other end of its link is one lower.
    address: String,
}

/// What a cut lets through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// Nothing, and both ends notice that their device is down.
    Link,
    /// What the server sends.
    ToServer,
    /// What the node sends.
    ToNode,
}

impl NodeNetwork {
    pub fn create(name: &str, number: usize) -> NodeNetwork {
        let (gateway, address) = (format!("10.77.{number}.1"), format!("10.77.{number}.2"));
        run(&format!("ip netns add {name} && ip link add {name} type veth peer name uplink netns {name}"));
        run(&format!("ip address add {gateway}/30 dev {name} && ip link set {name} up"));
        let inside = format!("ip -n {name}");
        run(&format!("{inside} link set lo up && {inside} address add {address}/30 dev uplink"));
        run(&format!("{inside} link set uplink up && {inside} route add default via {gateway}"));
        NodeNetwork { name: name.to_string(), address }
    }

    /// A program inside the network. `ip netns exec` would hide the mounts below `/sys`, and with them the cgroups.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.name)).arg(program);
        command
    }

    pub fn cut(&self, cut: Cut) {
        let (name, address) = (&self.name, &self.address);
        run(&match cut {
            Cut::Link => format!("ip link set {name} down"),
            Cut::ToServer => format!("ip -n {name} route add blackhole {SERVER_ADDRESS}/32"),
            Cut::ToNode => format!("ip route add blackhole {address}/32"),
        });
    }

    pub fn heal(&self, cut: Cut) {
        let (name, address) = (&self.name, &self.address);
        run(&match cut {
            // The default route of the node stays while the other end of its link is down.
            Cut::Link => format!("ip link set {name} up"),
            Cut::ToServer => format!("ip -n {name} route delete blackhole {SERVER_ADDRESS}/32"),
            Cut::ToNode => format!("ip route delete blackhole {address}/32"),
        });
    }
}

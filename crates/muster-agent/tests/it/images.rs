//! Jobs with an image, run by podman: an image is made on the spot from a static busybox, without a network. These tests need
//! root, podman, runc and busybox.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use muster_agent::logs::Stream;
use muster_agent::{ImagePull, LauncherConfig};
use muster_protocol::agent::{AttemptOrder, AttemptSecrets, Exit, RunMount, RunSpec, SecretFile};
use muster_protocol::secret_value::SecretValue;

use crate::harness::{AgentHarness, command, is_root, kill, order, script, wait_until, with_stop};

/// An image without an entrypoint, and one with an entrypoint, a command and a working directory.
const PLAIN: &str = "localhost/plain:1";
const ENTRY: &str = "localhost/entry:1";
const BUSYBOX_PATHS: [&str; 2] = ["/bin/busybox", "/usr/bin/busybox"];
const COMMANDS: [&str; 11] = ["sh", "cat", "echo", "env", "grep", "id", "kill", "ls", "pwd", "sleep", "tail"];

/// A podman with a store of its own: a program of that name that passes on its arguments. The store is not in `/tmp`, which a
/// job has its own of.
struct Podman {
    dir: PathBuf,
}

impl Podman {
    /// `None` where a program is missing; in CI that fails the test.
    fn new() -> Option<Podman> {
        let is_there = |path: &str| Path::new(path).exists();
        let busybox = BUSYBOX_PATHS.iter().find(|path| is_there(path));
        let runs = ["/usr/bin/podman", "/usr/bin/runc", "/usr/bin/catatonit"].iter().all(|path| is_there(path));
        let (Some(busybox), true, true) = (busybox, runs, is_root()) else {
            let is_ci = std::env::var("CI").is_ok_and(|value| value == "true");
            let is_waived = std::env::var_os("MUSTER_TESTS_WITHOUT_ROOT").is_some();
            assert!(!is_ci || is_waived, "this test needs podman, runc, catatonit and busybox-static");
            eprintln!("skipped: this test needs root, podman, runc, catatonit and busybox-static");
            return None;
        };
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("muster-images-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let podman = Podman { dir: Path::new("/var/tmp").join(name) };
        podman.install();
        podman.import(Path::new(busybox));
        Some(podman)
    }

    fn install(&self) {
        std::fs::create_dir_all(&self.dir).unwrap();
        let dir = self.dir.display();
        let flags = format!("--root {dir}/store --runroot {dir}/run --storage-driver vfs");
        std::fs::write(self.program(), format!("#!/bin/sh\nexec /usr/bin/podman {flags} \"$@\"\n")).unwrap();
        std::fs::set_permissions(self.program(), std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn import(&self, busybox: &Path) {
        let root = self.dir.join("root");
        for name in ["bin", "etc", "tmp"] {
            std::fs::create_dir_all(root.join(name)).unwrap();
        }
        std::fs::copy(busybox, root.join("bin/busybox")).unwrap();
        COMMANDS.iter().for_each(|name| std::os::unix::fs::symlink("busybox", root.join("bin").join(name)).unwrap());
        let tar = self.dir.join("root.tar");
        let packed = Command::new("tar").arg("-C").arg(&root).arg("-cf").arg(&tar).arg(".").status();
        assert!(packed.unwrap().success());
        let tar = tar.to_str().unwrap();
        let changes =
            ["ENTRYPOINT [\"/bin/echo\",\"entry\"]", "CMD [\"default\"]", "ENV OF_THE_IMAGE=yes", "WORKDIR /etc"];
        self.run(&["import", "--change", changes[2], tar, PLAIN]);
        let changes: Vec<&str> = changes.iter().flat_map(|change| ["--change", change]).collect();
        self.run(&[&["import"], &changes[..], &[tar, ENTRY]].concat());
    }

    fn program(&self) -> PathBuf {
        self.dir.join("podman")
    }

    fn run(&self, args: &[&str]) -> String {
        let output = Command::new(self.program()).args(["--cgroup-manager", "cgroupfs"]).args(args).output().unwrap();
        assert!(output.status.success(), "podman {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// All containers, in any state.
    fn containers(&self) -> String {
        self.run(&["ps", "--all", "--format", "{{.Names}}"])
    }

    fn launcher(&self) -> LauncherConfig {
        let users = [("ann".to_string(), "20001:20002:20003".to_string())].into();
        let container_runtime = self.program().to_str().unwrap().to_string();
        LauncherConfig { users, container_runtime, ..LauncherConfig::default() }
    }

    fn harness(&self) -> AgentHarness {
        AgentHarness::with_launcher(self.launcher())
    }

    fn run_to_exit(&self, run: RunSpec) -> (AgentHarness, Exit) {
        let mut harness = self.harness();
        harness.send_orders(vec![order(run)]);
        let exit = harness.wait_for_exit();
        (harness, exit)
    }

    fn assert_no_containers(&self, harness: &AgentHarness) {
        harness.assert_no_live_processes();
        assert_eq!(self.containers(), "", "containers are left");
        let cgroups = harness.cgroups();
        assert!(cgroups.iter().all(|dir| !dir.exists()), "cgroups are left: {cgroups:?}");
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        let _ = Command::new(self.program()).args(["--cgroup-manager", "cgroupfs", "rm", "--all", "--force"]).output();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn in_image(image: &str, run: RunSpec) -> RunSpec {
    RunSpec { image: Some(image.to_string()), ..run }
}

fn stdout(harness: &AgentHarness) -> String {
    harness.read_log(0, Stream::Stdout)
}

fn reason(exit: &Exit) -> &str {
    match exit {
        Exit::NotStarted(why) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_job_runs_in_its_image_as_its_user_without_capabilities() {
    let Some(podman) = Podman::new() else { return };
    let text = "id -u; id -g; id -G; pwd; ls -d /usr; echo $OF_THE_IMAGE $KIND $MUSTER_RANK $CUDA_VISIBLE_DEVICES $USER; \
                grep -E '^(NoNewPrivs|CapBnd|CapEff)' /proc/self/status; echo kept > $HOME/file; echo temporary > /tmp/file; \
                echo shared > /dev/shm/file && echo shm; echo $PATH; cat /proc/1/cmdline | tail -c 40; exit 7";
    let env = [("KIND".to_string(), "a b".to_string())].into();
    let (harness, exit) = podman.run_to_exit(in_image(PLAIN, RunSpec { env, ..script(text) }));
    assert_eq!(exit, Exit::Code(7), "{}", harness.read_log(0, Stream::Stderr));
    let none = "0000000000000000";
    let out = stdout(&harness);
    let expected = format!(
        "20001\n20002\n20002 20003\n/\nyes a b 0 1,3 ann\nCapEff:\t{none}\nCapBnd:\t{none}\nNoNewPrivs:\t1\nshm\n\
         /usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"
    );
    assert!(out.starts_with(&expected), "{out}");
    let file = harness.attempt_dir().join("work/file");
    let found = file.metadata().unwrap();
    assert_eq!((found.uid(), found.gid(), found.permissions().mode() & 0o777), (20_001, 20_002, 0o640));
    assert!(!harness.attempt_dir().join("container").exists(), "the environment of the container is left on disk");
    podman.assert_no_containers(&harness);
}

#[test]
fn a_command_replaces_that_of_the_image_and_a_script_the_entrypoint_too() {
    let Some(podman) = Podman::new() else { return };
    for (run, expected) in [
        (RunSpec::default(), "entry default\n"),
        (command(&["one", "two"]), "entry one two\n"),
        (script("pwd; echo \"$@\""), "/etc\n\n"),
        (script("#!/bin/sh\necho shebang"), "shebang\n"),
        (RunSpec { directory: Some("/bin".to_string()), ..script("pwd") }, "/bin\n"),
    ] {
        let (harness, exit) = podman.run_to_exit(in_image(ENTRY, run));
        assert_eq!((exit, stdout(&harness).as_str()), (Exit::Code(0), expected));
    }
}

#[test]
fn exits_of_containers_are_reported_as_those_of_processes() {
    let Some(podman) = Podman::new() else { return };
    for (run, expected) in [
        (script("exit 42"), Exit::Code(42)),
        (script("kill -SEGV $$"), Exit::Signal(11)),
        (script("tail /dev/zero"), Exit::OutOfMemory { limit_mib: 64 }),
        (command(&["/no/such/program"]), Exit::Code(127)),
        (command(&["/etc"]), Exit::Code(126)),
    ] {
        let (harness, exit) = podman.run_to_exit(in_image(PLAIN, run.clone()));
        assert_eq!(exit, expected, "{run:?}: {}", harness.read_log(0, Stream::Stderr));
        podman.assert_no_containers(&harness);
    }
    let nowhere = RunSpec { directory: Some("/no/such/place".to_string()), ..script("true") };
    let (_, exit) = podman.run_to_exit(in_image(PLAIN, nowhere));
    assert!(reason(&exit).starts_with("invalid job: ") && reason(&exit).contains("/no/such/place"), "{exit:?}");
}

/// Once, although clients, monitors and init programs all forward signals.
#[test]
fn a_stopped_container_gets_sigterm_once_and_is_killed_after_the_grace() {
    let Some(podman) = Podman::new() else { return };
    let mut harness = podman.harness();
    let trapping = "trap 'echo term' TERM; echo up; while true; do sleep 0.1; done";
    let running = order(in_image(PLAIN, script(trapping)));
    harness.send_orders(vec![running.clone()]);
    harness.wait_for_start();
    harness.wait_for_first_line();
    harness.send_orders(vec![with_stop(&running, 2_000)]);
    assert_eq!(harness.wait_for_exit(), Exit::Signal(9));
    assert_eq!(stdout(&harness), "up\nterm\n");
    podman.assert_no_containers(&harness);
}

#[test]
fn a_container_ends_by_sigterm_within_the_grace() {
    let Some(podman) = Podman::new() else { return };
    let mut harness = podman.harness();
    let running = order(in_image(PLAIN, script("trap 'exit 5' TERM; echo up; while true; do sleep 0.1; done")));
    harness.send_orders(vec![running.clone()]);
    harness.wait_for_start();
    harness.wait_for_first_line();
    harness.send_orders(vec![with_stop(&running, 60_000)]);
    assert_eq!(harness.wait_for_exit(), Exit::Code(5));
    podman.assert_no_containers(&harness);
}

#[test]
fn a_killed_shim_leaves_no_container() {
    let Some(podman) = Podman::new() else { return };
    let mut harness = podman.harness();
    harness.send_orders(vec![order(in_image(PLAIN, script("trap '' TERM; echo up; while true; do sleep 0.1; done")))]);
    harness.wait_for_start();
    harness.wait_for_first_line();
    kill(harness.shim_pid(), "KILL");
    assert!(matches!(harness.wait_for_exit(), Exit::Unknown(why) if why.contains("shim lost")));
    podman.assert_no_containers(&harness);
}

#[test]
fn a_restarted_agent_adopts_a_container_and_removes_those_of_lost_shims_and_of_nobody() {
    let Some(podman) = Podman::new() else { return };
    let mut harness = podman.harness();
    let running = order(in_image(PLAIN, script("echo up; while true; do sleep 0.1; done")));
    harness.send_orders(vec![running.clone()]);
    harness.wait_for_start();
    harness.wait_for_first_line();
    let name = podman.containers().trim().to_string();
    harness.crash_agent();
    let stray = name.replace("-job-1-1-0", "-job-9-1-0");
    let agent = name.strip_prefix("muster-").unwrap().split("-job-").next().unwrap();
    podman.run(&[
        "create",
        "--name",
        &stray,
        "--label",
        &format!("muster.agent={agent}"),
        "--network",
        "host",
        PLAIN,
        "/bin/sh",
    ]);
    harness.start_runner_with(podman.launcher());
    assert_eq!(podman.containers().trim(), name, "the container of a live attempt, and no other");
    harness.crash_agent();
    kill(harness.shim_pid(), "KILL");
    harness.start_runner_with(podman.launcher());
    harness.send_orders(vec![AttemptOrder { started: true, ..running }]);
    assert!(matches!(harness.wait_for_exit(), Exit::Unknown(_)));
    podman.assert_no_containers(&harness);
}

/// Other users of the machine see command lines.
#[test]
fn values_of_variables_are_on_no_command_line() {
    let Some(podman) = Podman::new() else { return };
    let mut harness = podman.harness();
    let env = [("TOKEN".to_string(), "s3cret-value".to_string())].into();
    let running = order(in_image(PLAIN, RunSpec { env, ..script("echo $TOKEN; sleep 300") }));
    harness.send_orders(vec![running.clone()]);
    harness.wait_for_start();
    assert_eq!(harness.wait_for_first_line(), "s3cret-value");
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    assert!(!lines.into_iter().any(|line| String::from_utf8_lossy(&line).contains("s3cret-value")));
    harness.send_orders(vec![with_stop(&running, 0)]);
    harness.wait_for_exit();
}

fn mounting(source: &Path, read_only: bool, text: &str) -> RunSpec {
    let (source, target) = (source.to_str().unwrap().to_string(), "/in".to_string());
    RunSpec { mounts: vec![RunMount { source, target, read_only }], ..in_image(PLAIN, script(text)) }
}

#[test]
fn a_container_finds_the_secrets_of_its_job_and_cannot_change_them() {
    let Some(podman) = Podman::new() else { return };
    let text = "cd $MUSTER_SECRETS_DIR; stat -c '%n %a' TOKEN; tr a-z A-Z < TOKEN; echo; (echo x > new) 2>/dev/null || echo read-only";
    let mut job = order(in_image(PLAIN, script(text)));
    job.run.secrets = vec!["TOKEN".to_string()];
    let file = SecretFile { name: "TOKEN".to_string(), value: SecretValue::new(b"needle".to_vec()) };
    let secrets = AttemptSecrets { job: job.job.clone(), attempt: 1, files: vec![file], refusal: None };
    let mut harness = podman.harness();
    harness.send_orders_with_secrets(vec![job], vec![secrets]);
    let exit = harness.wait_for_exit();
    assert_eq!(stdout(&harness), "TOKEN 400\nNEEDLE\nread-only\n", "{exit:?}: {}", harness.read_log(0, Stream::Stderr));
    podman.assert_no_containers(&harness);
}

#[test]
fn a_job_mounts_what_its_user_may_read_and_its_site_allows() {
    let Some(podman) = Podman::new() else { return };
    let data = podman.dir.join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::write(data.join("file"), "content").unwrap();
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o777)).unwrap();
    let text = "cat /in/file; (echo new > /in/new) 2>/dev/null && echo written";
    let (harness, exit) = podman.run_to_exit(mounting(&data, true, text));
    assert_eq!(stdout(&harness), "content", "{exit:?}: {}", harness.read_log(0, Stream::Stderr));
    let (harness, _) = podman.run_to_exit(mounting(&data, false, text));
    assert_eq!(stdout(&harness), "contentwritten\n");
    let (harness, _) = podman.run_to_exit(mounting(&data.join("file"), true, "cat /in"));
    assert_eq!(stdout(&harness), "content", "a single file");

    std::os::unix::fs::symlink("/etc", data.join("link")).unwrap();
    let allowed = LauncherConfig { image_mounts: vec![data.clone()], ..podman.launcher() };
    let private = data.join("private");
    std::fs::create_dir(&private).unwrap();
    std::fs::set_permissions(&private, std::fs::Permissions::from_mode(0o700)).unwrap();
    for (source, why) in [
        (private.as_path(), "user `ann` cannot read it"),
        (Path::new("/no/such/place"), "user `ann` cannot read it"),
        (Path::new("/etc"), "`agent.image_mounts`"),
        (&data.join("link"), "`agent.image_mounts`"),
        (Path::new("/dev/null"), "`agent.image_mounts`"),
    ] {
        let mut harness = AgentHarness::with_launcher(allowed.clone());
        harness.send_orders(vec![order(mounting(source, true, "cat /in/file"))]);
        let exit = harness.wait_for_exit();
        assert!(reason(&exit).starts_with("invalid job: ") && reason(&exit).contains(why), "{source:?}: {exit:?}");
    }
}

#[test]
fn an_image_that_cannot_be_pulled_is_the_reason() {
    let Some(podman) = Podman::new() else { return };
    // Nothing listens on port 1: a registry that is down.
    let (_, exit) = podman.run_to_exit(in_image("localhost:1/none:1", script("true")));
    let why = reason(&exit);
    assert!(why.starts_with("image localhost:1/none:1 cannot be pulled: ") && why.contains("refused"), "{why}");
    let (_, exit) = podman.run_to_exit(in_image("localhost/UPPER CASE", script("true")));
    assert!(reason(&exit).starts_with("invalid job: `localhost/UPPER CASE` cannot be the name"), "{exit:?}");
    let (_, exit) = podman.run_to_exit(in_image("localhost/UPPER", script("true")));
    assert!(reason(&exit).starts_with("invalid job: image localhost/UPPER cannot be pulled: "), "{exit:?}");

    let launcher = LauncherConfig { image_pull: ImagePull::Never, ..podman.launcher() };
    let mut harness = AgentHarness::with_launcher(launcher);
    harness.send_orders(vec![order(in_image("localhost/none:1", script("true")))]);
    let why = "image localhost/none:1 is not on this node, and `agent.image_pull` is `never`";
    assert_eq!(reason(&harness.wait_for_exit()), why);
}

/// The registry accepts the connection and says nothing.
#[test]
fn a_job_can_be_stopped_while_its_image_is_pulled() {
    let Some(podman) = Podman::new() else { return };
    let registry = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let image = format!("127.0.0.1:{}/none:1", registry.local_addr().unwrap().port());
    let mut harness = podman.harness();
    let pulling = order(in_image(&image, script("true")));
    harness.send_orders(vec![pulling.clone()]);
    let log = harness.attempt_dir().join("container/pull.log");
    wait_until("the pull has started", || log.exists());
    assert_eq!(harness.start_report_count(), 0, "the job has not started");
    harness.send_orders(vec![AttemptOrder { started: false, ..with_stop(&pulling, 500) }]);
    assert_eq!(reason(&harness.wait_for_exit()), "the attempt was stopped while its image was pulled");
    podman.assert_no_containers(&harness);
}

#[test]
fn a_node_with_a_container_runtime_says_so() {
    let Some(podman) = Podman::new() else { return };
    assert_eq!(podman.harness().label("muster.io/container-runtime"), "podman");
    let off = LauncherConfig { container_runtime: "off".to_string(), ..podman.launcher() };
    let mut harness = AgentHarness::with_launcher(off);
    assert_eq!(harness.label("muster.io/container-runtime"), "");
    harness.send_orders(vec![order(in_image(PLAIN, script("true")))]);
    assert_eq!(reason(&harness.wait_for_exit()), "the job has an image, and this node has no container runtime");
}

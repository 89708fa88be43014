//! Jobs with an image, run by podman: an image is made on the spot from a static busybox, without a network. These tests need
//! root, podman, runc and busybox.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use muster_agent::logs::Stream;
use muster_agent::{ImagePull, LauncherConfig};
use muster_protocol::agent::{AttemptOrder, AttemptSecrets, Exit, RunMount, RunSpec, SecretFile};
use muster_protocol::secret_value::SecretValue;
use muster_testing::PodmanStore;
use muster_testing::images::{ENTRY, PLAIN};

use crate::harness::{AgentHarness, JOB, command, for_job, kill, order, script, wait_until, with_stop};

/// A podman with a store of its own, and agents that run images by it.
struct Podman {
    store: PodmanStore,
}

impl Podman {
    fn new() -> Option<Podman> {
        Some(Podman { store: PodmanStore::new("agent")? })
    }

    /// All containers, in any state.
    fn containers(&self) -> String {
        self.store.containers()
    }

    fn launcher(&self) -> LauncherConfig {
        let users = [("ann".to_string(), "20001:20002:20003".to_string())].into();
        let container_runtime = self.store.program().to_str().unwrap().to_string();
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
        "20001\n20002\n20002\n/\nyes a b 0 1,3 ann\nCapEff:\t{none}\nCapBnd:\t{none}\nNoNewPrivs:\t1\nshm\n\
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
    podman.store.run(&[
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
    let data = podman.store.dir().join("data");
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

/// One image fits into the limit.
#[test]
fn images_that_no_job_uses_are_removed_until_the_rest_is_within_the_limit_and_never_those_of_the_site() {
    let Some(podman) = Podman::new() else { return };
    let size = std::fs::metadata("/bin/busybox").or_else(|_| std::fs::metadata("/usr/bin/busybox")).unwrap().len();
    let images = ["first", "in-use", "third"].map(|name| format!("localhost/{name}:1"));
    images.iter().for_each(|image| podman.store.offer_image(image));
    let launcher = LauncherConfig { image_cache_max_mib: Some((size >> 20) + 1), ..podman.launcher() };
    let mut harness = AgentHarness::with_launcher(launcher);
    let job = |name: &str, image: &str, text: &str| for_job(name, order(in_image(image, script(text))));
    let [first, in_use, third] = &images;
    let ends = vec![job("job-2", first, "true"), job("job-3", PLAIN, "true")];
    harness.send_orders(ends);
    assert_eq!((harness.wait_for_exit_of("job-2"), harness.wait_for_exit_of("job-3")), (Exit::Code(0), Exit::Code(0)));
    let running = job(JOB, in_use, "echo up; sleep 300");
    harness.send_orders(vec![running.clone()]);
    harness.wait_for_first_line();
    assert!(podman.store.has_image(first), "nothing had to go yet");
    harness.send_orders(vec![running.clone(), job("job-4", third, "true")]);
    assert_eq!(harness.wait_for_exit_of("job-4"), Exit::Code(0));
    wait_until("the unused images are gone", || ![first, third].iter().any(|image| podman.store.has_image(image)));
    assert!([in_use, PLAIN, ENTRY].iter().all(|image| podman.store.has_image(image)));
    harness.send_orders(vec![with_stop(&running, 0)]);
    harness.wait_for_exit_of(JOB);
    podman.assert_no_containers(&harness);
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

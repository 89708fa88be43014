//! Programs inside running jobs with an image, over the real link and with real containers.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use muster_testing::PodmanStore;

use super::agents::{AgentProcess, ONE_GPU, Site};
use super::exec::{count_of, pseudo_random, read_until, text, with_terminal};

const IMAGE: &str = "localhost/exec:1";
const SCRIPT: &str = "echo work > $HOME/here; cat /proc/self/cgroup > $HOME/cgroup; echo ready; sleep 600 & wait";

/// A site with one node that runs images, and a job in a container.
struct Stage {
    agent: Option<AgentProcess>,
    site: Site,
    podman: PodmanStore,
    job: String,
}

impl Stage {
    fn new(name: &str) -> Option<Stage> {
        let podman = PodmanStore::new(name)?;
        podman.add_image(IMAGE, &["ENV OF_THE_IMAGE=yes", "WORKDIR /etc"]);
        let site = Site::new(&format!("exec-{name}"));
        let config = format!("agent: {{container_runtime: \"{}\"}}\n", podman.program().display());
        std::fs::write(site.folder.join("agent.yaml"), config).unwrap();
        let mut stage = Stage { agent: None, site, podman, job: String::new() };
        stage.agent = Some(stage.site.joined("g1", &[&["--config", "agent.yaml"], ONE_GPU].concat()));
        stage.job = stage.start_job();
        Some(stage)
    }

    fn start_job(&self) -> String {
        let words = ["submit", "--image", IMAGE, "--env", "KIND=a b", "--mem", "64M", "--", "sh", "-c", SCRIPT];
        let job = self.site.ok(&words).trim().to_string();
        self.site.wait("the job runs", || {
            assert_ne!(self.site.phase(&job), "Failed", "{}", self.site.ok(&["why", &job]));
            self.site.phase(&job) == "Running" && self.site.ok(&["logs", &job]).contains("ready")
        });
        job
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(self.site.folder.join("bin/muster"));
        command.args(words).current_dir(&self.site.folder);
        command.env("MUSTER_SERVER", format!("http://{}", self.site.address));
        command
    }

    /// Runs a shell script inside the job.
    fn exec(&self, script: &str) -> Output {
        self.command(&["exec", &self.job, "--", "sh", "-c", script]).output().unwrap()
    }

    /// Starts a program that has lost a part of its processes to the first process of the container.
    fn start_daemon(&self, seconds: &str) -> Child {
        let script = format!("(setsid sh -c 'trap \"\" HUP; sleep {seconds}' &); sleep {seconds}");
        let mut command = self.command(&["exec", &self.job, "--", "sh", "-c", &script]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        self.site.wait("the program runs", || count_of(seconds) >= 2);
        child
    }

    fn wait_until_gone(&self, seconds: &str) {
        self.site.wait("the program and what it has started are gone", || count_of(seconds) == 0);
    }

    /// The cgroups of programs that people run.
    fn exec_cgroups(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        find_dirs(Path::new("/sys/fs/cgroup"), "muster-exec-", &mut found);
        found.retain(|dir| dir.to_string_lossy().contains(&format!("/{}.", self.job)));
        found
    }
}

fn find_dirs(dir: &Path, beginning: &str, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        if entry.file_name().to_string_lossy().starts_with(beginning) {
            found.push(entry.path());
        }
        find_dirs(&entry.path(), beginning, found);
    }
}

/// The path of a process in the hierarchy that limits its memory.
fn memory_cgroup(text: &str) -> &str {
    let is_memory = |line: &&str| line.contains(":memory:") || line.starts_with("0::");
    let line = text.lines().find(|line| line.contains(":memory:")).or_else(|| text.lines().find(is_memory)).unwrap();
    line.splitn(3, ':').nth(2).unwrap()
}

#[test]
fn a_program_joins_the_container_of_its_task() {
    let Some(stage) = Stage::new("container") else { return };
    let seen =
        stage.exec("echo $OF_THE_IMAGE $KIND $MUSTER_RANK; pwd; cat $HOME/here; ls -d /usr; cat /proc/1/comm; exit 7");
    assert_eq!(text(&seen.stdout), "yes a b 0\n/etc\nwork\npodman-init\n", "{}", text(&seen.stderr));
    assert_eq!(seen.status.code(), Some(7));
    let of_the_job = stage.exec("grep -E '^(NoNewPrivs|Cap|Uid|Gid)' /proc/1/status").stdout;
    let own = stage.exec("grep -E '^(NoNewPrivs|Cap|Uid|Gid)' /proc/self/status").stdout;
    assert_eq!(text(&own), text(&of_the_job), "the rights of the task");
    assert!(
        text(&own).contains("NoNewPrivs:\t1") && text(&own).contains("CapBnd:\t0000000000000000"),
        "{}",
        text(&own)
    );
    let cgroup = text(&stage.exec("cat $HOME/cgroup >&2; cat /proc/self/cgroup").stdout);
    let of_the_task = text(&stage.exec("cat $HOME/cgroup").stdout);
    let below = format!("{}/muster-exec-", memory_cgroup(&of_the_task));
    assert!(memory_cgroup(&cgroup).starts_with(&below), "{cgroup} is not below {of_the_task}");
    assert_eq!(stage.exec("kill -9 $$").status.code(), Some(137));
    let refused = stage.site.refused(&["exec", &stage.job, "--", "/no/such/program"]);
    assert!(refused.contains("`/no/such/program` cannot be started: No such file"), "{refused}");
    copy_both_ways(&stage);
    use_a_terminal(&stage);
    // The memory of the program counts towards the limit of the job.
    assert_eq!(stage.exec("tail /dev/zero").status.code(), Some(137));
}

/// The image has no program for it.
fn copy_both_ways(stage: &Stage) {
    let bytes = pseudo_random(1 << 20);
    std::fs::write(stage.site.folder.join("bytes"), &bytes).unwrap();
    stage.site.ok(&["cp", "bytes", &format!("{}:/tmp/bytes", stage.job)]);
    assert_eq!(text(&stage.exec("wc -c < /tmp/bytes").stdout).trim(), "1048576");
    stage.site.ok(&["cp", &format!("{}:/tmp/bytes", stage.job), "back"]);
    assert!(std::fs::read(stage.site.folder.join("back")).unwrap() == bytes);
    let denied = stage.site.refused(&["cp", "bytes", &format!("{}:/etc/bytes", stage.job)]);
    assert!(denied.contains("/etc/bytes") && denied.contains("denied"), "{denied}");
    // An absolute link of the container stays in the container.
    let missing = stage.site.refused(&["cp", &format!("{}:/usr/bin/env", stage.job), "env"]);
    assert!(missing.contains("No such file"), "{missing}");
}

fn use_a_terminal(stage: &Stage) {
    let mut command = stage.command(&["attach", &stage.job]);
    let (mut child, mut master) = with_terminal(&mut command, 37, 111);
    master.write_all(b"stty size; echo $TERM e''nd; tty\n").unwrap();
    let seen = read_until(&mut master, "/dev/pts/");
    assert!(seen.contains("37 111") && seen.contains("vt220 end"), "{seen}");
    master.write_all(b"ls -l $(tty) && echo na''med; exit 9\n").unwrap();
    read_until(&mut master, "named");
    assert_eq!(child.wait().unwrap().code(), Some(9));
}

#[test]
fn a_program_in_a_container_ends_with_its_client_its_agent_and_its_job() {
    let Some(mut stage) = Stage::new("container-ends") else { return };
    // What it has started ends with the program.
    let daemon = "(setsid sh -c 'trap \"\" HUP; echo up > $HOME/up; sleep 7000.5' &); until test -e $HOME/up; do sleep 0.1; done; exit 4";
    let daemon = stage.exec(daemon);
    assert_eq!((daemon.status.code(), count_of("7000.5")), (Some(4), 0));
    assert_eq!(stage.exec_cgroups(), [] as [PathBuf; 0]);

    let mut client = stage.start_daemon("7001.5");
    assert!(!stage.exec_cgroups().is_empty());
    client.kill().unwrap();
    client.wait().unwrap();
    stage.wait_until_gone("7001.5");

    let client = stage.start_daemon("7002.5");
    stage.agent.take().unwrap().kill();
    assert_eq!(client.wait_with_output().unwrap().status.code(), Some(69));
    stage.wait_until_gone("7002.5");
    stage.agent = Some(stage.site.agent("g1", &[&["--config", "agent.yaml"], ONE_GPU].concat()));
    stage.site.wait("the agent is back", || stage.exec("true").status.success());

    let client = stage.start_daemon("7003.5");
    stage.site.ok(&["cancel", "--wait", &stage.job]);
    let over = client.wait_with_output().unwrap();
    assert!(text(&over.stderr).contains("the attempt has ended"), "{}", text(&over.stderr));
    stage.wait_until_gone("7003.5");
    stage.site.wait("no cgroup and no container is left", || {
        stage.exec_cgroups().is_empty() && stage.podman.containers().is_empty()
    });
    let gone = stage.site.refused(&["exec", &stage.job, "--", "true"]);
    assert!(gone.contains("running"), "{gone}");
}

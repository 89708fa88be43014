//! Programs inside running jobs, over the real link: `muster exec`, `muster attach`, `muster ssh` and `muster cp`.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::pty::OpenptFlags;
use rustix::termios::{Winsize, tcsetwinsize};

use super::agents::{AgentProcess, ONE_GPU, Site};
use super::session::Session;

/// Longer than a node may be silent before it is suspect.
const FLOOD_TIME: Duration = Duration::from_secs(8);
const GROWTH_KIB_MAX: u64 = 64 << 10;
const BYTES: usize = 10 << 20;

/// A site with one node and a job that has files in its directories.
struct Stage {
    agent: Option<AgentProcess>,
    site: Site,
    job: String,
}

impl Stage {
    fn new(name: &str) -> Stage {
        let site = Site::new(&format!("exec-{name}"));
        let agent = Some(site.joined("g1", ONE_GPU));
        let work = site.folder.join("work");
        std::fs::create_dir(&work).unwrap();
        std::fs::set_permissions(&work, std::fs::Permissions::from_mode(0o777)).unwrap();
        let job = running_job(&site, "echo tmp > /tmp/mine; echo work > here; cat /proc/self/cgroup > cgroup");
        Stage { agent, site, job }
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

    /// Runs a command with this standard input.
    fn with_input(&self, words: &[&str], input: &[u8]) -> Output {
        let mut command = self.command(words);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || drop(stdin.write_all(input)));
            child.wait_with_output().unwrap()
        })
    }

    /// Starts a program that runs until it is ended, and waits until it does.
    fn start_sleeper(&self, seconds: &str) -> Child {
        let mut command =
            self.command(&["exec", &self.job, "--", "sh", "-c", &format!("sleep {seconds} & sleep {seconds}")]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        self.site.wait("the program runs", || count_of(seconds) >= 3);
        child
    }

    fn wait_until_gone(&self, seconds: &str) {
        self.site.wait("the program and what it has started are gone", || count_of(seconds) == 0);
    }
}

fn running_job(site: &Site, script: &str) -> String {
    let script = format!("{script}; echo ready; sleep 600");
    let work = site.folder.join("work");
    let job = site.ok(&["submit", "--dir", work.to_str().unwrap(), "--", "sh", "-c", &script]).trim().to_string();
    site.wait("the job runs", || site.phase(&job) == "Running" && site.ok(&["logs", &job]).contains("ready"));
    job
}

/// Processes inside jobs with these seconds in their arguments: not the command lines of `muster`.
pub fn count_of(seconds: &str) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let is_one = |process: &Path| {
        let arguments = std::fs::read(process.join("cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = arguments.split(|byte| *byte == 0).collect();
        let is_inside = words[0].ends_with(b"sleep") || words[0].ends_with(b"sh");
        is_inside && String::from_utf8_lossy(&arguments).contains(seconds)
    };
    processes.filter(|process| is_one(&process.path())).count()
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub fn pseudo_random(length: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    std::iter::repeat_with(next).take(length).collect()
}

#[test]
fn a_program_runs_inside_the_task_and_its_result_is_returned() {
    let stage = Stage::new("inside");
    let seen = stage.exec("cat here; echo err >&2; exit 7");
    assert_eq!((text(&seen.stdout), text(&seen.stderr)), ("work\n".to_string(), "err\n".to_string()));
    assert_eq!(seen.status.code(), Some(7));
    assert_eq!(stage.exec("kill -9 $$").status.code(), Some(137));
    let seen =
        stage.exec("echo $MUSTER_JOB_ID $MUSTER_RANK $MUSTER_GPUS; grep NoNewPrivs /proc/self/status; cat cgroup >&2");
    assert_eq!(text(&seen.stdout), format!("{} 0 0\nNoNewPrivs:\t1\n", stage.job));
    let own = text(&stage.exec("cat /proc/self/cgroup").stdout);
    assert_eq!(own, text(&seen.stderr), "the cgroup of the job");
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        let host = std::env::temp_dir().join(format!("muster-host-{}", std::process::id()));
        std::fs::write(&host, "").unwrap();
        let listed = text(&stage.exec("cat /tmp/mine; ls /tmp").stdout);
        std::fs::remove_file(&host).unwrap();
        assert!(
            listed.starts_with("tmp\n") && listed.contains("\nmine\n") && !listed.contains("muster-host"),
            "{listed}"
        );
        assert_ne!(text(&stage.exec("id -u").stdout), "0\n");
        assert!(!stage.exec("head -c 1 /dev/kmsg").status.success(), "a device of others");
    }
    // Standard input is passed only if it is asked for.
    let count = |flags: &[&str]| {
        let words = [&["exec", &stage.job], flags, &["--", "wc", "-c"]].concat();
        text(&stage.with_input(&words, b"abc").stdout).trim().to_string()
    };
    assert_eq!([count(&[]), count(&["-i"])], ["0", "3"]);
    let shell = stage.with_input(&["ssh", &stage.job], b"pwd; exit 3\n");
    assert!(text(&shell.stdout).ends_with("/work\n"), "{}", text(&shell.stdout));
    assert_eq!(shell.status.code(), Some(3));
    assert_eq!(text(&stage.with_input(&["attach", &stage.job], b"cat here\n").stdout), "work\n");
    let refused = stage.site.refused(&["exec", &stage.job, "--", "/no/such/program"]);
    assert!(refused.contains("`/no/such/program` cannot be started: No such file"), "{refused}");
    assert!(stage.site.refused(&["exec", &stage.job, "--rank", "4", "--", "true"]).contains("no task of this rank"));
    assert!(stage.site.refused(&["exec", &stage.job, "-t", "--", "true"]).contains("not a terminal"));
    let audit = stage.site.ok(&["audit"]);
    assert!(audit.contains("job.exec") && audit.contains("wc -c") && audit.contains("login shell"), "{audit}");
}

#[test]
fn a_program_is_refused_in_a_job_that_does_not_run_and_sees_nothing_of_another_job() {
    let stage = Stage::new("others");
    let waiting = stage.site.ok(&["submit", "--", "true"]).trim().to_string();
    let refused = stage.site.refused(&["exec", &waiting, "--", "true"]);
    assert!(refused.contains("is Queued") && refused.contains("running"), "{refused}");
    assert!(stage.site.ok(&["audit"]).contains("wrong-phase"), "refused acts are recorded too");
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped the rest: jobs share /tmp without root");
    }
    stage.site.ok(&["cancel", "--wait", &stage.job]);
    let gone = stage.site.refused(&["exec", &stage.job, "--", "true"]);
    assert!(gone.contains("running"), "{gone}");
    let second = running_job(&stage.site, "echo second > /tmp/second");
    let seen = stage.command(&["exec", &second, "--", "ls", "/tmp"]).output().unwrap();
    let seen = text(&seen.stdout);
    assert!(seen.contains("second\n") && !seen.contains("mine"), "{seen}");
}

#[test]
fn bytes_are_unchanged_both_ways() {
    let stage = Stage::new("bytes");
    let bytes = pseudo_random(BYTES);
    let echoed = stage.with_input(&["exec", &stage.job, "-i", "--", "cat"], &bytes);
    assert!(
        echoed.status.success() && echoed.stdout == bytes,
        "{} bytes, {}",
        echoed.stdout.len(),
        text(&echoed.stderr)
    );
    let apart = stage.with_input(&["exec", &stage.job, "-i", "--", "sh", "-c", "head -c 5000000; cat >&2"], &bytes);
    assert!(apart.stdout == bytes[..5_000_000] && apart.stderr == bytes[5_000_000..]);
    // A program that does not read, and one that ends early.
    let ended = stage.with_input(&["exec", &stage.job, "-i", "--", "true"], &bytes);
    assert_eq!(ended.status.code(), Some(0), "{}", text(&ended.stderr));
}

#[test]
fn files_are_copied_both_ways() {
    let stage = Stage::new("copy");
    let from = stage.site.folder.join("tree");
    std::fs::create_dir_all(from.join("deep")).unwrap();
    let bytes = pseudo_random(1 << 20);
    std::fs::write(from.join("deep/bytes"), &bytes).unwrap();
    std::os::unix::fs::symlink("deep/bytes", from.join("link")).unwrap();
    stage.site.ok(&["cp", "tree", &format!("{}:/tmp", stage.job)]);
    let listed = text(&stage.exec("cd /tmp/tree && wc -c < link && readlink link").stdout);
    assert_eq!(listed, "1048576\ndeep/bytes\n");
    stage.site.ok(&["cp", &format!("{}:/tmp/tree", stage.job), "back"]);
    assert!(std::fs::read(stage.site.folder.join("back/deep/bytes")).unwrap() == bytes);
    stage.site.ok(&["cp", &format!("{}:here", stage.job), "."]);
    assert_eq!(std::fs::read_to_string(stage.site.folder.join("here")).unwrap(), "work\n");
    let missing = stage.site.refused(&["cp", &format!("{}:/no/such", stage.job), "x"]);
    assert!(missing.contains("`/no/such`: No such file"), "{missing}");
    if rustix::process::geteuid().is_root() {
        let denied = stage.site.refused(&["cp", "back", &format!("{}:/etc/back", stage.job)]);
        assert!(denied.contains("/etc/back") && denied.contains("denied"), "{denied}");
    }
    assert!(stage.site.refused(&["cp", "a", "b"]).contains("no side is in a job"));
    let audit = stage.site.ok(&["audit"]);
    assert!(audit.contains("job.copy-in") && audit.contains("job.copy-out"), "{audit}");
}

/// A terminal, and `muster` in a session of its own whose terminal it is.
pub fn with_terminal(command: &mut Command, rows: u16, columns: u16) -> (Child, File) {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = rustix::pty::openpt(flags).unwrap();
    rustix::pty::unlockpt(&master).unwrap();
    let slave: OwnedFd = rustix::pty::ioctl_tiocgptpeer(&master, flags).unwrap();
    set_size(&master, rows, columns);
    let mut outer = Command::new("setsid");
    outer.args(["--ctty", "--wait"]).arg(command.get_program()).args(command.get_args());
    outer.current_dir(command.get_current_dir().unwrap());
    outer.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?)))).env("TERM", "vt220");
    outer.stdin(slave.try_clone().unwrap()).stdout(slave.try_clone().unwrap()).stderr(slave);
    (outer.spawn().unwrap(), File::from(master))
}

fn set_size(master: &impl std::os::fd::AsFd, rows: u16, columns: u16) {
    tcsetwinsize(master, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
}

/// Reads the terminal until this text appears.
pub fn read_until(master: &mut File, wanted: &str) -> String {
    let (mut seen, mut bytes) = (String::new(), [0; 4_096]);
    while !seen.contains(wanted) {
        let read = master.read(&mut bytes).unwrap_or_else(|error| panic!("no `{wanted}`: {error}: {seen}"));
        seen.push_str(&text(&bytes[..read]));
    }
    seen
}

#[test]
fn a_terminal_has_the_size_and_the_keys_of_the_own_one() {
    let stage = Stage::new("terminal");
    let mut command = stage.command(&["exec", &stage.job, "-it", "--", "sh"]);
    let (mut child, mut master) = with_terminal(&mut command, 37, 111);
    // Words that the echo of the typed line does not contain.
    master.write_all(b"stty size; echo $TERM e''nd; tty\n").unwrap();
    let seen = read_until(&mut master, "/dev/pts/");
    assert!(seen.contains("37 111") && seen.contains("vt220 end"), "{seen}");
    set_size(&master, 50, 132);
    master.write_all(b"while [ \"$(stty size)\" != '50 132' ]; do sleep 0.1; done; echo re''sized\n").unwrap();
    read_until(&mut master, "resized");
    // The interrupt key reaches the program and not `muster`.
    master.write_all(b"sleep 300\n").unwrap();
    read_until(&mut master, "sleep 300");
    std::thread::sleep(Duration::from_millis(500));
    master.write_all(b"\x03").unwrap();
    master.write_all(b"echo inter''rupted\n").unwrap();
    read_until(&mut master, "interrupted");
    master.write_all(b"exit 9\n").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(9));
}

#[test]
fn a_program_ends_with_its_client_its_agent_its_server_and_its_job() {
    let mut stage = Stage::new("ends");
    let mut client = stage.start_sleeper("6001.5");
    client.kill().unwrap();
    client.wait().unwrap();
    stage.wait_until_gone("6001.5");

    let client = stage.start_sleeper("6002.5");
    stage.agent.take().unwrap().kill();
    let lost = client.wait_with_output().unwrap();
    assert!(text(&lost.stderr).contains("the connection to the node of the job was lost"), "{}", text(&lost.stderr));
    assert_eq!(lost.status.code(), Some(69));
    stage.wait_until_gone("6002.5");
    stage.agent = Some(stage.site.agent("g1", ONE_GPU));
    stage.site.wait("the agent is back", || stage.exec("true").status.success());

    let client = stage.start_sleeper("6003.5");
    stage.site.kill_server();
    let lost = client.wait_with_output().unwrap();
    assert_eq!(lost.status.code(), Some(69), "{}", text(&lost.stderr));
    stage.wait_until_gone("6003.5");
    stage.site.start_server();
    stage.site.wait("the agent is back", || stage.exec("true").status.success());

    let client = stage.start_sleeper("6004.5");
    stage.site.ok(&["cancel", "--wait", &stage.job]);
    let over = client.wait_with_output().unwrap();
    assert!(text(&over.stderr).contains("the attempt has ended"), "{}", text(&over.stderr));
    stage.wait_until_gone("6004.5");
}

/// Resident memory of a process in KiB.
fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_flood_delays_no_heartbeat_and_needs_no_memory() {
    let stage = Stage::new("flood");
    let start = |stdout: Stdio| {
        let mut command = stage.command(&["exec", &stage.job, "--", "yes"]);
        command.stdin(Stdio::null()).stdout(stdout).stderr(Stdio::null()).spawn().unwrap()
    };
    let before = resident_kib(stage.site.server_pid());
    // One that is read as fast as it comes, and one that nobody reads.
    let mut floods = [start(Stdio::null()), start(Stdio::piped()), start(Stdio::piped())];
    let heartbeat = || {
        let shown = stage.site.ok(&["node", "show", "g1", "-o", "json"]);
        shown.lines().find(|line| line.contains("last_heartbeat")).unwrap().to_string()
    };
    let (begin, mut beats) = (Instant::now(), std::collections::BTreeSet::new());
    while begin.elapsed() < FLOOD_TIME {
        beats.insert(heartbeat());
        assert_eq!(stage.site.node_state("g1"), "Ready");
        std::thread::sleep(Duration::from_millis(200));
    }
    assert!(beats.len() >= 4, "{beats:?}");
    // Orders arrive, too.
    stage.site.ok(&["run", "--gpus", "0", "--", "true"]);
    let grown = resident_kib(stage.site.server_pid()).saturating_sub(before);
    println!("{} heartbeats seen in {FLOOD_TIME:?}; the server grew by {grown} KiB", beats.len());
    assert!(grown < GROWTH_KIB_MAX, "the server grew by {grown} KiB");
    for flood in &mut floods {
        flood.kill().unwrap();
        flood.wait().unwrap();
    }
}

/// The server runs the job itself.
#[test]
fn a_program_runs_inside_a_job_of_a_server_with_real_processes_and_not_of_a_simulated_one() {
    let real = Session::new("exec-real", &["--real"]);
    let words = |words: &str| format!("--token-file data/admin.token {words}");
    let job = real.run_ok(&words("submit --gpus 0 -- sleep 600"));
    let job = job.trim();
    real.wait_for_output(&words(&format!("show {job} -o json")), "\"phase\": \"Running\"");
    let seen = real.run_ok(&words(&format!("exec {job} -- sh -c pwd")));
    assert!(seen.contains("exec-real"), "{seen}");
    real.stop_and_remove();
    let simulated = Session::new("exec-simulated", &[]);
    let job = simulated.run_ok("submit --gpus 1 --annotation muster.sim/runtime=10m -- work");
    let job = job.trim();
    simulated.wait_for_output(&format!("show {job} -o json"), "\"phase\": \"Running\"");
    let refused = simulated.run_refused(&format!("exec {job} -- true"));
    assert!(refused.contains("is simulated") && refused.contains("muster dev --real"), "{refused}");
    simulated.stop_and_remove();
}

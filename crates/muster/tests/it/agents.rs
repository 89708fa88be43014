//! Real agents: processes of their own that join a server over the network and run real jobs.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use super::server::Server;

/// Long enough for a busy machine; a test that works waits a fraction of it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Submitted jobs ask for one GPU unless they say otherwise.
pub const ONE_GPU: &[&str] = &["--gpus", "1"];

/// A server without nodes of its own, at fixed addresses, and the folder of everything.
pub struct Site {
    pub folder: PathBuf,
    pub address: String,
    scheme: &'static str,
    server: Option<Server>,
}

/// Beyond local mode: each request needs a token, and the server a certificate that its clients trust.
const SECURE: &str = "auth: {mode: tokens}\napi: {enable_tls: true}\n";

impl Site {
    pub fn new(name: &str) -> Site {
        Site::with_scheme(name, "http", "")
    }

    /// The configuration gets these further lines.
    pub fn with_config(name: &str, further: &str) -> Site {
        Site::with_scheme(name, "http", further)
    }

    /// A site with HTTPS and tokens. Its commands have the token of the admin and the CA of the server.
    pub fn secure(name: &str) -> Site {
        Site::with_scheme(name, "https", SECURE)
    }

    fn with_scheme(name: &str, scheme: &'static str, further: &str) -> Site {
        let folder = std::env::temp_dir().join(format!("muster-it-{}-agents-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(folder.join("bin")).unwrap();
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_muster"), folder.join("bin/muster")).unwrap();
        let listen = free_address();
        let config = format!("agent_link: {{listen: \"{listen}\"}}\nscheduler: {{stop_grace: 2s}}\n{further}");
        std::fs::write(folder.join("muster.yaml"), config).unwrap();
        let mut site = Site { folder, address: free_address(), scheme, server: None };
        site.start_server();
        site
    }

    pub fn start_server(&mut self) {
        let words = ["muster", "serve", "--config", "muster.yaml"];
        self.server = Some(Server::start_at(&self.address, &words, &self.folder));
    }

    pub fn server_pid(&self) -> u32 {
        self.server.as_ref().unwrap().pid()
    }

    /// Kills the server, as a crash does.
    pub fn kill_server(&mut self) {
        self.server = None;
    }

    /// Stops the server as a service manager does, and waits for its end.
    pub fn stop_server(&mut self) {
        self.server.take().unwrap().terminate();
    }

    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    pub fn muster(&self, words: &[&str]) -> Output {
        let mut command = Command::new(self.folder.join("bin/muster"));
        command.args(words).current_dir(&self.folder);
        command.env("MUSTER_SERVER", self.url()).env("MUSTER_DATA_DIR", self.folder.join("data"));
        command.output().unwrap()
    }

    /// Standard output of a command that succeeds.
    pub fn ok(&self, words: &[&str]) -> String {
        let output = self.muster(words);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "muster {}: {stderr}{}", words.join(" "), self.logs());
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Standard error of a command that fails.
    pub fn refused(&self, words: &[&str]) -> String {
        let output = self.muster(words);
        assert!(!output.status.success(), "muster {} should fail", words.join(" "));
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    fn join_url(&self, words: &[&str]) -> String {
        self.ok(&[&["node", "token"], words].concat()).trim().to_string()
    }

    /// Starts the agent of a node. Its own arguments come last.
    pub fn agent(&self, node: &str, words: &[&str]) -> AgentProcess {
        self.agent_under(&[], node, words)
    }

    /// An agent that another program starts: the words of that program precede the command line of the agent.
    pub fn agent_under(&self, launcher: &[&str], node: &str, words: &[&str]) -> AgentProcess {
        let log = self.folder.join(format!("{node}.log"));
        let file = std::fs::OpenOptions::new().create(true).append(true).open(&log).unwrap();
        let program = self.folder.join("bin/muster");
        let mut line: Vec<&std::ffi::OsStr> = launcher.iter().map(std::ffi::OsStr::new).collect();
        line.push(program.as_os_str());
        let mut command = Command::new(line[0]);
        command
            .args(&line[1..])
            .arg("agent")
            .args(["--node", node, "--data-dir"])
            .arg(self.folder.join(node))
            .args(words);
        command.current_dir(&self.folder).env("MUSTER_AGENT__HEARTBEAT_INTERVAL_MS", "200");
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file).spawn().unwrap();
        AgentProcess { child, log }
    }

    /// An agent that joins with a new token, when the server lists its node as ready.
    pub fn joined(&self, node: &str, words: &[&str]) -> AgentProcess {
        self.joined_under(&[], node, words)
    }

    pub fn joined_under(&self, launcher: &[&str], node: &str, words: &[&str]) -> AgentProcess {
        let url = self.join_url(&[]);
        let agent = self.agent_under(launcher, node, &[&["--join", &url], words].concat());
        self.wait_for_node(node, "Ready");
        agent
    }

    pub fn wait_for_node(&self, node: &str, state: &str) {
        self.wait(&format!("node {node} is {state}"), || self.node_state(node) == state);
    }

    pub fn node_state(&self, node: &str) -> String {
        let list = self.ok(&["node", "ls", "-o", "csv"]);
        let row = list.lines().find(|line| line.starts_with(&format!("{node},")));
        row.and_then(|row| row.split(',').nth(1)).unwrap_or_default().to_string()
    }

    pub fn phase(&self, job: &str) -> String {
        let shown = self.ok(&["show", job, "-o", "json"]);
        let (_, phase) = shown.split_once("\"phase\": \"").unwrap();
        phase.split('"').next().unwrap().to_string()
    }

    pub fn wait(&self, what: &str, is_so: impl Fn() -> bool) {
        let give_up = Instant::now() + PATIENCE;
        while !is_so() {
            assert!(Instant::now() < give_up, "{what}: not within {PATIENCE:?}\n{}", self.logs());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The logs of server and agents, for messages.
    pub fn logs(&self) -> String {
        let logs = std::fs::read_dir(&self.folder).unwrap().flatten().map(|entry| entry.path());
        let logs = logs.filter(|path| path.extension().is_some_and(|extension| extension == "log"));
        let shown = |path: PathBuf| format!("--- {}\n{}", path.display(), std::fs::read_to_string(&path).unwrap());
        logs.map(shown).collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

/// The agent of a node, killed on drop.
pub struct AgentProcess {
    child: Child,
    log: PathBuf,
}

impl AgentProcess {
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Stops the agent as a service manager does, and waits for its end.
    pub fn terminate(self) {
        self.signal("-TERM");
        assert_eq!(self.exit_code(), Some(0));
    }

    fn exit_code(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for AgentProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

fn file_lines(path: &Path) -> usize {
    std::fs::read_to_string(path).unwrap_or_default().lines().count()
}

#[test]
fn an_agent_joins_runs_jobs_and_their_output_is_read_through_the_server() {
    let site = Site::new("join");
    let _g1 = site.joined("g1", &["--gpus", "2", "--label", "zone=b", "--rack", "r7"]);
    let shown = site.ok(&["node", "show", "g1"]);
    assert!(shown.contains("zone=b") && shown.contains("r7") && shown.contains("127.0.0.1"), "{shown}");
    let script = r"echo $MUSTER_GPUS on $MUSTER_NODES; printf 'raw \377' >&2; exit 3";
    let run = site.muster(&["run", "--quiet", "--gpus", "2", "--", "sh", "-c", script]);
    assert_eq!(run.status.code(), Some(3), "{}", site.logs());
    assert_eq!(String::from_utf8_lossy(&run.stdout), "0,1 on g1\n");
    assert_eq!(run.stderr, b"raw \xff");
    assert!(!site.folder.join("data/attempts").exists(), "the output lies on the node");
}

#[test]
fn a_gang_spans_agents() {
    let site = Site::new("gang");
    let (_g1, _g2) = (site.joined("g1", &["--gpus", "1"]), site.joined("g2", &["--gpus", "1"]));
    let script = "echo rank $MUSTER_RANK of $MUSTER_GANG_SIZE at $MUSTER_MASTER_ADDRESS";
    let job = site.ok(&["submit", "--tasks", "2", "--gpus", "1", "--", "sh", "-c", script]);
    let job = job.trim();
    site.ok(&["wait", job]);
    let output = site.ok(&["logs", job, "--rank", "all"]);
    assert!(output.contains("rank 0 of 2 at 127.0.0.1") && output.contains("rank 1 of 2 at 127.0.0.1"), "{output}");
}

/// The ranks meet at rank 0, which tells all of them the sum of their ranks.
const RENDEZVOUS: &str = r#"
import os, socket, time
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
master = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == 0:
    server = socket.create_server(master)
    peers = [server.accept()[0] for _ in range(world - 1)]
    total = sum(int(peer.recv(16)) for peer in peers)
    for peer in peers: peer.sendall(str(total).encode())
else:
    while True:
        try: peer = socket.create_connection(master); break
        except ConnectionRefusedError: time.sleep(0.05)
    peer.sendall(str(rank).encode())
    total = int(peer.recv(16))
local, node = os.environ["LOCAL_RANK"] + "/" + os.environ["LOCAL_WORLD_SIZE"], os.environ["NODE_RANK"]
hosts = open(os.environ["MUSTER_HOSTFILE"]).read().split("\n")
print("rank", rank, "of", world, "local", local, "node", node, "sum", total, "seed", os.environ["SEED"], *hosts)
"#;

#[test]
fn the_ranks_of_a_gang_meet_at_the_port_that_it_holds() {
    // Of all nodes of this test and of others that run beside it: they share the machine.
    let port = free_address().rsplit_once(':').unwrap().1.to_string();
    let site = Site::with_config("rendezvous", &format!("nodes: {{master_ports: {port}-{port}}}\n"));
    let (_g1, _g2) = (site.joined("g1", &["--gpus", "2"]), site.joined("g2", &["--gpus", "2"]));
    let words = ["submit", "--tasks", "3", "--gpus", "1", "--env", "SEED=7", "--", "python3", "-c", RENDEZVOUS];
    let job = site.ok(&words).trim().to_string();
    assert_eq!(site.muster(&["wait", &job]).status.code(), Some(0), "{}", site.ok(&["logs", &job, "--rank", "all"]));
    let output = site.ok(&["logs", &job, "--rank", "all"]);
    for (rank, local, node) in [(0, "0/2", 0), (1, "1/2", 0), (2, "0/1", 1)] {
        let line =
            format!("rank {rank} of 3 local {local} node {node} sum 3 seed 7 127.0.0.1 slots=2 127.0.0.1 slots=1");
        assert!(output.contains(&line), "{line} is missing in\n{output}");
    }
    let shown = site.ok(&["show", &job]);
    assert!(shown.contains(&format!(", master g1:{port}")), "{shown}");
}

/// The agent of one of the nodes cannot start its part: it is stopped, and its node is not suspect yet.
#[test]
fn a_gang_of_which_a_node_does_not_start_is_stopped_with_the_reason() {
    let further = "nodes: {gang_start_timeout: 1s, suspect_after: 5m, unreachable_after: 10m}\n";
    let site = Site::with_config("late", further);
    let (_g1, g2) = (site.joined("g1", &["--gpus", "1"]), site.joined("g2", &["--gpus", "1"]));
    g2.signal("-STOP");
    let job = site.ok(&["submit", "--tasks", "2", "--gpus", "1", "--", "sleep", "300"]).trim().to_string();
    site.wait("the gang is stopped", || site.ok(&["show", &job]).contains("late-start"));
    g2.signal("-CONT");
    site.wait("the gang runs", || site.phase(&job) == "Running");
    let why = site.ok(&["why", &job]);
    assert!(why.contains("`g2` had not started its tasks 1 s after the first node of the gang"), "{why}");
}

#[test]
fn jobs_outlive_a_killed_agent_and_a_killed_server() {
    let mut site = Site::new("restart");
    let agent = site.joined("g1", ONE_GPU);
    // Read on the node's disk, because nobody answers while agent and server are gone.
    let beats = site.folder.join("g1/attempts/job-1/1/rank-0.out");
    let script = "for i in $(seq 60); do echo $i; sleep 0.1; done; exit 7";
    let job = site.ok(&["submit", "--", "sh", "-c", script]).trim().to_string();
    site.wait("the job runs", || file_lines(&beats) > 3);
    agent.kill();
    site.kill_server();
    let before = file_lines(&beats);
    site.wait("the job goes on without agent and server", || file_lines(&beats) > before + 3);
    site.start_server();
    let _agent = site.agent("g1", ONE_GPU);
    assert_eq!(site.muster(&["wait", &job]).status.code(), Some(7), "{}", site.logs());
    assert_eq!(file_lines(&beats), 60, "one attempt wrote all of them");
    assert!(site.ok(&["show", &job, "-o", "json"]).contains("\"attempts\": 1"));
}

#[test]
fn an_agent_finds_its_server_again_after_a_crash() {
    let mut site = Site::new("reconnect");
    let agent = site.joined("g1", ONE_GPU);
    site.kill_server();
    site.start_server();
    let job = site.ok(&["submit", "--", "echo", "again"]).trim().to_string();
    assert_eq!(site.muster(&["wait", &job]).status.code(), Some(0), "{}", site.logs());
    assert_eq!(site.ok(&["logs", &job]), "again\n");
    assert!(agent.log().contains("no connection to a leader"), "{}", agent.log());
}

#[test]
fn an_agent_that_restarts_at_once_is_sent_its_orders() {
    let site = Site::new("quick");
    let agent = site.joined("g1", ONE_GPU);
    let job = site.ok(&["submit", "--", "sleep", "300"]).trim().to_string();
    site.wait("the job runs", || site.phase(&job) == "Running");
    agent.kill();
    let _agent = site.agent("g1", ONE_GPU);
    site.ok(&["cancel", "--wait", &job]);
    assert_eq!(site.phase(&job), "Cancelled");
}

#[test]
fn a_frozen_agent_is_suspect_and_returns() {
    let site = Site::new("frozen");
    let agent = site.joined("g1", ONE_GPU);
    agent.signal("-STOP");
    site.wait_for_node("g1", "Suspect");
    agent.signal("-CONT");
    site.wait_for_node("g1", "Ready");
    site.ok(&["run", "--", "true"]);
}

#[test]
fn a_join_token_works_once_and_for_its_node_only() {
    let site = Site::new("token");
    let url = site.join_url(&["--node", "g1"]);
    let stranger = site.agent("g2", &["--join", &url]);
    let log = stranger.log.clone();
    assert_eq!(stranger.exit_code(), Some(1));
    let text = std::fs::read_to_string(&log).unwrap();
    assert!(text.contains("the join token is for the node `g1`, not for `g2`"), "{text}");
    let _g1 = site.agent("g1", &["--join", &url, "--gpus", "1"]);
    site.wait_for_node("g1", "Ready");
    let second = site.agent("g3", &["--join", &url]);
    let log = second.log.clone();
    assert_eq!(second.exit_code(), Some(1));
    let text = std::fs::read_to_string(&log).unwrap();
    assert!(text.contains("it was used before") && text.contains("`muster node token`"), "{text}");
    // The audit log has the token's creation, and nobody sees its secret again.
    let audit = site.ok(&["audit"]);
    assert!(audit.contains("node.token"), "{audit}");
}

#[test]
fn an_agent_trusts_only_the_cluster_of_its_join_url() {
    let (site, other) = (Site::new("ca"), Site::new("ca-other"));
    let url = site.join_url(&[]);
    let (begin, _) = url.split_once("@").unwrap();
    let (_, address) = other.join_url(&[]).split_once("@").map(|(a, b)| (a.to_string(), b.to_string())).unwrap();
    let (address, _) = address.split_once("?ca=").unwrap();
    let (_, fingerprint) = url.split_once("?ca=").unwrap();
    let misled = format!("{begin}@{address}?ca={fingerprint}");
    let agent = site.agent("g1", &["--join", &misled]);
    let log = agent.log.clone();
    assert_eq!(agent.exit_code(), Some(1));
    let text = std::fs::read_to_string(&log).unwrap();
    assert!(text.contains("no server of the cluster can be reached"), "{text}");
    assert!(other.ok(&["node", "ls", "-o", "name"]).is_empty());
}

#[test]
fn a_removed_node_is_no_longer_accepted_until_it_joins_again() {
    let site = Site::new("removed");
    let agent = site.joined("g1", ONE_GPU);
    site.ok(&["node", "rm", "--yes", "g1"]);
    site.wait("the agent is told", || agent.log().contains("this node is not enrolled"));
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(site.ok(&["node", "ls", "-o", "name"]), "", "it does not register again");
    agent.kill();
    // The next start with a new join URL replaces the identity.
    let _agent = site.joined("g1", ONE_GPU);
}

#[test]
fn a_node_that_has_joined_cannot_be_taken_over_by_a_token_for_any_node() {
    let site = Site::new("takeover");
    let _agent = site.joined("g1", ONE_GPU);
    let url = site.join_url(&[]);
    let mut command = Command::new(site.folder.join("bin/muster"));
    command.args(["agent", "--node", "g1", "--data-dir", "elsewhere", "--join", &url]).current_dir(&site.folder);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("a node `g1` has joined already"), "{text}");
}

#[test]
fn bad_arguments_of_agents_and_tokens_are_explained() {
    let site = Site::new("arguments");
    let agent = site.agent("g1", ONE_GPU);
    let log = agent.log.clone();
    assert_eq!(agent.exit_code(), Some(1));
    assert!(std::fs::read_to_string(log).unwrap().contains("this node has not joined a cluster"));
    assert!(site.refused(&["agent", "--join", "http://x"]).contains("does not begin with muster://"));
    assert!(site.refused(&["node", "token", "--for", "48h"]).contains("at most 24 hours"));
    assert!(site.refused(&["node", "token", "--node", "a/b"]).contains("node"));
}

/// A program of the site that appends its name to `programs.txt`, and then does this.
fn site_program(site: &Site, name: &str, text: &str) -> String {
    use std::os::unix::fs::PermissionsExt;
    let (path, notes) = (site.folder.join(name), site.folder.join("programs.txt"));
    std::fs::write(&path, format!("#!/bin/sh\necho {name} >> {}\n{text}\n", notes.display())).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

fn agent_config(site: &Site, name: &str, lines: &[String]) -> String {
    let path = site.folder.join(name);
    std::fs::write(&path, format!("agent:\n{}\n", lines.iter().map(|line| format!("  {line}\n")).collect::<String>()))
        .unwrap();
    path.display().to_string()
}

#[test]
fn site_programs_drain_a_broken_node_and_run_once_around_a_job() {
    let site = Site::new("programs");
    let programs = |site: &Site| std::fs::read_to_string(site.folder.join("programs.txt")).unwrap_or_default();
    let open = site_program(&site, "writable", "true");
    std::fs::set_permissions(&open, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let refused = agent_config(&site, "refused.yaml", &[format!("prolog: {open}")]);
    let url = site.join_url(&[]);
    let agent = site.agent("g0", &["--join", &url, "--config", &refused]);
    let log = agent.log.clone();
    assert_ne!(agent.exit_code(), Some(0));
    let said = std::fs::read_to_string(log).unwrap();
    assert!(said.contains("`agent.prolog`") && said.contains("writable by others"), "{said}");

    // The job starts on the only node, whose prolog fails.
    let broken = site_program(&site, "broken-prolog", "echo no scratch disk; exit 3");
    let config = agent_config(&site, "broken.yaml", &[format!("prolog: {broken}")]);
    let _g1 = site.joined("g1", &["--gpus", "1", "--config", &config]);
    let job = site.ok(&["submit", "--gpus", "1", "--", "sh", "-c", "echo ran; exit 7"]);
    let job = job.trim();
    site.wait_for_node("g1", "Draining");
    let shown = site.ok(&["node", "show", "g1"]);
    assert!(shown.contains("prolog failed: exit code 3: no scratch disk"), "{shown}");
    site.wait("the job is queued again", || site.phase(job) == "Queued");
    let shown = site.ok(&["show", job, "-o", "json"]);
    assert!(shown.contains("\"requeue_count\": 0") && shown.contains("\"restart_count\": 0"), "{shown}");

    // Another node takes it; its agent is killed while the epilog runs.
    let release = site.folder.join("release");
    let prolog = site_program(&site, "prolog", "true");
    let epilog = site_program(&site, "epilog", &format!("while [ ! -e {} ]; do sleep 0.05; done", release.display()));
    let lines = [format!("prolog: {prolog}"), format!("epilog: {epilog}")];
    let config = agent_config(&site, "good.yaml", &lines);
    let g2 = site.joined("g2", &["--gpus", "1", "--config", &config]);
    site.wait("the epilog runs", || programs(&site).contains("epilog"));
    g2.kill();
    std::fs::write(&release, "").unwrap();
    let _g2 = site.agent("g2", &["--gpus", "1", "--config", &config]);
    assert_eq!(site.muster(&["wait", job]).status.code(), Some(7), "{}", site.logs());
    assert_eq!(programs(&site), "broken-prolog\nprolog\nepilog\n");
    assert!(site.ok(&["logs", job]).contains("ran"));
}

#[test]
fn a_failing_health_program_drains_its_node_and_shows_why() {
    let site = Site::new("health");
    let broken = site.folder.join("broken");
    let text = format!("[ ! -e {} ] || {{ echo ECC errors; exit 1; }}", broken.display());
    let lines =
        [format!("health_program: {}", site_program(&site, "health", &text)), "health_interval: 200ms".to_string()];
    let config = agent_config(&site, "health.yaml", &lines);
    let _g1 = site.joined("g1", &["--gpus", "1", "--config", &config]);
    std::fs::write(&broken, "").unwrap();
    site.wait_for_node("g1", "Draining");
    let shown = site.ok(&["node", "show", "g1"]);
    assert!(shown.contains("health program failed: exit code 1: ECC errors") && shown.contains("by muster"), "{shown}");
    let job = site.ok(&["submit", "--gpus", "1", "--", "true"]);
    let why = site.ok(&["why", job.trim()]);
    assert!(why.contains("out of service"), "{why}");
    std::fs::remove_file(&broken).unwrap();
    site.wait("the failure is over", || !site.ok(&["node", "show", "g1"]).contains("health program  "));
    assert_eq!(site.node_state("g1"), "Draining", "an operator returns it");
    site.ok(&["node", "undrain", "g1"]);
    site.ok(&["wait", job.trim()]);
}

#[test]
fn a_job_gets_its_early_signal_before_its_time_limit() {
    let site = Site::new("signal");
    let _g1 = site.joined("g1", &["--gpus", "1"]);
    let refused = site.refused(&["submit", "--gpus", "1", "--signal", "USR1@5", "--", "true"]);
    assert!(refused.contains("needs a time limit"), "{refused}");
    let refused = site.refused(&["submit", "--gpus", "1", "--time", "1m", "--signal", "KILL@5", "--", "true"]);
    assert!(refused.contains("`KILL` is none of"), "{refused}");
    let script = "trap 'echo saved after restart $MUSTER_RESTART_COUNT; exit 0' USR1; while true; do sleep 0.1; done";
    let job = site.ok(&["submit", "--gpus", "1", "--time", "1m", "--signal", "USR1@58", "--", "sh", "-c", script]);
    let job = job.trim();
    site.ok(&["wait", job]);
    assert!(site.ok(&["logs", job]).contains("saved after restart 0"));
    let shown = site.ok(&["show", job]);
    assert!(shown.contains("USR1@58s"), "{shown}");
    let events = site.ok(&["why", job]);
    assert!(events.contains("SIGUSR1"), "{events}");
}

//! A test harness for agents: it sends orders, collects reports and waits for them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use muster_agent::logs::{self, Stream};
use muster_agent::{
    Agent, Cluster, LauncherConfig, ReportSink, Runner, RunnerConfig, SimulatedAgents, SimulatedAgentsConfig,
};
use muster_protocol::agent::{
    AttemptOrder, AttemptSecrets, Exit, HeartbeatEcho, Orders, Report, RunSpec, StopOrder, TaskOrder,
};

/// How long a test waits for an expected condition. Long, because the machine may be busy.
pub const WAIT_TIMEOUT: Duration = Duration::from_secs(30);
/// The interval of heartbeats and repeated reports: short, so that tests are short.
pub const REPEAT_INTERVAL: Duration = Duration::from_millis(100);
/// How often the agent looks at an attempt without an event: never during a test, so each test shows that events
/// suffice.
pub const LOOK_INTERVAL: Duration = Duration::from_secs(3_600);
pub const NODE: &str = "gpu01";
pub const JOB: &str = "job-1";

/// An agent under test. Dropping the harness kills the processes that a failed test left and removes the data
/// directory.
pub struct AgentHarness {
    pub agent: Option<Box<dyn Agent>>,
    pub data_dir: PathBuf,
    reports: Arc<Mutex<Vec<Report>>>,
    generation: u64,
}

impl AgentHarness {
    pub fn with_simulated_agents() -> AgentHarness {
        AgentHarness::without_agent().with_agent(|data_dir, report_sink| {
            let registrations = Cluster::default_dev().registrations();
            let config = SimulatedAgentsConfig {
                heartbeat_interval: REPEAT_INTERVAL,
                ..SimulatedAgentsConfig::new(registrations, data_dir)
            };
            Box::new(SimulatedAgents::start(config, report_sink).unwrap())
        })
    }

    pub fn with_runner() -> AgentHarness {
        let mut harness = AgentHarness::without_agent();
        harness.start_runner();
        harness
    }

    /// A data directory and a report sink, without an agent.
    pub fn without_agent() -> AgentHarness {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let data_dir = std::env::temp_dir().join(format!("muster-agent-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&data_dir).unwrap();
        let data_dir = data_dir.canonicalize().unwrap();
        AgentHarness { agent: None, data_dir, reports: Arc::default(), generation: 0 }
    }

    pub fn with_launcher(launcher: LauncherConfig) -> AgentHarness {
        let mut harness = AgentHarness::without_agent();
        harness.start_runner_with(launcher);
        harness
    }

    /// Starts a runner as the server does, over the data directory of its predecessor.
    pub fn start_runner(&mut self) {
        self.start_runner_with(LauncherConfig::default());
    }

    pub fn start_runner_with(&mut self, launcher: LauncherConfig) {
        let config = RunnerConfig {
            node: NODE.to_string(),
            launcher,
            heartbeat_interval: REPEAT_INTERVAL,
            look_interval: LOOK_INTERVAL,
            ..RunnerConfig::new(&self.data_dir, vec![OsString::from(env!("CARGO_BIN_EXE_muster-shim"))])
        };
        self.agent = Some(Box::new(Runner::start(config, self.report_sink()).unwrap()));
    }

    /// The agent ends, and loses everything that it kept in memory.
    pub fn crash_agent(&mut self) {
        self.agent = None;
        self.reports.lock().unwrap().clear();
    }

    fn with_agent(mut self, start: impl FnOnce(&Path, ReportSink) -> Box<dyn Agent>) -> AgentHarness {
        self.agent = Some(start(&self.data_dir, self.report_sink()));
        self
    }

    pub fn report_sink(&self) -> ReportSink {
        let reports = Arc::clone(&self.reports);
        Arc::new(move |report| reports.lock().unwrap().push(report))
    }

    /// Sends orders with the next generation.
    pub fn send_orders(&mut self, attempts: Vec<AttemptOrder>) {
        self.generation += 1;
        self.send_orders_with_generation(self.generation, attempts);
    }

    /// Sends orders with the next generation, and the secrets of their attempts.
    pub fn send_orders_with_secrets(&mut self, attempts: Vec<AttemptOrder>, secrets: Vec<AttemptSecrets>) {
        self.generation += 1;
        self.deliver_orders(self.generation, attempts, secrets);
    }

    pub fn send_orders_with_generation(&mut self, generation: u64, attempts: Vec<AttemptOrder>) {
        self.deliver_orders(generation, attempts, Vec::new());
    }

    fn deliver_orders(&mut self, generation: u64, attempts: Vec<AttemptOrder>, secrets: Vec<AttemptSecrets>) {
        let (node, incarnation) = (NODE.to_string(), self.registered_incarnation());
        let orders = Orders {
            node,
            incarnation,
            epoch: 1,
            generation,
            attempts,
            nonce: 0,
            pools: Vec::new(),
            reboot_from: None,
            secrets,
        };
        self.agent.as_mut().unwrap().deliver_orders(orders);
    }

    /// The incarnation that registered last, as a server would know it.
    fn registered_incarnation(&self) -> String {
        let registered = |report: &Report| match report {
            Report::Registered(registration) if registration.node == NODE => Some(registration.incarnation.clone()),
            _ => None,
        };
        let newest = || self.reports().iter().rev().find_map(registered);
        wait_until("the agent has registered", || newest().is_some());
        newest().unwrap()
    }

    pub fn reports(&self) -> Vec<Report> {
        self.reports.lock().unwrap().clone()
    }

    /// All reported exits in order, and whether each was stopped.
    pub fn reported_exits(&self) -> Vec<(Exit, bool)> {
        let end = |report| match report {
            Report::Ended { exit, stopped, .. } => Some((exit, stopped)),
            _ => None,
        };
        self.reports().into_iter().filter_map(end).collect()
    }

    pub fn start_report_count(&self) -> usize {
        self.reports().iter().filter(|report| matches!(report, Report::Started { .. })).count()
    }

    pub fn heartbeat_count(&self) -> usize {
        self.reports().iter().filter(|report| matches!(report, Report::Heartbeat { .. })).count()
    }

    /// A leader acknowledges the newest heartbeat.
    pub fn acknowledge_heartbeat(&mut self) {
        let newest = self.reports().iter().rev().find_map(|report| match report {
            Report::Heartbeat { sent_at_boot_ms, .. } => Some(*sent_at_boot_ms),
            _ => None,
        });
        let echo = newest.map(|sent_at_boot_ms| HeartbeatEcho { node: NODE.to_string(), sent_at_boot_ms });
        self.agent.as_mut().unwrap().acknowledge_heartbeat(echo.unwrap());
    }

    pub fn acknowledge_heartbeats_for(&mut self, duration: Duration) {
        let since = Instant::now();
        while since.elapsed() < duration {
            self.wait_for_heartbeats(1);
            self.acknowledge_heartbeat();
        }
    }

    pub fn wait_for_start(&self) {
        wait_until("it has started", || self.start_report_count() > 0 || !self.reported_exits().is_empty());
        assert_eq!(self.reported_exits(), [], "it ended instead");
    }

    pub fn wait_for_exit(&self) -> Exit {
        wait_until("it has ended", || !self.reported_exits().is_empty());
        self.reported_exits()[0].0.clone()
    }

    /// Waits long enough for a wrong report to appear, counted in heartbeats of the agent.
    pub fn wait_for_heartbeats(&self, count: usize) {
        let before = self.heartbeat_count();
        wait_until("the agent sends heartbeats", || self.heartbeat_count() >= before + count);
    }

    pub fn attempt_dir(&self) -> PathBuf {
        self.data_dir.join("attempts").join(JOB).join("1")
    }

    /// The exit of the first attempt of a job.
    pub fn wait_for_exit_of(&self, name: &str) -> Exit {
        let found = || {
            self.reports().into_iter().find_map(|report| match report {
                Report::Ended { job, exit, .. } if job == name => Some(exit),
                _ => None,
            })
        };
        wait_until(&format!("{name} has ended"), || found().is_some());
        found().unwrap()
    }

    /// The cgroups of the first attempt, one in each hierarchy; empty if it has none.
    pub fn cgroups(&self) -> Vec<PathBuf> {
        let text = std::fs::read_to_string(self.attempt_dir().join("isolation.json")).unwrap_or_default();
        let paths = text.split('"').filter(|word| word.starts_with("/sys/fs/cgroup"));
        paths.map(PathBuf::from).collect()
    }

    /// The last entry of a label in the registration.
    pub fn label(&self, name: &str) -> String {
        let label = |report: &Report| match report {
            Report::Registered(registration) => registration.labels.get(name).cloned(),
            _ => None,
        };
        wait_until("the agent has registered", || !self.reports().is_empty());
        self.reports().iter().find_map(label).unwrap_or_default()
    }

    pub fn read_log(&self, rank: u32, stream: Stream) -> String {
        self.read_log_of(JOB, rank, stream)
    }

    pub fn read_log_of(&self, job: &str, rank: u32, stream: Stream) -> String {
        let path = logs::log_path(&self.data_dir, job, 1, rank, stream).unwrap();
        let (bytes, _) = logs::read_from(&path, 0, 1 << 20).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    /// The first line of the job's output, usually its pid.
    pub fn wait_for_first_line(&self) -> String {
        wait_until("there is a line in the log", || self.read_log(0, Stream::Stdout).contains('\n'));
        self.read_log(0, Stream::Stdout).lines().next().unwrap().to_string()
    }

    /// All live processes with the attempt directory in their environment.
    pub fn live_processes(&self) -> Vec<i32> {
        let environment_entry = format!("MUSTER_ATTEMPT_DIR={}", self.attempt_dir().display());
        let has_entry = |pid: &i32| {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|found| found == environment_entry.as_bytes()) && is_alive(*pid)
        };
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(has_entry).collect()
    }

    pub fn assert_no_live_processes(&self) {
        assert!(self.live_processes().is_empty(), "left behind: {:?}", self.live_processes());
    }

    /// The pid of the shim, from the launch lock.
    pub fn shim_pid(&self) -> i32 {
        let text = std::fs::read_to_string(self.attempt_dir().join("pid.json")).unwrap();
        let after = text.split("\"pid\":").nth(1).unwrap();
        after.split(|letter: char| !letter.is_ascii_digit()).next().unwrap().parse().unwrap()
    }
}

impl Drop for AgentHarness {
    fn drop(&mut self) {
        let cgroups = self.cgroups();
        self.agent = None;
        if self.attempt_dir().exists() {
            self.live_processes().into_iter().for_each(|pid| kill(pid, "KILL"));
        }
        // A shim writes its exit record last, which would create the removed directory again.
        let since = Instant::now();
        while self.has_shims() && since.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(10));
        }
        cgroups.iter().filter_map(|cgroup| cgroup.parent()).for_each(remove_cgroup);
        let _ = std::fs::remove_dir_all(&self.data_dir);
    }
}

/// Removes a cgroup with its children, after killing what a failed test has left in it.
fn remove_cgroup(dir: &Path) {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter(|entry| entry.path().is_dir()).for_each(|entry| remove_cgroup(&entry.path()));
    let processes = std::fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    processes.lines().filter_map(|pid| pid.parse().ok()).for_each(|pid| kill(pid, "KILL"));
    let since = Instant::now();
    while std::fs::remove_dir(dir).is_err() && dir.exists() && since.elapsed() < Duration::from_secs(2) {
        std::thread::sleep(Duration::from_millis(10));
    }
}

impl AgentHarness {
    /// True if a process has a path of the data directory in its arguments.
    fn has_shims(&self) -> bool {
        let data_dir = self.data_dir.to_string_lossy().into_owned();
        let mut entries = std::fs::read_dir("/proc").unwrap().flatten();
        entries.any(|entry| {
            let words = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&words).contains(&data_dir)
        })
    }
}

/// An order for one task on GPUs 1 and 3, placed now.
pub fn order(run: RunSpec) -> AttemptOrder {
    AttemptOrder {
        job: JOB.to_string(),
        attempt: 1,
        placed_at_ms: now_ms(),
        started: false,
        adopt_only: false,
        tasks: vec![TaskOrder {
            rank: 0,
            group: "task".to_string(),
            group_rank: 0,
            gpus: vec![1, 3],
            share: None,
            numa_nodes: Vec::new(),
            cpus: 1,
            memory_mib: 64,
        }],
        gang_size: 1,
        nodes: vec![NODE.to_string()],
        node_rank: 0,
        master_address: format!("{NODE}.example.org"),
        master_port: None,
        hosts: Vec::new(),
        run,
        name: "demo".to_string(),
        tenant: "vision".to_string(),
        user: "ann".to_string(),
        annotations: BTreeMap::new(),
        gpu_milliwatts_max: None,
        self_fence_ms: None,
        signal: None,
        stop: None,
    }
}

/// The same order for another job.
pub fn for_job(job: &str, order: AttemptOrder) -> AttemptOrder {
    AttemptOrder { job: job.to_string(), ..order }
}

/// True if this process has root's rights. Otherwise the test is skipped with a message, and fails in CI, where a test that
/// never runs would look like a protection that holds.
pub fn is_root() -> bool {
    if rustix::process::geteuid().is_root() {
        return true;
    }
    let is_ci = std::env::var("CI").is_ok_and(|value| value == "true");
    let is_waived = std::env::var_os("MUSTER_TESTS_WITHOUT_ROOT").is_some();
    assert!(!is_ci || is_waived, "this test needs root; set MUSTER_TESTS_WITHOUT_ROOT=1 where CI has no root");
    eprintln!("skipped: this test needs root");
    false
}

pub fn script(text: &str) -> RunSpec {
    RunSpec { script: Some(text.to_string()), ..RunSpec::default() }
}

pub fn command(words: &[&str]) -> RunSpec {
    RunSpec { command: words.iter().map(|word| word.to_string()).collect(), ..RunSpec::default() }
}

pub fn with_stop(order: &AttemptOrder, grace_ms: i64) -> AttemptOrder {
    let stop = StopOrder { since_ms: now_ms(), grace_ms, why: "cancelled".to_string() };
    AttemptOrder { stop: Some(stop), started: true, ..order.clone() }
}

pub fn now_ms() -> i64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as i64
}

pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < WAIT_TIMEOUT, "timed out waiting until {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub fn is_alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

pub fn kill(pid: i32, signal: &str) {
    let _ = std::process::Command::new("kill").arg(format!("-{signal}")).arg(pid.to_string()).output();
}

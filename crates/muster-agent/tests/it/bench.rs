//! A bench for agents: an ear for their reports, orders to give, and patience.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use muster_agent::logs::{self, Stream};
use muster_agent::{Agent, Cluster, Mouth, Runner, RunnerConfig, Simulated, SimulatedConfig};
use muster_protocol::agent::{Exit, Order, Orders, Report, Run, Stop, TaskOrder};

/// How long a test waits for something that must happen. Long, because the machine may be busy.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// How often agents repeat themselves here: quickly, so that tests are short.
pub const PACE: Duration = Duration::from_millis(100);
pub const NODE: &str = "gpu01";
pub const JOB: &str = "job-1";

/// An agent on the bench. Its data folder is removed with it, and so is what a failed test left running.
pub struct Bench {
    pub agent: Option<Box<dyn Agent>>,
    pub data_dir: PathBuf,
    heard: Arc<Mutex<Vec<Report>>>,
    generation: u64,
}

impl Bench {
    pub fn simulated() -> Bench {
        Bench::empty().with(|data_dir, mouth| {
            let registrations = Cluster::default_dev().registrations();
            let config = SimulatedConfig { heartbeat: PACE, ..SimulatedConfig::new(registrations, data_dir) };
            Box::new(Simulated::start(config, mouth).unwrap())
        })
    }

    pub fn real() -> Bench {
        let mut bench = Bench::empty();
        bench.start_runner();
        bench
    }

    /// A data folder and an ear, without an agent.
    pub fn empty() -> Bench {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let data_dir = std::env::temp_dir().join(format!("muster-agent-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&data_dir).unwrap();
        let data_dir = data_dir.canonicalize().unwrap();
        Bench { agent: None, data_dir, heard: Arc::default(), generation: 0 }
    }

    /// A runner as the server would start it, on what the last one left.
    pub fn start_runner(&mut self) {
        let config = RunnerConfig {
            node: NODE.to_string(),
            heartbeat: PACE,
            ..RunnerConfig::new(&self.data_dir, vec![OsString::from(env!("CARGO_BIN_EXE_muster-shim"))])
        };
        self.agent = Some(Box::new(Runner::start(config, self.mouth()).unwrap()));
    }

    /// The agent is gone from one moment to the next, and everything it knew.
    pub fn crash(&mut self) {
        self.agent = None;
        self.heard.lock().unwrap().clear();
    }

    fn with(mut self, start: impl FnOnce(&Path, Mouth) -> Box<dyn Agent>) -> Bench {
        self.agent = Some(start(&self.data_dir, self.mouth()));
        self
    }

    pub fn mouth(&self) -> Mouth {
        let heard = Arc::clone(&self.heard);
        Arc::new(move |report| heard.lock().unwrap().push(report))
    }

    /// Newer orders than all before.
    pub fn order(&mut self, attempts: Vec<Order>) {
        self.generation += 1;
        self.order_as(self.generation, attempts);
    }

    pub fn order_as(&mut self, generation: u64, attempts: Vec<Order>) {
        let (node, incarnation) = (NODE.to_string(), self.incarnation());
        let orders = Orders { node, incarnation, epoch: 1, generation, attempts, pools: Vec::new() };
        self.agent.as_mut().unwrap().obey(orders);
    }

    /// The agent that registered last, as a server would know it.
    fn incarnation(&self) -> String {
        let registered = |report: &Report| match report {
            Report::Registered(registration) if registration.node == NODE => {
                Some(registration.incarnation.clone())
            }
            _ => None,
        };
        let newest = || self.heard().iter().rev().find_map(registered);
        wait_until("the agent has registered", || newest().is_some());
        newest().unwrap()
    }

    pub fn heard(&self) -> Vec<Report> {
        self.heard.lock().unwrap().clone()
    }

    /// All ends that were said, in order.
    pub fn ends(&self) -> Vec<(Exit, bool)> {
        let end = |report| match report {
            Report::Ended { exit, stopped, .. } => Some((exit, stopped)),
            _ => None,
        };
        self.heard().into_iter().filter_map(end).collect()
    }

    pub fn starts(&self) -> usize {
        self.heard().iter().filter(|report| matches!(report, Report::Started { .. })).count()
    }

    pub fn beats(&self) -> usize {
        self.heard().iter().filter(|report| matches!(report, Report::Heartbeat { .. })).count()
    }

    pub fn await_start(&self) {
        wait_until("it has started", || self.starts() > 0 || !self.ends().is_empty());
        assert_eq!(self.ends(), [], "it ended instead");
    }

    pub fn await_end(&self) -> Exit {
        wait_until("it has ended", || !self.ends().is_empty());
        self.ends()[0].0.clone()
    }

    /// Enough time for anything wrong to happen, counted in the agent's own heartbeats.
    pub fn await_beats(&self, count: usize) {
        let before = self.beats();
        wait_until("the agent goes on", || self.beats() >= before + count);
    }

    pub fn attempt_dir(&self) -> PathBuf {
        self.data_dir.join("attempts").join(JOB).join("1")
    }

    pub fn log(&self, rank: u32, stream: Stream) -> String {
        let path = logs::log_path(&self.data_dir, JOB, 1, rank, stream).unwrap();
        let (bytes, _) = logs::read_from(&path, 0, 1 << 20).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    /// What a job wrote into its output once it has written a whole line: usually its pid.
    pub fn first_line(&self) -> String {
        wait_until("there is a line in the log", || self.log(0, Stream::Stdout).contains('\n'));
        self.log(0, Stream::Stdout).lines().next().unwrap().to_string()
    }

    /// All living processes that bear the mark of the attempt.
    pub fn processes(&self) -> Vec<i32> {
        let mark = format!("MUSTER_ATTEMPT_DIR={}", self.attempt_dir().display());
        let marked = |pid: &i32| {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|entry| entry == mark.as_bytes()) && is_alive(*pid)
        };
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(marked).collect()
    }

    pub fn assert_nothing_left(&self) {
        assert!(self.processes().is_empty(), "left behind: {:?}", self.processes());
    }

    /// The shim's pid, from its record.
    pub fn shim_pid(&self) -> i32 {
        let text = std::fs::read_to_string(self.attempt_dir().join("pid.json")).unwrap();
        let after = text.split("\"pid\":").nth(1).unwrap();
        after.split(|letter: char| !letter.is_ascii_digit()).next().unwrap().parse().unwrap()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.agent = None;
        if self.attempt_dir().exists() {
            self.processes().into_iter().for_each(|pid| kill(pid, "KILL"));
        }
        // A shim writes its exit record last; without it the folder would come back after we removed it.
        let since = Instant::now();
        while self.has_shims() && since.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = std::fs::remove_dir_all(&self.data_dir);
    }
}

impl Bench {
    /// Whether a process was started with a path in our data folder.
    fn has_shims(&self) -> bool {
        let ours = self.data_dir.to_string_lossy().into_owned();
        let mut entries = std::fs::read_dir("/proc").unwrap().flatten();
        entries.any(|entry| {
            let words = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&words).contains(&ours)
        })
    }
}

/// An order for one task on GPU 1, placed now.
pub fn order(run: Run) -> Order {
    Order {
        job: JOB.to_string(),
        attempt: 1,
        placed_at_ms: now_ms(),
        started: false,
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
        run,
        name: "demo".to_string(),
        tenant: "vision".to_string(),
        user: "ann".to_string(),
        annotations: BTreeMap::new(),
        gpu_milliwatts_max: None,
        stop: None,
    }
}

pub fn script(text: &str) -> Run {
    Run { script: Some(text.to_string()), ..Run::default() }
}

pub fn command(words: &[&str]) -> Run {
    Run { command: words.iter().map(|word| word.to_string()).collect(), ..Run::default() }
}

pub fn stopped(order: &Order, grace_ms: i64) -> Order {
    let stop = Stop { since_ms: now_ms(), grace_ms, why: "cancelled".to_string() };
    Order { stop: Some(stop), started: true, ..order.clone() }
}

pub fn now_ms() -> i64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as i64
}

pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < PATIENCE, "waited in vain until {what}");
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

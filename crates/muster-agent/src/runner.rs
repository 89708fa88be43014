//! Adapter (Agent): real processes on this machine. Step 10, run, and step 11, report.
//!
//! Each attempt has a directory (`attempt_dir.rs`) and runs under a shim (`shim.rs`). The [`Reconciler`] makes the
//! decisions; this file adds the thread, the clocks and the report sink.
//!
//! Tasks run as the user of the agent. Dropping privileges, cgroups and secrets come with the network agent.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use muster_protocol::agent::{Orders, RegisteredGpu, Registration};

use crate::agent::{Agent, ReportSink};
use crate::agent_thread::{AgentLoop, AgentThread};
use crate::clock::ClockReading;
use crate::error::AgentError;
use crate::machine::LinuxMachine;
use crate::reconciler::Reconciler;
use crate::{inventory, proc};

/// The configuration of the agent of this machine.
#[derive(Debug, Clone)]
pub struct RunnerConfig {
    pub node: String,
    /// Contains the attempt directories.
    pub data_dir: PathBuf,
    /// The command of the shim, to which the attempt directory is appended. Usually `[current_exe, "shim"]`.
    pub shim_command: Vec<OsString>,
    /// The GPUs to register. They are simulated: real ones are not discovered yet.
    pub gpus: Vec<RegisteredGpu>,
    /// The interval of heartbeats, and of repeating a report until the orders acknowledge it.
    pub heartbeat_interval: Duration,
}

impl RunnerConfig {
    /// This machine under its host name, without GPUs, with a heartbeat every second.
    pub fn new(data_dir: impl Into<PathBuf>, shim_command: Vec<OsString>) -> RunnerConfig {
        RunnerConfig {
            node: inventory::local_node_name(),
            data_dir: data_dir.into(),
            shim_command,
            gpus: Vec::new(),
            heartbeat_interval: Duration::from_secs(1),
        }
    }
}

/// The agent of this machine.
#[derive(Debug)]
pub struct Runner {
    nodes: Vec<String>,
    thread: AgentThread,
}

impl Runner {
    /// Starts the agent thread. The node registers at once; attempts are touched only after the first orders.
    pub fn start(config: RunnerConfig, report_sink: ReportSink) -> Result<Runner, AgentError> {
        if config.shim_command.is_empty() {
            return Err(AgentError::NoShimCommand);
        }
        let nodes = vec![config.node.clone()];
        let repeat_interval_ms = i64::try_from(config.heartbeat_interval.as_millis()).unwrap_or(i64::MAX).max(1);
        let machine = LinuxMachine::open(&config.data_dir, config.shim_command)?;
        let incarnation = proc::random_uuid()?;
        let registration = Registration { incarnation, ..inventory::local_registration(&config.node, config.gpus)? };
        let reconciler = Reconciler::new(registration, repeat_interval_ms, machine);
        let runner_loop = RunnerLoop { reconciler, report_sink, started_at: Instant::now() };
        let thread = AgentThread::start("runner", runner_loop).map_err(AgentError::ThreadSpawn)?;
        Ok(Runner { nodes, thread })
    }
}

impl Agent for Runner {
    fn nodes(&self) -> &[String] {
        &self.nodes
    }

    fn deliver_orders(&mut self, orders: Orders) {
        self.thread.send_orders(orders);
    }

    fn shutdown(&mut self) {
        self.thread.stop();
    }
}

/// The reconciler of this machine, with its clocks and the report sink.
struct RunnerLoop {
    reconciler: Reconciler<LinuxMachine>,
    report_sink: ReportSink,
    started_at: Instant,
}

impl AgentLoop for RunnerLoop {
    fn step(&mut self, now_ms: i64, orders: Option<Orders>) -> i64 {
        let monotonic_ms = i64::try_from(self.started_at.elapsed().as_millis()).unwrap_or(i64::MAX);
        let now = ClockReading { wall_ms: now_ms, monotonic_ms };
        self.reconciler.reconcile(now, orders, &mut |report| (self.report_sink)(report))
    }
}

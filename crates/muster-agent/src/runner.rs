//! Adapter (Agent): real processes on this machine. Step 10, run, and step 11, report.
//!
//! Each attempt has a directory (`attempt_dir.rs`) and runs under a shim (`shim.rs`). The [`Reconciler`] makes the
//! decisions; this file adds the thread, the clocks and the report sink.
//!
//! The launcher (`launcher.rs`) decides how the tasks of an attempt are isolated.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use muster_protocol::agent::{HeartbeatEcho, Orders, RegisteredGpu, Registration};

use crate::agent::{Agent, ReportSink};
use crate::agent_thread::{AgentInput, AgentLoop, AgentThread};
use crate::clock::{self, ClockReading};
use crate::error::AgentError;
use crate::health_program::{HealthProgram, HealthProgramConfig};
use crate::image_cache::{ImageCache, ImageCacheConfig};
use crate::launcher::LauncherConfig;
use crate::machine::LinuxMachine;
use crate::reboot::Rebooter;
use crate::reconciler::{self, Reconciler};
use crate::{inventory, proc};
use rustix::fd::BorrowedFd;

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
    /// Address for the tasks of gangs on other nodes; empty if unknown.
    pub address: String,
    pub labels: BTreeMap<String, String>,
    pub rack: Option<String>,
    /// How jobs are isolated from the machine and from each other.
    pub launcher: LauncherConfig,
    /// The interval of heartbeats, and of repeating a report until the orders acknowledge it.
    pub heartbeat_interval: Duration,
    /// How often an attempt is looked at without an event. Covers events that were lost.
    pub look_interval: Duration,
}

impl RunnerConfig {
    /// This machine under its host name, without GPUs, with a heartbeat every second.
    pub fn new(data_dir: impl Into<PathBuf>, shim_command: Vec<OsString>) -> RunnerConfig {
        RunnerConfig {
            node: inventory::local_node_name(),
            data_dir: data_dir.into(),
            shim_command,
            gpus: Vec::new(),
            address: String::new(),
            labels: BTreeMap::new(),
            rack: None,
            launcher: LauncherConfig::default(),
            heartbeat_interval: Duration::from_secs(1),
            look_interval: reconciler::LOOK_INTERVAL,
        }
    }
}

/// The agent of this machine.
#[derive(Debug)]
pub struct Runner {
    nodes: Vec<String>,
    incarnation: String,
    thread: AgentThread,
    health_program: Option<HealthProgram>,
}

impl Runner {
    /// Starts the agent thread. The node registers at once; attempts are touched only after the first orders.
    pub fn start(config: RunnerConfig, report_sink: ReportSink) -> Result<Runner, AgentError> {
        if config.shim_command.is_empty() {
            return Err(AgentError::NoShimCommand);
        }
        let nodes = vec![config.node.clone()];
        let repeat_interval_ms = i64::try_from(config.heartbeat_interval.as_millis()).unwrap_or(i64::MAX).max(1);
        let (shim_command, programs) = (config.shim_command.clone(), config.launcher.programs.clone());
        let machine = LinuxMachine::open(&config.node, &config.data_dir, config.shim_command, config.launcher)?;
        let (incarnation, mut labels) = (proc::random_uuid()?, machine.labels());
        labels.extend(config.labels);
        let registration = Registration {
            incarnation: incarnation.clone(),
            boot_id: proc::boot_id()?,
            address: config.address,
            labels,
            rack: config.rack,
            ..inventory::local_registration(&config.node, config.gpus)?
        };
        let health_program = programs.health_program().map(|program| {
            let (node, data_dir) = (config.node.clone(), config.data_dir.clone());
            let (incarnation, interval) = (incarnation.clone(), programs.health_interval);
            let config = HealthProgramConfig { node, incarnation, program, interval, shim_command, data_dir };
            HealthProgram::start(config, report_sink.clone())
        });
        let image_cache = machine.image_cache().map(|(runtime, max_mib)| {
            ImageCache::start(ImageCacheConfig { runtime, data_dir: config.data_dir.clone(), max_mib })
        });
        let report_sink = match image_cache.transpose()? {
            Some(cache) => cache.watching(report_sink),
            None => report_sink,
        };
        let unkillable_after_ms = machine.unkillable_after_ms();
        let reconciler = Reconciler::new(registration, repeat_interval_ms, machine)
            .with_look_interval(config.look_interval)
            .with_unkillable_after(unkillable_after_ms);
        let rebooter = Rebooter::new(&config.node, &incarnation, programs.reboot, report_sink.clone());
        let runner_loop = RunnerLoop { reconciler, rebooter, report_sink };
        let thread = AgentThread::start("runner", runner_loop).map_err(AgentError::ThreadSpawn)?;
        Ok(Runner { nodes, incarnation, thread, health_program: health_program.transpose()? })
    }

    /// Id of this start of the agent, as in its reports.
    pub fn incarnation(&self) -> &str {
        &self.incarnation
    }
}

impl Agent for Runner {
    fn nodes(&self) -> &[String] {
        &self.nodes
    }

    fn deliver_orders(&mut self, orders: Orders) {
        self.thread.send(AgentInput::Orders(orders));
    }

    fn acknowledge_heartbeat(&mut self, echo: HeartbeatEcho) {
        self.thread.send(AgentInput::HeartbeatEcho(echo));
    }

    fn shutdown(&mut self) {
        self.health_program = None;
        self.thread.stop();
    }
}

/// The reconciler of this machine, with its clocks and the report sink.
struct RunnerLoop {
    reconciler: Reconciler<LinuxMachine>,
    rebooter: Rebooter,
    report_sink: ReportSink,
}

impl AgentLoop for RunnerLoop {
    fn step(&mut self, now_ms: i64, input: Option<AgentInput>) -> i64 {
        let now = ClockReading { wall_ms: now_ms, monotonic_ms: clock::boot_now_ms() };
        let orders = match input {
            Some(AgentInput::Orders(orders)) => Some(orders),
            Some(AgentInput::HeartbeatEcho(echo)) => {
                self.reconciler.acknowledge_heartbeat(echo.sent_at_boot_ms);
                None
            }
            None => None,
        };
        let next_ms = self.reconciler.reconcile(now, orders, &mut |report| (self.report_sink)(report));
        if self.reconciler.is_reboot_due() {
            self.rebooter.reboot(now.monotonic_ms);
        }
        next_ms
    }

    fn events(&self) -> Option<BorrowedFd<'_>> {
        Some(self.reconciler.machine().events())
    }
}

//! Adapter (Agent): the agents of a whole cluster, simulated on one thread.
//!
//! Each node has the reconciler of real agents over a simulated machine. An attempt runs for the time in its annotation
//! `muster.sim/runtime`; further annotations heat its GPUs, refuse its launch or ignore its stop. The pure
//! [`SimulatedCluster`] makes the decisions; this file adds the thread, the clocks, the report sink and the log files.
//! No state is kept on disk: the end of an attempt follows from its order, so the same deadlines hold after a restart.

mod annotations;
mod effect;
mod gpu_temperatures;
mod log_text;
mod node;
mod simulated_cluster;
mod simulated_machine;
mod simulated_shim;

use std::path::PathBuf;
use std::time::Duration;

use muster_protocol::agent::{HeartbeatEcho, Orders, Registration};

use crate::agent::{Agent, ReportSink};
use crate::agent_thread::{AgentInput, AgentLoop, AgentThread};
use crate::clock::{self, ClockReading};
use crate::error::AgentError;
use crate::logs;

pub use effect::{LogLine, ReportIntervals, SimulatedEffect};
pub use simulated_cluster::{SimulatedCluster, SimulatedInput};

/// The configuration of the agents of a simulated cluster.
#[derive(Debug, Clone)]
pub struct SimulatedAgentsConfig {
    /// The nodes to simulate.
    pub registrations: Vec<Registration>,
    /// Contains the logs, in the layout of real attempts.
    pub data_dir: PathBuf,
    /// The interval of heartbeats, and of repeating a report until the orders acknowledge it.
    pub heartbeat_interval: Duration,
    /// The interval of readings of warm GPUs.
    pub reading_interval: Duration,
    /// The interval of readings of every GPU.
    pub health_check_interval: Duration,
}

impl SimulatedAgentsConfig {
    /// Heartbeats and readings every second, health checks twice a minute.
    pub fn new(registrations: Vec<Registration>, data_dir: impl Into<PathBuf>) -> SimulatedAgentsConfig {
        SimulatedAgentsConfig {
            registrations,
            data_dir: data_dir.into(),
            heartbeat_interval: Duration::from_secs(1),
            reading_interval: Duration::from_secs(1),
            health_check_interval: Duration::from_secs(30),
        }
    }

    fn report_intervals(&self) -> ReportIntervals {
        let ms = |interval: Duration| i64::try_from(interval.as_millis()).unwrap_or(i64::MAX).max(1);
        ReportIntervals {
            heartbeat_ms: ms(self.heartbeat_interval),
            readings_ms: ms(self.reading_interval),
            health_checks_ms: ms(self.health_check_interval),
        }
    }
}

/// The agents of a simulated cluster.
#[derive(Debug)]
pub struct SimulatedAgents {
    nodes: Vec<String>,
    thread: AgentThread,
}

impl SimulatedAgents {
    /// Starts the thread. Each node registers at once.
    pub fn start(config: SimulatedAgentsConfig, report_sink: ReportSink) -> Result<SimulatedAgents, AgentError> {
        let nodes = config.registrations.iter().map(|registration| registration.node.clone()).collect();
        let intervals = config.report_intervals();
        let cluster = SimulatedCluster::new(config.registrations, intervals);
        let simulated_loop = SimulatedLoop { cluster, data_dir: config.data_dir, report_sink };
        let thread = AgentThread::start("simulated", simulated_loop).map_err(AgentError::ThreadSpawn)?;
        Ok(SimulatedAgents { nodes, thread })
    }
}

impl Agent for SimulatedAgents {
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
        self.thread.stop();
    }
}

/// The simulated cluster, with its effects on reports and log files.
struct SimulatedLoop {
    cluster: SimulatedCluster,
    data_dir: PathBuf,
    report_sink: ReportSink,
}

impl AgentLoop for SimulatedLoop {
    fn step(&mut self, now_ms: i64, input: Option<AgentInput>) -> i64 {
        let now = ClockReading { wall_ms: now_ms, monotonic_ms: clock::boot_now_ms() };
        let input = match input {
            Some(AgentInput::Orders(orders)) => SimulatedInput::Orders(orders),
            Some(AgentInput::HeartbeatEcho(echo)) => SimulatedInput::HeartbeatEcho(echo),
            None => SimulatedInput::Tick,
        };
        for effect in self.cluster.step(now, input) {
            match effect {
                SimulatedEffect::SendReport(report) => (self.report_sink)(report),
                SimulatedEffect::WriteLog(line) => self.write_log(&line),
            }
        }
        let wait_ms = self.cluster.wake_at_ms().saturating_sub(now.monotonic_ms);
        now_ms.saturating_add(wait_ms)
    }
}

impl SimulatedLoop {
    /// Best effort: a log that cannot be written does not change the end of the attempt.
    fn write_log(&self, line: &LogLine) {
        let path = logs::log_path(&self.data_dir, &line.job, line.attempt, line.rank, line.stream);
        let written = path
            .map_err(AgentError::from)
            .and_then(|path| logs::append_once(&path, &line.text).map_err(|source| AgentError::Write { path, source }));
        if let Err(error) = written {
            tracing::warn!(job = line.job, "cannot write the log of a simulated attempt: {error}");
        }
    }
}

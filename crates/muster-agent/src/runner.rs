//! Adapter (Agent): real processes on this machine. Step 10, run, and step 11, report.
//!
//! Each attempt lives in a folder (`folder.rs`) and under a shim (`shim.rs`). What to do about it is decided
//! by the [`Desk`]; here is only the thread, the clocks and the mouth.
//!
//! Tasks run as the agent's own user. Dropping privileges, cgroups and secrets come with the network agent.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use muster_protocol::agent::{Gpu, Orders, Registration};

use crate::desk::{Desk, Moment};
use crate::driver::{Driver, Turn};
use crate::error::AgentError;
use crate::machine::Linux;
use crate::port::{Agent, Mouth};
use crate::{inventory, proc};

/// How to run processes here.
#[derive(Debug, Clone)]
pub struct RunnerConfig {
    /// The name of this node.
    pub node: String,
    /// Where the folders of the attempts are.
    pub data_dir: PathBuf,
    /// What to start as shim; the folder of the attempt is added. Usually `[current_exe, "shim"]`.
    pub shim_command: Vec<OsString>,
    /// Devices to announce. They are simulated: nothing looks for real ones yet.
    pub gpus: Vec<Gpu>,
    /// How often the node says that it is there, and how often a report is repeated until it was heard.
    pub heartbeat: Duration,
}

impl RunnerConfig {
    /// This machine under its host name, without GPUs, with a heartbeat each second.
    pub fn new(data_dir: impl Into<PathBuf>, shim_command: Vec<OsString>) -> RunnerConfig {
        RunnerConfig {
            node: inventory::local_name(),
            data_dir: data_dir.into(),
            shim_command,
            gpus: Vec::new(),
            heartbeat: Duration::from_secs(1),
        }
    }
}

/// The agent of this machine.
#[derive(Debug)]
pub struct Runner {
    nodes: Vec<String>,
    driver: Driver,
}

impl Runner {
    /// Start. The node registers at once; attempts are touched only after the first orders.
    pub fn start(config: RunnerConfig, mouth: Mouth) -> Result<Runner, AgentError> {
        if config.shim_command.is_empty() {
            return Err(AgentError::NoShim);
        }
        let nodes = vec![config.node.clone()];
        let every_ms = i64::try_from(config.heartbeat.as_millis()).unwrap_or(i64::MAX).max(1);
        let machine = Linux::open(&config.data_dir, config.shim_command)?;
        let incarnation = proc::fresh_id()?;
        let registration = Registration { incarnation, ..inventory::local(&config.node, config.gpus)? };
        let desk = Desk::new(registration, every_ms, machine);
        let stage = Stage { desk, mouth, began: Instant::now() };
        let driver = Driver::start("runner", stage).map_err(AgentError::Thread)?;
        Ok(Runner { nodes, driver })
    }
}

impl Agent for Runner {
    fn nodes(&self) -> &[String] {
        &self.nodes
    }

    fn obey(&mut self, orders: Orders) {
        self.driver.send(orders);
    }

    fn shutdown(&mut self) {
        self.driver.stop();
    }
}

/// The desk over this machine, with its clocks and its mouth.
struct Stage {
    desk: Desk<Linux>,
    mouth: Mouth,
    began: Instant,
}

impl Turn for Stage {
    fn turn(&mut self, now_ms: i64, orders: Option<Orders>) -> i64 {
        let mono_ms = i64::try_from(self.began.elapsed().as_millis()).unwrap_or(i64::MAX);
        let now = Moment { wall_ms: now_ms, mono_ms };
        self.desk.turn(now, orders, &mut |report| (self.mouth)(report))
    }
}

//! Adapter (Agent): a whole cluster played by one thread.
//!
//! Attempts take the time their annotation `muster.sim/runtime` says, heat their GPUs, refuse to start or to
//! stop on request. What happens is decided by the pure [`World`]; here is only the thread, the clock, the
//! mouth and the log files. Nothing is kept: an attempt's end follows from its order, so that after a restart
//! the same deadlines hold.

mod fate;
mod heat;
mod node;
mod wishes;
mod world;

use std::path::PathBuf;
use std::time::Duration;

use muster_protocol::agent::{Orders, Registration};

use crate::driver::{Driver, Turn};
use crate::error::AgentError;
use crate::logs;
use crate::port::{Agent, Mouth};

pub use world::{Act, Input, LogLine, Paces, World};

/// How to play a cluster.
#[derive(Debug, Clone)]
pub struct SimulatedConfig {
    /// The nodes to play.
    pub registrations: Vec<Registration>,
    /// Where the logs go; the same folder as for real attempts.
    pub data_dir: PathBuf,
    /// How often nodes say that they are there, and how often a report is repeated until it was heard.
    pub heartbeat: Duration,
    /// How often GPUs that are not at rest are read.
    pub readings: Duration,
    /// How often every GPU is read.
    pub health_checks: Duration,
}

impl SimulatedConfig {
    /// Heartbeats and readings each second, health checks twice a minute.
    pub fn new(registrations: Vec<Registration>, data_dir: impl Into<PathBuf>) -> SimulatedConfig {
        SimulatedConfig {
            registrations,
            data_dir: data_dir.into(),
            heartbeat: Duration::from_secs(1),
            readings: Duration::from_secs(1),
            health_checks: Duration::from_secs(30),
        }
    }

    fn paces(&self) -> Paces {
        let ms = |pause: Duration| i64::try_from(pause.as_millis()).unwrap_or(i64::MAX).max(1);
        Paces {
            heartbeat_ms: ms(self.heartbeat),
            readings_ms: ms(self.readings),
            health_checks_ms: ms(self.health_checks),
        }
    }
}

/// The agents of a simulated cluster.
#[derive(Debug)]
pub struct Simulated {
    nodes: Vec<String>,
    driver: Driver,
}

impl Simulated {
    /// Start playing. Each node registers at once.
    pub fn start(config: SimulatedConfig, mouth: Mouth) -> Result<Simulated, AgentError> {
        let nodes = config.registrations.iter().map(|registration| registration.node.clone()).collect();
        let paces = config.paces();
        let world = World::new(config.registrations, paces);
        let stage = Stage { world, data_dir: config.data_dir, mouth };
        let driver = Driver::start("simulated", stage).map_err(AgentError::Thread)?;
        Ok(Simulated { nodes, driver })
    }
}

impl Agent for Simulated {
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

/// The world, with its effects on ours.
struct Stage {
    world: World,
    data_dir: PathBuf,
    mouth: Mouth,
}

impl Turn for Stage {
    fn turn(&mut self, now_ms: i64, orders: Option<Orders>) -> i64 {
        let input = orders.map_or(Input::Tick, Input::Orders);
        for act in self.world.step(now_ms, input) {
            match act {
                Act::Say(report) => (self.mouth)(report),
                Act::Log(line) => self.write(&line),
            }
        }
        self.world.wake_at_ms()
    }
}

impl Stage {
    /// A log that cannot be written is a pity, not a reason to end the attempt otherwise than it was told.
    fn write(&self, line: &LogLine) {
        let path = logs::log_path(&self.data_dir, &line.job, line.attempt, line.rank, line.stream);
        let written = path.map_err(AgentError::from).and_then(|path| {
            logs::append_once(&path, &line.text).map_err(|source| AgentError::Write { path, source })
        });
        if let Err(error) = written {
            tracing::warn!(job = line.job, "the log of a simulated attempt is incomplete: {error}");
        }
    }
}

//! Adapter (Agent): real processes on this machine. Step 10, run, and step 11, report.
//!
//! Each attempt lives in a folder (`folder.rs`) and under a shim (`shim.rs`); the runner holds no truth of its own.
//! At each look it reads how the attempt stands (`standing.rs`), decides what follows (`act.rs`) and does it
//! (`held.rs`). So a runner that starts anew goes on where the last one ended: it adopts what lives, reports what
//! ended meanwhile, and never launches an attempt that has left a trace.
//!
//! Tasks run as the agent's own user. Dropping privileges, cgroups and secrets come with the network agent.

mod act;
mod held;
mod standing;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use muster_protocol::agent::{Gpu, Order, Orders, Registration, Report};

use crate::driver::{Driver, Turn};
use crate::error::AgentError;
use crate::newest::Newest;
use crate::pace::Pace;
use crate::port::{Agent, Mouth};
use crate::{folder, inventory, logs, proc};

use held::Held;

/// How often attempts are looked at. The server's own work takes longer than this.
const LOOK_MS: i64 = 100;

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
        let desk = Desk::open(config, mouth)?;
        let driver = Driver::start("runner", desk).map_err(AgentError::Thread)?;
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

/// What does not change while the runner lives.
struct Site {
    node: String,
    data_dir: PathBuf,
    boot_id: String,
    shim_command: Vec<OsString>,
    every_ms: i64,
    mouth: Mouth,
}

/// The runner's work, on its thread.
struct Desk {
    site: Site,
    registration: Registration,
    newest: Newest,
    heartbeat: Pace,
    held: BTreeMap<(String, u32), Held>,
    /// The folders of former attempts were looked through.
    has_looked_back: bool,
}

impl Desk {
    fn open(config: RunnerConfig, mouth: Mouth) -> Result<Desk, AgentError> {
        let unusable = |source| AgentError::Write { path: config.data_dir.clone(), source };
        logs::make_private_dir(&config.data_dir.join("attempts")).map_err(unusable)?;
        let site = Site {
            node: config.node.clone(),
            // A shim has its own working directory, and marks are compared as text: the path must be absolute.
            data_dir: config.data_dir.canonicalize().map_err(unusable)?,
            boot_id: proc::boot_id()?,
            shim_command: config.shim_command,
            every_ms: i64::try_from(config.heartbeat.as_millis()).unwrap_or(i64::MAX).max(1),
            mouth,
        };
        Ok(Desk {
            registration: inventory::local(&config.node, config.gpus)?,
            site,
            newest: Newest::default(),
            heartbeat: Pace::default(),
            held: BTreeMap::new(),
            has_looked_back: false,
        })
    }

    fn say_presence(&mut self, now_ms: i64) {
        if !self.heartbeat.has_begun() {
            (self.site.mouth)(Report::Registered(Box::new(self.registration.clone())));
        }
        if self.heartbeat.is_due(now_ms, self.site.every_ms) {
            (self.site.mouth)(Report::Heartbeat { node: self.site.node.clone() });
        }
    }

    /// Take over orders, unless they are older than what we follow or meant for someone else.
    fn obey(&mut self, orders: Orders) {
        if orders.node != self.site.node {
            tracing::warn!(node = orders.node, "orders for a node that is not this one");
            return;
        }
        if !self.newest.accepts(&orders) {
            return;
        }
        self.look_back();
        let named: BTreeSet<_> =
            orders.attempts.iter().map(|order| (order.job.clone(), order.attempt)).collect();
        for (key, held) in &mut self.held {
            if !named.contains(key) {
                held.order = None;
            }
        }
        orders.attempts.into_iter().for_each(|order| self.hold(order));
    }

    fn hold(&mut self, order: Order) {
        let key = (order.job.clone(), order.attempt);
        if let Some(held) = self.held.get_mut(&key) {
            held.order = Some(order);
            return;
        }
        match Held::new(&self.site, &key, Some(order)) {
            Ok(held) => drop(self.held.insert(key, held)),
            Err(error) => tracing::error!(job = key.0, "an order cannot be followed: {error}"),
        }
    }

    /// Once, with the first orders: what lies here from before and is not named must end.
    fn look_back(&mut self) {
        if std::mem::replace(&mut self.has_looked_back, true) {
            return;
        }
        for key in folder::untidied(&self.site.data_dir) {
            match Held::new(&self.site, &key, None) {
                Ok(held) => drop(self.held.insert(key, held)),
                Err(error) => tracing::error!(job = key.0, "a former attempt cannot be looked at: {error}"),
            }
        }
    }
}

impl Turn for Desk {
    fn turn(&mut self, now_ms: i64, orders: Option<Orders>) -> i64 {
        self.say_presence(now_ms);
        if let Some(orders) = orders {
            self.obey(orders);
        }
        let site = &self.site;
        self.held.retain(|_, held| held.step(site, now_ms));
        match self.held.is_empty() {
            true => self.heartbeat.next_ms(),
            false => now_ms + LOOK_MS,
        }
    }
}

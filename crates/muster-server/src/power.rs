//! Port: power control of nodes, by a program or BMC of the site; and when it is used without an operator.
//!
//! The program runs on the leader, outside the engine, and its result enters as a command. Only a confirmed result proves
//! anything: a failure is recorded, shown and tried again.

mod program;
mod schedule;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muster_core::objects::node::{Node, PowerAction};
use muster_core::{Actor, Command, JobId};
use tracing::{info, warn};

use crate::clock::Clock;
use crate::cluster::{Cluster, ServerRole};

pub use program::PowerProgram;
pub use schedule::{PowerSchedule, PowerTask};

/// Controls the power of nodes.
pub trait PowerControl: Send + Sync {
    /// Runs an action and waits for its end. `Ok` only if the action is done and confirmed; with a line for people.
    fn control(&self, action: PowerAction, node: &PowerTarget) -> Result<String, String>;
}

/// What power control learns about a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PowerTarget {
    pub name: String,
    pub hostname: String,
    pub address: String,
    pub labels: BTreeMap<String, String>,
}

impl PowerTarget {
    pub fn of(node: &Node) -> PowerTarget {
        PowerTarget {
            name: node.id.to_string(),
            hostname: node.facts.hostname.clone(),
            address: node.facts.address.clone(),
            labels: node.labels().clone(),
        }
    }
}

/// Runs the power program for lost nodes, and for nodes whose agent does not reboot them.
pub struct PowerKeeper {
    pub control: Arc<dyn PowerControl>,
    pub schedule: Mutex<PowerSchedule>,
    pub cluster: Cluster,
    pub clock: Arc<dyn Clock>,
}

impl PowerKeeper {
    /// Looks every second, until `stop`.
    pub fn run(self: &Arc<PowerKeeper>, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            self.start_due_tasks();
            // Short sleeps, so that stopping does not wait for this thread.
            for _ in 0..10 {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }

    fn start_due_tasks(self: &Arc<PowerKeeper>) {
        if !matches!(self.cluster.role(), ServerRole::Leading { .. }) {
            return;
        }
        let elapsed = self.clock.elapsed();
        let due = self.cluster.read(|state| self.schedule().due(state, elapsed));
        for task in due {
            let keeper = self.clone();
            let started = task.clone();
            let thread = std::thread::Builder::new().name("power-program".to_string());
            if let Err(fault) = thread.spawn(move || keeper.run_task(&started)) {
                warn!(%fault, "the power program was not run");
                self.schedule().finished(&task, false, elapsed);
            }
        }
    }

    fn run_task(&self, task: &PowerTask) {
        let (action, node) = (task.action, task.target.name.as_str());
        info!(node, action = action.as_str(), "running the power program");
        let outcome = self.control.control(action, &task.target);
        match &outcome {
            Ok(output) => info!(node, action = action.as_str(), output, "the power program confirmed the action"),
            Err(why) => warn!(node, action = action.as_str(), why, "the power program failed"),
        }
        let is_confirmed = outcome.is_ok();
        let reported = self.cluster.execute_blocking(Actor::system(), report(task, outcome.err()));
        if let Err(fault) = &reported {
            warn!(node, %fault, "the result of the power program was not recorded");
        }
        self.schedule().finished(task, is_confirmed && reported.is_ok(), self.clock.elapsed());
    }

    fn schedule(&self) -> MutexGuard<'_, PowerSchedule> {
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn report(task: &PowerTask, failure: Option<String>) -> Command {
    let attempts: Vec<(JobId, u32)> = task.attempts.clone();
    Command::ReportPower { node: task.node.clone(), action: task.action, failure, attempts }
}

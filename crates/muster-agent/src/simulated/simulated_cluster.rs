//! The simulated cluster as a pure state machine: time and orders go in, reports and log lines come out.

use std::collections::{BTreeMap, BTreeSet};

use muster_protocol::agent::{Orders, Registration, Report};

use super::node::SimulatedNode;
use crate::logs::Stream;

/// What happens to the world.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SimulatedInput {
    /// Time has passed.
    Tick,
    /// A node was told what it owes.
    Orders(Orders),
}

/// What the world does to ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SimulatedEffect {
    /// Tell the server.
    SendReport(Report),
    /// Tell the owner of the job.
    WriteLog(LogLine),
}

/// A text for the log of one task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// Which job.
    pub job: String,
    /// Which attempt.
    pub attempt: u32,
    /// Which task.
    pub rank: u32,
    /// Which of its logs.
    pub stream: Stream,
    /// The text, with its line ends.
    pub text: String,
}

/// How often nodes say what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReportIntervals {
    /// Between two heartbeats, and between two repetitions of a report that was not heard.
    pub heartbeat_ms: i64,
    /// Between two readings of the GPUs that are not at rest.
    pub readings_ms: i64,
    /// Between two readings of every GPU.
    pub health_checks_ms: i64,
}

/// All nodes, and when each has something to do next. A turn touches only the nodes that are due, so that
/// thousands of nodes cost little.
#[derive(Debug)]
pub struct SimulatedCluster {
    nodes: BTreeMap<String, SimulatedNode>,
    wake_schedule: WakeSchedule,
    last_step_ms: i64,
}

impl SimulatedCluster {
    /// A cluster in which nothing has been said yet.
    pub fn new(registrations: Vec<Registration>, intervals: ReportIntervals) -> SimulatedCluster {
        let mut cluster = SimulatedCluster {
            nodes: BTreeMap::new(),
            wake_schedule: WakeSchedule::default(),
            last_step_ms: i64::MIN,
        };
        for registration in registrations {
            let name = registration.node.clone();
            cluster.wake_schedule.set_wake(&name, i64::MIN);
            cluster.nodes.insert(name, SimulatedNode::new(registration, intervals));
        }
        cluster
    }

    /// Take in what happened at `now_ms` and do everything that is due.
    pub fn step(&mut self, now_ms: i64, input: SimulatedInput) -> Vec<SimulatedEffect> {
        if now_ms < self.last_step_ms {
            self.wake_schedule.set_all_wakes(now_ms); // The clock was put back: nobody shall be silent until it has caught up.
        }
        self.last_step_ms = now_ms;
        if let SimulatedInput::Orders(orders) = input {
            self.apply_orders(now_ms, orders);
        }
        let mut effects = Vec::new();
        for name in self.wake_schedule.due_nodes(now_ms) {
            let Some(node) = self.nodes.get_mut(&name) else { continue };
            effects.extend(node.step(now_ms));
            self.wake_schedule.set_wake(&name, node.wake_at_ms());
        }
        effects
    }

    /// When the next step is due.
    pub fn wake_at_ms(&self) -> i64 {
        self.wake_schedule.next_wake_ms()
    }

    fn apply_orders(&mut self, now_ms: i64, orders: Orders) {
        let name = orders.node.clone();
        match self.nodes.get_mut(&name) {
            Some(node) => {
                node.apply_orders(orders);
                self.wake_schedule.set_wake(&name, now_ms);
            }
            None => tracing::warn!(node = name, "orders for a node that is not simulated here"),
        }
    }
}

/// Nodes by the time of their next turn, in both directions.
#[derive(Debug, Default)]
struct WakeSchedule {
    by_time: BTreeSet<(i64, String)>,
    by_node: BTreeMap<String, i64>,
}

impl WakeSchedule {
    fn set_wake(&mut self, node: &str, at_ms: i64) {
        if let Some(old_ms) = self.by_node.insert(node.to_string(), at_ms) {
            self.by_time.remove(&(old_ms, node.to_string()));
        }
        self.by_time.insert((at_ms, node.to_string()));
    }

    fn set_all_wakes(&mut self, at_ms: i64) {
        self.by_node.values_mut().for_each(|old_ms| *old_ms = at_ms);
        self.by_time = self.by_node.keys().map(|node| (at_ms, node.clone())).collect();
    }

    /// By name within one moment, so that the same inputs give the same words in the same order.
    fn due_nodes(&self, now_ms: i64) -> Vec<String> {
        let due = self.by_time.iter().take_while(|(at_ms, _)| *at_ms <= now_ms);
        due.map(|(_, node)| node.clone()).collect()
    }

    fn next_wake_ms(&self) -> i64 {
        self.by_time.first().map_or(i64::MAX, |(at_ms, _)| *at_ms)
    }
}

#[cfg(test)]
mod tests;

//! The simulated cluster as a pure state machine: time and orders go in, reports and log lines come out.

use std::collections::{BTreeMap, BTreeSet};

use muster_protocol::agent::{Orders, Registration, Report};

use super::node::SimulatedNode;
use crate::logs::Stream;

/// What happens to the world.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// Time has passed.
    Tick,
    /// A node was told what it owes.
    Orders(Orders),
}

/// What the world does to ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// Tell the server.
    Say(Report),
    /// Tell the owner of the job.
    Log(LogLine),
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
pub struct Paces {
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
pub struct World {
    nodes: BTreeMap<String, SimulatedNode>,
    agenda: Agenda,
    latest_ms: i64,
}

impl World {
    /// A cluster in which nothing has been said yet.
    pub fn new(registrations: Vec<Registration>, paces: Paces) -> World {
        let mut world = World { nodes: BTreeMap::new(), agenda: Agenda::default(), latest_ms: i64::MIN };
        for registration in registrations {
            let name = registration.node.clone();
            world.agenda.set(&name, i64::MIN);
            world.nodes.insert(name, SimulatedNode::new(registration, paces));
        }
        world
    }

    /// Take in what happened at `now_ms` and do everything that is due.
    pub fn step(&mut self, now_ms: i64, input: Input) -> Vec<Act> {
        if now_ms < self.latest_ms {
            self.agenda.set_all(now_ms); // The clock was put back: nobody shall be silent until it has caught up.
        }
        self.latest_ms = now_ms;
        if let Input::Orders(orders) = input {
            self.obey(now_ms, orders);
        }
        let mut acts = Vec::new();
        for name in self.agenda.due(now_ms) {
            let Some(node) = self.nodes.get_mut(&name) else { continue };
            acts.extend(node.step(now_ms));
            self.agenda.set(&name, node.wake_at_ms());
        }
        acts
    }

    /// When the next step is due.
    pub fn wake_at_ms(&self) -> i64 {
        self.agenda.first_ms()
    }

    fn obey(&mut self, now_ms: i64, orders: Orders) {
        let name = orders.node.clone();
        match self.nodes.get_mut(&name) {
            Some(node) => {
                node.obey(orders);
                self.agenda.set(&name, now_ms);
            }
            None => tracing::warn!(node = name, "orders for a node that is not simulated here"),
        }
    }
}

/// Nodes by the time of their next turn, in both directions.
#[derive(Debug, Default)]
struct Agenda {
    by_time: BTreeSet<(i64, String)>,
    by_node: BTreeMap<String, i64>,
}

impl Agenda {
    fn set(&mut self, node: &str, at_ms: i64) {
        if let Some(old_ms) = self.by_node.insert(node.to_string(), at_ms) {
            self.by_time.remove(&(old_ms, node.to_string()));
        }
        self.by_time.insert((at_ms, node.to_string()));
    }

    fn set_all(&mut self, at_ms: i64) {
        self.by_node.values_mut().for_each(|old_ms| *old_ms = at_ms);
        self.by_time = self.by_node.keys().map(|node| (at_ms, node.clone())).collect();
    }

    /// By name within one moment, so that the same inputs give the same words in the same order.
    fn due(&self, now_ms: i64) -> Vec<String> {
        let due = self.by_time.iter().take_while(|(at_ms, _)| *at_ms <= now_ms);
        due.map(|(_, node)| node.clone()).collect()
    }

    fn first_ms(&self) -> i64 {
        self.by_time.first().map_or(i64::MAX, |(at_ms, _)| *at_ms)
    }
}

#[cfg(test)]
mod tests;

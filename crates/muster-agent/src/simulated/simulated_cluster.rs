//! The simulated cluster as a pure state machine: time and orders go in, reports and log lines come out.

use std::collections::{BTreeMap, BTreeSet};

use muster_protocol::agent::{Orders, Registration};

use super::effect::{ReportIntervals, SimulatedEffect};
use super::node::SimulatedNode;

/// An input of the simulated cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SimulatedInput {
    /// Time has passed.
    Tick,
    /// Orders for one node.
    Orders(Orders),
}

/// All nodes, and when each is due next. A step touches only the nodes that are due, so that thousands of nodes cost
/// little.
#[derive(Debug)]
pub struct SimulatedCluster {
    nodes: BTreeMap<String, SimulatedNode>,
    wake_schedule: WakeSchedule,
    last_step_ms: i64,
}

impl SimulatedCluster {
    /// A cluster whose nodes have sent no reports.
    pub fn new(registrations: Vec<Registration>, intervals: ReportIntervals) -> SimulatedCluster {
        let mut cluster =
            SimulatedCluster { nodes: BTreeMap::new(), wake_schedule: WakeSchedule::default(), last_step_ms: i64::MIN };
        for registration in registrations {
            let name = registration.node.clone();
            cluster.wake_schedule.set_wake(&name, i64::MIN);
            cluster.nodes.insert(name, SimulatedNode::new(registration, intervals));
        }
        cluster
    }

    /// Applies an input at `now_ms` and returns all effects that are due.
    pub fn step(&mut self, now_ms: i64, input: SimulatedInput) -> Vec<SimulatedEffect> {
        if now_ms < self.last_step_ms {
            // The clock was set back: nodes must not be silent until it has caught up.
            self.wake_schedule.set_all_wakes(now_ms);
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

    /// The time of the next step.
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
            None => tracing::warn!(node = name, "orders name a node that is not simulated here; ignored"),
        }
    }
}

/// The time of the next step of each node, indexed by time and by node.
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

    /// By time, then by name, so that the same inputs give the same effects in the same order.
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

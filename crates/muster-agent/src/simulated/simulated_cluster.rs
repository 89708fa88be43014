//! The simulated cluster as a pure state machine: time and orders go in, reports and log lines come out.

use std::collections::{BTreeMap, BTreeSet};

use muster_protocol::agent::{HeartbeatEcho, Orders, Registration};

use super::effect::{ReportIntervals, SimulatedEffect};
use super::node::SimulatedNode;
use crate::clock::ClockReading;

/// An input of the simulated cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SimulatedInput {
    /// Time has passed.
    Tick,
    /// Orders for one node.
    Orders(Orders),
    /// A leader received a heartbeat of one node.
    HeartbeatEcho(HeartbeatEcho),
}

/// All nodes, and when each is due next. A step touches only the nodes that are due, so that thousands of nodes cost
/// little.
#[derive(Debug)]
pub struct SimulatedCluster {
    nodes: BTreeMap<String, SimulatedNode>,
    wake_schedule: WakeSchedule,
}

impl SimulatedCluster {
    /// A cluster whose nodes have sent no reports.
    pub fn new(registrations: Vec<Registration>, intervals: ReportIntervals) -> SimulatedCluster {
        let mut cluster = SimulatedCluster { nodes: BTreeMap::new(), wake_schedule: WakeSchedule::default() };
        for registration in registrations {
            let name = registration.node.clone();
            cluster.wake_schedule.set_wake(&name, i64::MIN);
            cluster.nodes.insert(name, SimulatedNode::new(registration, intervals));
        }
        cluster
    }

    /// Applies an input and returns all effects that are due.
    pub fn step(&mut self, now: ClockReading, input: SimulatedInput) -> Vec<SimulatedEffect> {
        let mut effects = Vec::new();
        match input {
            SimulatedInput::Tick => {}
            SimulatedInput::Orders(orders) => self.deliver_orders(now, orders, &mut effects),
            SimulatedInput::HeartbeatEcho(echo) => self.acknowledge_heartbeat(&echo),
        }
        for name in self.wake_schedule.due_nodes(now.monotonic_ms) {
            self.step_node(now, &name, None, &mut effects);
        }
        effects
    }

    /// The time of the next step, by the boot clock.
    pub fn wake_at_ms(&self) -> i64 {
        self.wake_schedule.next_wake_ms()
    }

    fn deliver_orders(&mut self, now: ClockReading, orders: Orders, effects: &mut Vec<SimulatedEffect>) {
        let name = orders.node.clone();
        if !self.step_node(now, &name, Some(orders), effects) {
            tracing::warn!(node = name, "orders name a node that is not simulated here; ignored");
        }
    }

    fn acknowledge_heartbeat(&mut self, echo: &HeartbeatEcho) {
        if let Some(node) = self.nodes.get_mut(&echo.node) {
            node.acknowledge_heartbeat(echo.sent_at_boot_ms);
        }
    }

    /// False if there is no such node.
    fn step_node(
        &mut self,
        now: ClockReading,
        name: &str,
        orders: Option<Orders>,
        effects: &mut Vec<SimulatedEffect>,
    ) -> bool {
        let Some(node) = self.nodes.get_mut(name) else { return false };
        effects.extend(node.step(now, orders));
        self.wake_schedule.set_wake(name, node.wake_at_ms());
        true
    }
}

/// The time of the next step of each node by the boot clock, indexed by time and by node.
#[derive(Debug, Default)]
struct WakeSchedule {
    by_time: BTreeSet<(i64, String)>,
    by_node: BTreeMap<String, i64>,
}

impl WakeSchedule {
    fn set_wake(&mut self, node: &str, at_ms: i64) {
        if let Some(old_ms) = self.by_node.insert(node.to_string(), at_ms).filter(|old_ms| *old_ms != at_ms) {
            self.by_time.remove(&(old_ms, node.to_string()));
        }
        self.by_time.insert((at_ms, node.to_string()));
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

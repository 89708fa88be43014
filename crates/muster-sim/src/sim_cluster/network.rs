//! The network between servers, nodes and users: messages are lost, delayed, duplicated and reordered.

use super::{ServerMessage, SimCluster, SimEvent};

/// A degraded network, until a point in time.
pub struct NetworkConditions {
    pub until_ms: i64,
    /// The per mille of messages that are lost; as many are duplicated.
    pub loss_per_mille: u64,
    pub delay_ms_max: i64,
}

impl SimCluster<'_> {
    /// Sends a message, which may be lost, delayed or duplicated. `between` names server and node, for partitions.
    pub(super) fn send_message(&mut self, between: Option<(usize, usize)>, event: SimEvent) {
        let is_partitioned =
            between.is_some_and(|pair| self.partitions.get(&pair).is_some_and(|until| *until > self.now()));
        let is_degraded = self.network.until_ms > self.now();
        if is_partitioned || (is_degraded && self.random.chance_per_mille(self.network.loss_per_mille)) {
            return;
        }
        let delay_ms_max = if is_degraded { self.network.delay_ms_max } else { 20 };
        if is_degraded
            && self.random.chance_per_mille(self.network.loss_per_mille)
            && let Some(duplicate) = duplicate_message(&event)
        {
            self.schedule_after(1, delay_ms_max, duplicate);
        }
        self.schedule_after(1, delay_ms_max, event);
    }
}

/// A copy of a message; `None` for events that do not travel over the network.
fn duplicate_message(event: &SimEvent) -> Option<SimEvent> {
    match event {
        SimEvent::ToServer(server, ServerMessage::Report(report)) => {
            Some(SimEvent::ToServer(*server, ServerMessage::Report(report.clone())))
        }
        SimEvent::ToServer(server, ServerMessage::Request(request)) => {
            Some(SimEvent::ToServer(*server, ServerMessage::Request(*request)))
        }
        SimEvent::ToNode(node, orders) => Some(SimEvent::ToNode(*node, orders.clone())),
        SimEvent::ToUser(request, answer) => Some(SimEvent::ToUser(*request, answer.clone())),
        _ => None,
    }
}

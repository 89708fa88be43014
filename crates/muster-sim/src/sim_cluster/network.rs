//! Messages between servers, nodes and users: lost, late, doubled and overtaken.

use super::{SimEvent, ServerMessage, SimCluster};

/// How the network is, until some moment.
pub struct NetworkConditions {
    pub until_ms: i64,
    /// So many messages in a thousand are lost, and as many come twice.
    pub loss_per_mille: u64,
    pub delay_ms_max: i64,
}

impl SimCluster<'_> {
    /// Send something, between a server and a node if they are named. It may be lost, late or doubled.
    pub(super) fn send_message(&mut self, between: Option<(usize, usize)>, coming: SimEvent) {
        let is_cut =
            between.is_some_and(|pair| self.partitions.get(&pair).is_some_and(|until| *until > self.now()));
        let bad = self.network.until_ms > self.now();
        if is_cut || (bad && self.random.chance_per_mille(self.network.loss_per_mille)) {
            return;
        }
        let most = if bad { self.network.delay_ms_max } else { 20 };
        if bad
            && self.random.chance_per_mille(self.network.loss_per_mille)
            && let Some(twin) = duplicate_message(&coming)
        {
            self.schedule_after(1, most, twin);
        }
        self.schedule_after(1, most, coming);
    }
}

/// The same message once more; only what the network carries can come twice.
fn duplicate_message(coming: &SimEvent) -> Option<SimEvent> {
    match coming {
        SimEvent::ToServer(server, ServerMessage::Report(report)) => {
            Some(SimEvent::ToServer(*server, ServerMessage::Report(report.clone())))
        }
        SimEvent::ToServer(server, ServerMessage::Request(letter)) => {
            Some(SimEvent::ToServer(*server, ServerMessage::Request(*letter)))
        }
        SimEvent::ToNode(node, orders) => Some(SimEvent::ToNode(*node, orders.clone())),
        SimEvent::ToUser(letter, answer) => Some(SimEvent::ToUser(*letter, answer.clone())),
        _ => None,
    }
}

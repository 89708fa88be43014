//! The network between servers and users: messages are lost, delayed, duplicated and reordered. `transport.rs` is the
//! network between servers and nodes.

use super::{SimCluster, SimEvent};

/// A degraded network, until a point in time.
pub struct NetworkConditions {
    pub until_ms: i64,
    /// The per mille of messages that are lost; as many are duplicated.
    pub loss_per_mille: u64,
    pub delay_ms_max: i64,
}

impl SimCluster<'_> {
    /// Sends a message, which may be lost, delayed or duplicated.
    pub(super) fn send_message(&mut self, event: SimEvent) {
        let is_degraded = self.network.until_ms > self.now();
        if is_degraded && self.random.chance_per_mille(self.network.loss_per_mille) {
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
        SimEvent::ToServer(server, request) => Some(SimEvent::ToServer(*server, *request)),
        SimEvent::ToUser(request, answer) => Some(SimEvent::ToUser(*request, answer.clone())),
        _ => None,
    }
}

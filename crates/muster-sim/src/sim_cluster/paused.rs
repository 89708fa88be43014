//! Paused components: a server, an agent, or the shims and tasks of a node. Events and messages for a paused
//! component are deferred until it resumes, and dropped if it crashes meanwhile.

use super::{SimCluster, SimEvent};

/// A component that can be paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pausable {
    Server(usize),
    Agent(usize),
    /// The shims and tasks of a node.
    Machine(usize),
}

impl SimCluster<'_> {
    /// Returns the event, or defers it and returns `None` if its component is paused.
    pub(super) fn defer_if_paused(&mut self, event: SimEvent) -> Option<SimEvent> {
        let Some(component) = component_of(&event) else { return Some(event) };
        let until_ms = self.paused_until_ms(component);
        if until_ms <= self.now() {
            return Some(event);
        }
        let deferred = self.deferred_events.entry(component).or_default();
        deferred.push(event);
        if deferred.len() == 1 {
            self.schedule_at(until_ms, SimEvent::Resume(component));
        }
        None
    }

    /// Schedules the deferred events now, in their order of arrival.
    pub(super) fn resume(&mut self, component: Pausable) {
        for event in self.deferred_events.remove(&component).unwrap_or_default() {
            self.schedule_at(self.now(), event);
        }
    }

    /// 0 for a component that is down: its events are dropped, not deferred.
    fn paused_until_ms(&self, component: Pausable) -> i64 {
        match component {
            Pausable::Server(server) if self.servers[server].process.is_some() => self.servers[server].paused_until_ms,
            Pausable::Agent(node) if self.nodes[node].agent.is_some() => {
                self.nodes[node].agent_paused_until_ms.max(self.nodes[node].frozen_until_ms)
            }
            Pausable::Machine(node) => self.nodes[node].frozen_until_ms,
            Pausable::Server(_) | Pausable::Agent(_) => 0,
        }
    }
}

fn component_of(event: &SimEvent) -> Option<Pausable> {
    match event {
        SimEvent::Engine(server)
        | SimEvent::Planner(server)
        | SimEvent::Dispatch(server)
        | SimEvent::HeartbeatCheck(server)
        | SimEvent::WriteSavepoint(server)
        | SimEvent::LinkCheck(server)
        | SimEvent::FrameToServer(server, _)
        | SimEvent::ServerSeesEnd(server, _)
        | SimEvent::ConnectArrives(server, ..)
        | SimEvent::CallArrives(server, _)
        | SimEvent::ToServer(server, _) => Some(Pausable::Server(*server)),
        SimEvent::Agent(node)
        | SimEvent::Link(node)
        | SimEvent::Connected(node, _)
        | SimEvent::AgentSeesEnd(node, _)
        | SimEvent::FrameToAgent(node, _) => Some(Pausable::Agent(*node)),
        SimEvent::Machine(node, ..) => Some(Pausable::Machine(*node)),
        _ => None,
    }
}

//! Who stands still: a server, an agent, or a whole node. What would have to be done by it waits, messages as well, and
//! is lost if it dies meanwhile.

use super::{SimEvent, SimCluster};

/// Someone who can stand still.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pausable {
    Server(usize),
    Agent(usize),
    /// Shims and tasks of a node.
    Machine(usize),
}

impl SimCluster<'_> {
    /// The same again, unless someone stands still who would have to do it: then it waits.
    pub(super) fn defer_if_paused(&mut self, coming: SimEvent) -> Option<SimEvent> {
        let Some(who) = component_of(&coming) else { return Some(coming) };
        let until = self.paused_until_ms(who);
        if until <= self.now() {
            return Some(coming);
        }
        let waits = self.deferred_events.entry(who).or_default();
        waits.push(coming);
        if waits.len() == 1 {
            self.schedule_at(until, SimEvent::Resume(who));
        }
        None
    }

    /// What has waited happens now, in the order in which it came.
    pub(super) fn resume(&mut self, who: Pausable) {
        for coming in self.deferred_events.remove(&who).unwrap_or_default() {
            self.schedule_at(self.now(), coming);
        }
    }

    /// The dead do not stand still: what comes to them is lost.
    fn paused_until_ms(&self, who: Pausable) -> i64 {
        match who {
            Pausable::Server(server) if self.servers[server].process.is_some() => {
                self.servers[server].paused_until_ms
            }
            Pausable::Agent(node) if self.nodes[node].agent.is_some() => {
                self.nodes[node].agent_paused_until_ms.max(self.nodes[node].frozen_until_ms)
            }
            Pausable::Machine(node) => self.nodes[node].frozen_until_ms,
            Pausable::Server(_) | Pausable::Agent(_) => 0,
        }
    }
}

fn component_of(coming: &SimEvent) -> Option<Pausable> {
    match coming {
        SimEvent::Engine(server)
        | SimEvent::Planner(server)
        | SimEvent::Dispatch(server)
        | SimEvent::HeartbeatCheck(server)
        | SimEvent::WriteSavepoint(server)
        | SimEvent::ToServer(server, _) => Some(Pausable::Server(*server)),
        SimEvent::Agent(node) | SimEvent::ToNode(node, _) => Some(Pausable::Agent(*node)),
        SimEvent::Machine(node, ..) => Some(Pausable::Machine(*node)),
        _ => None,
    }
}

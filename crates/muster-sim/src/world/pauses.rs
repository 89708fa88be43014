//! Who stands still: a server, an agent, or a whole node. What would have to be done by it waits, messages as well, and
//! is lost if it dies meanwhile.

use super::{Coming, World};

/// Someone who can stand still.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    Server(usize),
    Agent(usize),
    /// Shims and tasks of a node.
    Machine(usize),
}

impl World<'_> {
    /// The same again, unless someone stands still who would have to do it: then it waits.
    pub(super) fn unless_paused(&mut self, coming: Coming) -> Option<Coming> {
        let Some(who) = doer(&coming) else { return Some(coming) };
        let until = self.stands_still_until(who);
        if until <= self.now() {
            return Some(coming);
        }
        let waits = self.waits.entry(who).or_default();
        waits.push(coming);
        if waits.len() == 1 {
            self.at(until, Coming::GoesOn(who));
        }
        None
    }

    /// What has waited happens now, in the order in which it came.
    pub(super) fn goes_on(&mut self, who: Who) {
        for coming in self.waits.remove(&who).unwrap_or_default() {
            self.at(self.now(), coming);
        }
    }

    /// The dead do not stand still: what comes to them is lost.
    fn stands_still_until(&self, who: Who) -> i64 {
        match who {
            Who::Server(server) if self.servers[server].process.is_some() => {
                self.servers[server].paused_until
            }
            Who::Agent(node) if self.nodes[node].agent.is_some() => {
                self.nodes[node].agent_paused_until.max(self.nodes[node].frozen_until)
            }
            Who::Machine(node) => self.nodes[node].frozen_until,
            Who::Server(_) | Who::Agent(_) => 0,
        }
    }
}

fn doer(coming: &Coming) -> Option<Who> {
    match coming {
        Coming::Engine(server)
        | Coming::Planner(server)
        | Coming::Dispatch(server)
        | Coming::Silence(server)
        | Coming::Save(server)
        | Coming::ToServer(server, _) => Some(Who::Server(*server)),
        Coming::Agent(node) | Coming::ToNode(node, _) => Some(Who::Agent(*node)),
        Coming::Machine(node, ..) => Some(Who::Machine(*node)),
        _ => None,
    }
}

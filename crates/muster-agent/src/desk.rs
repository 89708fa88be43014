//! Step 10, run, and step 11, report: what an agent does about its orders, turn by turn.
//!
//! The desk holds no truth of its own. At each turn it looks how each attempt stands (`standing.rs`), decides
//! what follows (`act.rs`) and does it (`held.rs`). So a desk that is set up anew goes on where the last one
//! ended: it adopts what lives, reports what ended meanwhile, and never launches an attempt that has left a
//! trace.
//!
//! It touches the world through its [`Machine`] only and is told the time, so that the simulator runs this
//! very code.

mod act;
mod held;
mod standing;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use muster_protocol::agent::{Order, Orders, Registration, Report};

use crate::machine::{AttemptKey, Machine};
use crate::newest::Newest;
use crate::pace::Pace;

use held::Held;

/// How often attempts are looked at. The server's own work takes longer than this.
const LOOK_MS: i64 = 100;

/// When a turn begins, by two clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// In Unix milliseconds. It may be set, also backwards.
    pub wall_ms: i64,
    /// Since any beginning. It only grows, so it is good for deadlines.
    pub mono_ms: i64,
}

/// The work of one node's agent.
#[derive(Debug)]
pub struct Desk<M> {
    site: Site,
    machine: M,
    registration: Registration,
    newest: Newest,
    heartbeat: Pace,
    held: BTreeMap<AttemptKey, Held>,
    /// The folders of former attempts were looked through.
    has_looked_back: bool,
}

/// What does not change while the desk stands.
#[derive(Debug)]
struct Site {
    node: String,
    incarnation: String,
    boot_id: String,
    every_ms: i64,
}

/// What one look at an attempt needs: where, when, and who hears of it.
struct Look<'a, M> {
    site: &'a Site,
    machine: &'a mut M,
    now: Moment,
    say: &'a mut dyn FnMut(Report),
}

impl<M: Machine> Desk<M> {
    /// Set up over a machine as it is found. `every_ms` is the pace of heartbeats and repetitions.
    pub fn new(registration: Registration, every_ms: i64, machine: M) -> Desk<M> {
        let (node, incarnation) = (registration.node.clone(), registration.incarnation.clone());
        Desk {
            newest: Newest::new(&incarnation),
            site: Site { node, incarnation, boot_id: machine.boot_id().to_string(), every_ms },
            machine,
            registration,
            heartbeat: Pace::default(),
            held: BTreeMap::new(),
            has_looked_back: false,
        }
    }

    /// Do what is due and return when, by the wall clock, the next thing is. The node registers at the first
    /// turn; attempts are touched only after the first orders.
    pub fn turn(&mut self, now: Moment, orders: Option<Orders>, say: &mut dyn FnMut(Report)) -> i64 {
        self.say_presence(now.wall_ms, say);
        if let Some(orders) = orders {
            self.obey(orders);
        }
        let mut look = Look { site: &self.site, machine: &mut self.machine, now, say };
        self.held.retain(|_, held| held.step(&mut look));
        match self.held.is_empty() {
            true => self.heartbeat.next_ms(),
            false => now.wall_ms + LOOK_MS,
        }
    }

    /// The machine under it.
    pub fn machine(&self) -> &M {
        &self.machine
    }

    /// The machine under it, for whoever plays it.
    pub fn machine_mut(&mut self) -> &mut M {
        &mut self.machine
    }

    /// Let go of the machine, as an agent does that ends: what runs, runs on.
    pub fn into_machine(self) -> M {
        self.machine
    }

    fn say_presence(&mut self, now_ms: i64, say: &mut dyn FnMut(Report)) {
        if !self.heartbeat.is_due(now_ms, self.site.every_ms) {
            return;
        }
        // A server that does not lead hears nothing, so it is said until orders show that someone knows this agent.
        if !self.newest.is_known() {
            say(Report::Registered(Box::new(self.registration.clone())));
        }
        say(Report::Heartbeat { node: self.site.node.clone() });
    }

    /// Take over orders, unless they are older than what we follow, or meant for another node or incarnation.
    fn obey(&mut self, orders: Orders) {
        if orders.node != self.site.node {
            tracing::warn!(node = orders.node, "orders for a node that is not this one");
            return;
        }
        if !self.newest.accepts(&orders) {
            return;
        }
        let is_first = !self.has_looked_back;
        self.look_back();
        let named: BTreeSet<_> =
            orders.attempts.iter().map(|order| (order.job.as_str(), order.attempt)).collect();
        for (key, held) in &mut self.held {
            if !named.contains(&(key.job(), key.attempt())) {
                held.order = None;
            }
        }
        orders.attempts.into_iter().for_each(|order| self.hold(order, is_first));
    }

    /// Of the first orders each may have been followed by an agent before this one.
    fn hold(&mut self, order: Order, is_first: bool) {
        let key = match AttemptKey::new(&order.job, order.attempt) {
            Ok(key) => key,
            Err(error) => {
                tracing::error!(job = order.job, "an order cannot be followed: {error}");
                return;
            }
        };
        match self.held.get_mut(&key) {
            Some(held) => held.order = Some(order),
            None if is_first => {
                let held = Held::new(&mut self.machine, &key, Some(order)).begun_before();
                self.held.insert(key, held);
            }
            None => self.take_up(key, Some(order)),
        }
    }

    /// Once, with the first orders: what lies here from before and is not named must end.
    fn look_back(&mut self) {
        if std::mem::replace(&mut self.has_looked_back, true) {
            return;
        }
        for key in self.machine.untidied() {
            self.take_up(key, None);
        }
    }

    fn take_up(&mut self, key: AttemptKey, order: Option<Order>) {
        let held = Held::new(&mut self.machine, &key, order);
        self.held.insert(key, held);
    }
}

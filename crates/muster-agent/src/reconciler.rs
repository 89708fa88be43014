//! Step 10, run, and step 11, report: what an agent does about its orders, turn by turn.
//!
//! The desk holds no truth of its own. At each turn it looks how each attempt stands (`standing.rs`), decides
//! what follows (`act.rs`) and does it (`held.rs`). So a desk that is set up anew goes on where the last one
//! ended: it adopts what lives, reports what ended meanwhile, and never launches an attempt that has left a
//! trace.
//!
//! It touches the world through its [`Machine`] only and is told the time, so that the simulator runs this
//! very code.

mod action;
mod attempt_status;
#[cfg(test)]
mod tests;
mod tracked_attempt;

use std::collections::{BTreeMap, BTreeSet};

use muster_protocol::agent::{AttemptOrder, Orders, Registration, Report};

use crate::machine::{AttemptKey, Machine};
use crate::order_fence::OrderFence;
use crate::repeat_timer::RepeatTimer;

use tracked_attempt::TrackedAttempt;

/// How often attempts are looked at. The server's own work takes longer than this.
const ATTEMPT_POLL_INTERVAL_MS: i64 = 100;

/// When a turn begins, by two clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockReading {
    /// In Unix milliseconds. It may be set, also backwards.
    pub wall_ms: i64,
    /// Since any beginning. It only grows, so it is good for deadlines.
    pub monotonic_ms: i64,
}

/// The work of one node's agent.
#[derive(Debug)]
pub struct Reconciler<M> {
    config: ReconcilerConfig,
    machine: M,
    registration: Registration,
    order_fence: OrderFence,
    heartbeat_timer: RepeatTimer,
    attempts: BTreeMap<AttemptKey, TrackedAttempt>,
    /// The folders of former attempts were looked through.
    has_tracked_leftovers: bool,
}

/// What does not change while the desk stands.
#[derive(Debug)]
struct ReconcilerConfig {
    node: String,
    incarnation: String,
    boot_id: String,
    repeat_interval_ms: i64,
}

/// What one look at an attempt needs: where, when, and who hears of it.
struct ReconcileContext<'a, M> {
    config: &'a ReconcilerConfig,
    machine: &'a mut M,
    now: ClockReading,
    send_report: &'a mut dyn FnMut(Report),
}

impl<M: Machine> Reconciler<M> {
    /// Set up over a machine as it is found. `every_ms` is the pace of heartbeats and repetitions.
    pub fn new(registration: Registration, repeat_interval_ms: i64, machine: M) -> Reconciler<M> {
        let (node, incarnation) = (registration.node.clone(), registration.incarnation.clone());
        Reconciler {
            order_fence: OrderFence::new(&incarnation),
            config: ReconcilerConfig {
                node,
                incarnation,
                boot_id: machine.boot_id().to_string(),
                repeat_interval_ms,
            },
            machine,
            registration,
            heartbeat_timer: RepeatTimer::default(),
            attempts: BTreeMap::new(),
            has_tracked_leftovers: false,
        }
    }

    /// Do what is due and return when, by the wall clock, the next thing is. The node registers at the first
    /// turn; attempts are touched only after the first orders.
    pub fn reconcile(
        &mut self,
        now: ClockReading,
        orders: Option<Orders>,
        send_report: &mut dyn FnMut(Report),
    ) -> i64 {
        self.report_heartbeat(now.wall_ms, send_report);
        if let Some(orders) = orders {
            self.apply_orders(orders);
        }
        let mut context =
            ReconcileContext { config: &self.config, machine: &mut self.machine, now, send_report };
        self.attempts.retain(|_, tracked| tracked.reconcile(&mut context));
        match self.attempts.is_empty() {
            true => self.heartbeat_timer.next_due_ms(),
            false => now.wall_ms + ATTEMPT_POLL_INTERVAL_MS,
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

    fn report_heartbeat(&mut self, now_ms: i64, send_report: &mut dyn FnMut(Report)) {
        if !self.heartbeat_timer.is_due(now_ms, self.config.repeat_interval_ms) {
            return;
        }
        // A server that does not lead hears nothing, so it is said until orders show that someone knows this agent.
        if !self.order_fence.is_registered() {
            send_report(Report::Registered(Box::new(self.registration.clone())));
        }
        send_report(Report::Heartbeat { node: self.config.node.clone() });
    }

    /// Take over orders, unless they are older than what we follow, or meant for another node or incarnation.
    fn apply_orders(&mut self, orders: Orders) {
        if orders.node != self.config.node {
            tracing::warn!(node = orders.node, "orders for a node that is not this one");
            return;
        }
        if !self.order_fence.accepts(&orders) {
            return;
        }
        let is_first = !self.has_tracked_leftovers;
        self.track_leftover_attempts();
        let named: BTreeSet<_> =
            orders.attempts.iter().map(|order| (order.job.as_str(), order.attempt)).collect();
        for (key, tracked) in &mut self.attempts {
            if !named.contains(&(key.job(), key.attempt())) {
                tracked.order = None;
            }
        }
        orders.attempts.into_iter().for_each(|order| self.apply_order(order, is_first));
    }

    /// Of the first orders each may have been followed by an agent before this one.
    fn apply_order(&mut self, order: AttemptOrder, is_first: bool) {
        let key = match AttemptKey::new(&order.job, order.attempt) {
            Ok(key) => key,
            Err(error) => {
                tracing::error!(job = order.job, "an order cannot be followed: {error}");
                return;
            }
        };
        match self.attempts.get_mut(&key) {
            Some(tracked) => tracked.order = Some(order),
            None if is_first => {
                let tracked =
                    TrackedAttempt::new(&mut self.machine, &key, Some(order)).assume_predates_this_agent();
                self.attempts.insert(key, tracked);
            }
            None => self.track_attempt(key, Some(order)),
        }
    }

    /// Once, with the first orders: what lies here from before and is not named must end.
    fn track_leftover_attempts(&mut self) {
        if std::mem::replace(&mut self.has_tracked_leftovers, true) {
            return;
        }
        for key in self.machine.uncleaned_attempts() {
            self.track_attempt(key, None);
        }
    }

    fn track_attempt(&mut self, key: AttemptKey, order: Option<AttemptOrder>) {
        let tracked = TrackedAttempt::new(&mut self.machine, &key, order);
        self.attempts.insert(key, tracked);
    }
}

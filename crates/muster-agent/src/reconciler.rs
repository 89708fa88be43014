//! The reconciler. Step 10, run, and step 11, report: makes the attempts of a node equal to its orders.
//!
//! The reconciler keeps no durable state. Each call reads the status of every attempt (`attempt_status.rs`),
//! chooses an action (`action.rs`) and performs it (`tracked_attempt.rs`). A restarted agent therefore continues
//! where its predecessor stopped: it adopts running attempts, reports exits that happened meanwhile, and never
//! launches an attempt that has any record.
//!
//! All effects go through the [`Machine`], and the time is an argument, so that the simulator runs this very code.

mod action;
mod attempt_status;
#[cfg(test)]
mod tests;
mod tracked_attempt;

use std::collections::{BTreeMap, BTreeSet};

use muster_protocol::agent::{AttemptOrder, Orders, Registration, Report};

use crate::clock::ClockReading;
use crate::machine::{AttemptKey, Machine};
use crate::order_fence::OrderFence;
use crate::repeat_timer::RepeatTimer;

use tracked_attempt::TrackedAttempt;

/// How often the status of attempts is read. Deciding and persisting in the server takes longer than this.
const ATTEMPT_POLL_INTERVAL_MS: i64 = 100;

/// The reconciler of one node.
#[derive(Debug)]
pub struct Reconciler<M> {
    config: ReconcilerConfig,
    machine: M,
    registration: Registration,
    order_fence: OrderFence,
    heartbeat_timer: RepeatTimer,
    attempts: BTreeMap<AttemptKey, TrackedAttempt>,
    /// The attempts that the previous agent left are tracked.
    has_tracked_leftovers: bool,
}

/// Constant for the lifetime of a reconciler.
#[derive(Debug)]
struct ReconcilerConfig {
    node: String,
    incarnation: String,
    boot_id: String,
    repeat_interval_ms: i64,
}

/// The context of reconciling one attempt: machine, time and report sink.
struct ReconcileContext<'a, M> {
    config: &'a ReconcilerConfig,
    machine: &'a mut M,
    now: ClockReading,
    send_report: &'a mut dyn FnMut(Report),
}

impl<M: Machine> Reconciler<M> {
    /// A reconciler over a machine in any state. `repeat_interval_ms` is the interval of heartbeats and of repeated
    /// reports.
    pub fn new(registration: Registration, repeat_interval_ms: i64, machine: M) -> Reconciler<M> {
        let (node, incarnation) = (registration.node.clone(), registration.incarnation.clone());
        Reconciler {
            order_fence: OrderFence::new(&incarnation),
            config: ReconcilerConfig { node, incarnation, boot_id: machine.boot_id().to_string(), repeat_interval_ms },
            machine,
            registration,
            heartbeat_timer: RepeatTimer::default(),
            attempts: BTreeMap::new(),
            has_tracked_leftovers: false,
        }
    }

    /// Does what is due and returns the wall time of the next call. The first call registers the node; attempts are
    /// touched only after the first orders.
    pub fn reconcile(&mut self, now: ClockReading, orders: Option<Orders>, send_report: &mut dyn FnMut(Report)) -> i64 {
        self.report_heartbeat(now.wall_ms, send_report);
        if let Some(orders) = orders {
            self.apply_orders(orders);
        }
        let mut context = ReconcileContext { config: &self.config, machine: &mut self.machine, now, send_report };
        self.attempts.retain(|_, tracked| tracked.reconcile(&mut context));
        match self.attempts.is_empty() {
            true => self.heartbeat_timer.next_due_ms(),
            false => now.wall_ms + ATTEMPT_POLL_INTERVAL_MS,
        }
    }

    pub fn machine(&self) -> &M {
        &self.machine
    }

    /// Mutable access to the machine, for a simulator.
    pub fn machine_mut(&mut self) -> &mut M {
        &mut self.machine
    }

    /// Returns the machine, as when the agent ends. Running attempts keep running.
    pub fn into_machine(self) -> M {
        self.machine
    }

    fn report_heartbeat(&mut self, now_ms: i64, send_report: &mut dyn FnMut(Report)) {
        if !self.heartbeat_timer.is_due(now_ms, self.config.repeat_interval_ms) {
            return;
        }
        // A standby ignores reports. Registration is repeated with each heartbeat until orders name this incarnation.
        if !self.order_fence.is_registered() {
            send_report(Report::Registered(Box::new(self.registration.clone())));
        }
        send_report(Report::Heartbeat { node: self.config.node.clone() });
    }

    /// Takes over orders, unless they are outdated or meant for another node or incarnation.
    fn apply_orders(&mut self, orders: Orders) {
        if orders.node != self.config.node {
            tracing::warn!(node = orders.node, "orders name another node; ignored");
            return;
        }
        if !self.order_fence.accepts(&orders) {
            return;
        }
        let is_first = !self.has_tracked_leftovers;
        self.track_leftover_attempts();
        let named: BTreeSet<_> = orders.attempts.iter().map(|order| (order.job.as_str(), order.attempt)).collect();
        for (key, tracked) in &mut self.attempts {
            if !named.contains(&(key.job(), key.attempt())) {
                tracked.order = None;
            }
        }
        orders.attempts.into_iter().for_each(|order| self.apply_order(order, is_first));
    }

    /// Tracks the ordered attempt. A previous agent may already have launched any attempt of the first orders.
    fn apply_order(&mut self, order: AttemptOrder, is_first: bool) {
        let key = match AttemptKey::new(&order.job, order.attempt) {
            Ok(key) => key,
            Err(error) => {
                tracing::error!(job = order.job, "invalid order, ignored: {error}");
                return;
            }
        };
        match self.attempts.get_mut(&key) {
            Some(tracked) => tracked.order = Some(order),
            None if is_first => {
                let tracked = TrackedAttempt::new(&mut self.machine, &key, Some(order)).assume_predates_this_agent();
                self.attempts.insert(key, tracked);
            }
            None => self.track_attempt(key, Some(order)),
        }
    }

    /// Runs once, with the first orders: attempts of a previous agent that the orders do not contain must end.
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

//! The reconciler. Step 10, run, and step 11, report: makes the attempts of a node equal to its orders.
//!
//! The reconciler keeps no durable state. It reads the status of an attempt (`attempt_status.rs`), chooses an action
//! (`action.rs`) and performs it (`tracked_attempt.rs`). A restarted agent therefore continues where its predecessor
//! stopped: it adopts running attempts, reports exits that happened meanwhile, and never launches an attempt that has
//! any record.
//!
//! An attempt is looked at when its order has changed, when the machine says that something may have changed, when
//! something of it is due (a repeated report, the end of a grace), and otherwise every few seconds.
//!
//! All effects go through the [`Machine`], and the time is an argument, so that the simulator runs this very code.

mod action;
mod attempt_status;
#[cfg(test)]
mod tests;
mod tracked_attempt;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use muster_protocol::agent::{AttemptOrder, AttemptSecrets, Orders, Registration, Report};

use crate::clock::ClockReading;
use crate::isolation::UNKILLABLE_AFTER_MS;
use crate::machine::{AttemptKey, Machine};
use crate::order_fence::{FenceDecision, OrderFence};
use crate::repeat_timer::RepeatTimer;

use tracked_attempt::TrackedAttempt;

/// How often an attempt is looked at without an event. An event can be lost: the kernel limits the watches of a user,
/// a file system may not report changes, and a shim may have been started by an agent that left no trace of it.
pub const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// The reconciler of one node.
#[derive(Debug)]
pub struct Reconciler<M> {
    config: ReconcilerConfig,
    machine: M,
    registration: Registration,
    order_fence: OrderFence,
    heartbeat_timer: RepeatTimer,
    /// The boot clock when this agent first registered.
    registered_at_boot_ms: Option<i64>,
    /// The boot clock when the newest heartbeat that a leader acknowledged was sent.
    acknowledged_at_boot_ms: Option<i64>,
    /// The newest acknowledgement that was sent to the shims.
    renewed_at_boot_ms: Option<i64>,
    attempts: BTreeMap<AttemptKey, TrackedAttempt>,
    /// The attempts that the previous agent left are tracked.
    has_tracked_leftovers: bool,
    /// The newest orders want this boot of the node to end.
    is_reboot_ordered: bool,
    /// How often this agent continued as a new incarnation.
    reincarnations: u32,
}

/// Constant for the lifetime of a reconciler.
#[derive(Debug)]
struct ReconcilerConfig {
    node: String,
    incarnation: String,
    boot_id: String,
    repeat_interval_ms: i64,
    look_interval_ms: i64,
    unkillable_after_ms: i64,
}

/// The context of reconciling one attempt: machine, time and report sink.
struct ReconcileContext<'a, M> {
    config: &'a ReconcilerConfig,
    machine: &'a mut M,
    now: ClockReading,
    acknowledged_at_boot_ms: Option<i64>,
    send_report: &'a mut dyn FnMut(Report),
}

impl<M: Machine> Reconciler<M> {
    /// A reconciler over a machine in any state. `repeat_interval_ms` is the interval of heartbeats and of repeated
    /// reports.
    pub fn new(registration: Registration, repeat_interval_ms: i64, machine: M) -> Reconciler<M> {
        let registration = Registration { heartbeat_interval_ms: Some(repeat_interval_ms), ..registration };
        let config = ReconcilerConfig {
            node: registration.node.clone(),
            incarnation: registration.incarnation.clone(),
            boot_id: machine.boot_id().to_string(),
            repeat_interval_ms,
            look_interval_ms: millis(LOOK_INTERVAL),
            unkillable_after_ms: UNKILLABLE_AFTER_MS,
        };
        Reconciler {
            order_fence: OrderFence::new(&config.incarnation),
            config,
            machine,
            registration,
            heartbeat_timer: RepeatTimer::default(),
            registered_at_boot_ms: None,
            acknowledged_at_boot_ms: None,
            renewed_at_boot_ms: None,
            attempts: BTreeMap::new(),
            has_tracked_leftovers: false,
            is_reboot_ordered: false,
            reincarnations: 0,
        }
    }

    /// Changes how often an attempt is looked at without an event.
    pub fn with_look_interval(mut self, interval: Duration) -> Reconciler<M> {
        self.config.look_interval_ms = millis(interval).max(1);
        self
    }

    /// Changes how long processes may survive SIGKILL before they are reported.
    pub fn with_unkillable_after(mut self, unkillable_after_ms: i64) -> Reconciler<M> {
        self.config.unkillable_after_ms = unkillable_after_ms;
        self
    }

    /// Does what is due and returns the wall time of the next call, unless the machine reports a change before. The
    /// first call registers the node; attempts are touched only after the first orders.
    pub fn reconcile(&mut self, now: ClockReading, orders: Option<Orders>, send_report: &mut dyn FnMut(Report)) -> i64 {
        self.report_heartbeat(now, send_report);
        if let Some(orders) = orders {
            self.apply_orders(orders);
        }
        for key in self.machine.take_changed_attempts() {
            if let Some(tracked) = self.attempts.get_mut(&key) {
                tracked.look_now();
            }
        }
        self.renew_self_fences();
        let mut context = ReconcileContext {
            config: &self.config,
            machine: &mut self.machine,
            now,
            acknowledged_at_boot_ms: self.acknowledged_at_boot_ms,
            send_report,
        };
        self.attempts.retain(|_, tracked| tracked.reconcile_if_due(&mut context));
        let next_looks = self.attempts.values().map(TrackedAttempt::next_look_ms);
        let next_ms = next_looks.fold(self.heartbeat_timer.next_due_ms(), i64::min);
        now.wall_ms.saturating_add(next_ms.saturating_sub(now.monotonic_ms).max(0))
    }

    /// Takes over that a leader received the heartbeat that was sent at this time. Echoes may arrive out of order. The
    /// next call of [`reconcile`](Reconciler::reconcile) renews the self-fences of the attempts.
    pub fn acknowledge_heartbeat(&mut self, sent_at_boot_ms: i64) {
        self.acknowledged_at_boot_ms = self.acknowledged_at_boot_ms.max(Some(sent_at_boot_ms));
    }

    fn renew_self_fences(&mut self) {
        if self.renewed_at_boot_ms == self.acknowledged_at_boot_ms {
            return;
        }
        self.renewed_at_boot_ms = self.acknowledged_at_boot_ms;
        for tracked in self.attempts.values_mut() {
            tracked.acknowledge(&mut self.machine, self.acknowledged_at_boot_ms);
        }
    }

    /// True if the node is to reboot now: this boot is to end, and nothing of any attempt is left.
    pub fn is_reboot_due(&self) -> bool {
        self.is_reboot_ordered && self.attempts.is_empty()
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

    fn report_heartbeat(&mut self, now: ClockReading, send_report: &mut dyn FnMut(Report)) {
        if !self.heartbeat_timer.is_due(now.monotonic_ms, self.config.repeat_interval_ms) {
            return;
        }
        // A standby ignores reports. Registration is repeated with each heartbeat until orders name this incarnation.
        if !self.order_fence.is_registered() {
            self.registered_at_boot_ms.get_or_insert(now.monotonic_ms);
            send_report(Report::Registered(Box::new(self.registration.clone())));
        }
        send_report(Report::Heartbeat {
            node: self.config.node.clone(),
            following: self.order_fence.following(),
            sent_at_boot_ms: now.monotonic_ms,
        });
    }

    /// Takes over orders, unless they are outdated or meant for another node or incarnation.
    fn apply_orders(&mut self, orders: Orders) {
        if orders.node != self.config.node {
            tracing::warn!(node = orders.node, "orders name another node; ignored");
            return;
        }
        match self.order_fence.judge(&orders) {
            FenceDecision::Follow => {}
            FenceDecision::Refuse => return,
            FenceDecision::Reincarnate => return self.reincarnate(&orders),
        }
        // Orders for this incarnation prove that a leader has received its registration. That is as good as an
        // acknowledged heartbeat, and older than the orders, however long they were on the way.
        self.acknowledged_at_boot_ms = self.acknowledged_at_boot_ms.max(self.registered_at_boot_ms);
        self.is_reboot_ordered = orders.reboot_from.as_ref() == Some(&self.config.boot_id);
        let is_first = !self.has_tracked_leftovers;
        self.track_leftover_attempts();
        let named: BTreeSet<_> = orders.attempts.iter().map(|order| (order.job.as_str(), order.attempt)).collect();
        for (key, tracked) in &mut self.attempts {
            if !named.contains(&(key.job(), key.attempt())) {
                tracked.set_order(None);
            }
        }
        orders.attempts.into_iter().for_each(|order| self.apply_order(order, is_first));
        orders.secrets.into_iter().for_each(|secrets| self.hand_over(secrets));
    }

    fn hand_over(&mut self, secrets: AttemptSecrets) {
        let key = AttemptKey::new(&secrets.job, secrets.attempt).ok();
        if let Some(tracked) = key.and_then(|key| self.attempts.get_mut(&key)) {
            tracked.set_secrets(secrets);
        }
    }

    /// Continues as after a restart of the agent: registers under a new id, and adopts what runs once there are orders for
    /// it. Only a server that records the registration can have them, and then they name every attempt that it knows here.
    fn reincarnate(&mut self, orders: &Orders) {
        let (following, offered) = (self.order_fence.following(), orders.stamp());
        tracing::warn!(?following, ?offered, "the server's history is another one than before; registering again");
        self.reincarnations += 1;
        let first = self.registration.incarnation.split('~').next().unwrap_or_default();
        self.registration.incarnation = format!("{first}~{}", self.reincarnations);
        self.config.incarnation = self.registration.incarnation.clone();
        self.order_fence = OrderFence::new(&self.config.incarnation);
        self.heartbeat_timer = RepeatTimer::default();
        self.registered_at_boot_ms = None;
        self.attempts.clear();
        self.has_tracked_leftovers = false;
        self.is_reboot_ordered = false;
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
            Some(tracked) => tracked.set_order(Some(order)),
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

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

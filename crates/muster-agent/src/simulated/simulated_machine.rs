//! A simulated node: it keeps the records of its attempts in memory and runs simulated shims. `port.rs` makes it a
//! `Machine`.
//!
//! No state is kept on disk: when the orders of a new agent name an attempt as started, the machine restores the attempt from
//! its order, with the same start and the same end. Every change is an event for the reconciler, and none is lost.

mod port;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use muster_protocol::agent::AttemptOrder;

use super::effect::LogLine;
use super::log_text;
use super::simulated_shim::{ShimStep, SimulatedShim};
use crate::clock::ClockReading;
use crate::machine::{AttemptKey, InMemoryRecords};
use crate::records::{ExitRecord, LaunchIntent, LaunchLock, ShimRecord, StopRecord};

/// Simulated nodes are not rebooted.
const BOOT_ID: &str = "simulated";

/// The machine of one simulated node.
#[derive(Debug)]
pub(super) struct SimulatedMachine {
    node: String,
    now: ClockReading,
    attempts: BTreeMap<AttemptKey, SimulatedAttempt>,
    /// The attempt of each live shim, by pid.
    live_shims: BTreeMap<i32, AttemptKey>,
    /// When each live shim acts next, by the boot clock.
    due_shims: BTreeSet<(i64, AttemptKey)>,
    last_pid: i32,
    changed_attempts: Vec<AttemptKey>,
    log_lines: Vec<LogLine>,
}

/// The records of an attempt, and its shim while it is alive.
#[derive(Debug, Default)]
struct SimulatedAttempt {
    records: InMemoryRecords,
    shim: Option<SimulatedShim>,
    /// The time in `due_shims`.
    due_ms: i64,
}

impl SimulatedMachine {
    pub fn new(node: &str) -> SimulatedMachine {
        SimulatedMachine {
            node: node.to_string(),
            now: ClockReading { wall_ms: 0, monotonic_ms: 0 },
            attempts: BTreeMap::new(),
            live_shims: BTreeMap::new(),
            due_shims: BTreeSet::new(),
            last_pid: 0,
            changed_attempts: Vec::new(),
            log_lines: Vec::new(),
        }
    }

    /// Lets the shims act that are due by now, each at its time.
    pub fn advance_to(&mut self, now: ClockReading) {
        self.now = now;
        while let Some((due_ms, key)) = self.due_shims.first().filter(|(due_ms, _)| *due_ms <= now.monotonic_ms) {
            let (due_ms, key) = (*due_ms, key.clone());
            self.wake_shim(&key, due_ms);
        }
    }

    /// When the next shim is due, by the boot clock; now if the reconciler has not seen a change yet.
    pub fn next_due_ms(&self) -> i64 {
        match self.changed_attempts.is_empty() {
            true => self.due_shims.first().map_or(i64::MAX, |(due_ms, _)| *due_ms),
            false => self.now.monotonic_ms,
        }
    }

    /// Takes what the tasks have written to their logs since the last call.
    pub fn take_log_lines(&mut self) -> Vec<LogLine> {
        std::mem::take(&mut self.log_lines)
    }

    /// The GPUs that running attempts heat, in °C. Of two attempts on one GPU the hotter counts.
    pub fn heated_gpus(&self) -> BTreeMap<u8, i32> {
        let mut heated = BTreeMap::new();
        for attempt in self.attempts.values() {
            let Some(temperature_c) = attempt.shim.as_ref().and_then(SimulatedShim::heats_to_c) else { continue };
            let tasks = attempt.records.intent.iter().flat_map(|intent| &intent.order.tasks);
            for gpu in tasks.flat_map(|task| &task.gpus) {
                let hottest = heated.entry(*gpu).or_insert(temperature_c);
                *hottest = temperature_c.max(*hottest);
            }
        }
        heated
    }

    fn boot_ms(&self, wall_ms: i64) -> i64 {
        wall_ms.saturating_sub(self.now.wall_ms).saturating_add(self.now.monotonic_ms)
    }

    fn wall_ms(&self, boot_ms: i64) -> i64 {
        boot_ms.saturating_sub(self.now.monotonic_ms).saturating_add(self.now.wall_ms)
    }

    fn records(&mut self, key: &AttemptKey) -> Option<&mut InMemoryRecords> {
        self.attempts.get_mut(key).map(|attempt| &mut attempt.records)
    }

    /// Starts the shim of an attempt with a launch intent. It takes the launch lock at once.
    fn spawn_shim(&mut self, key: &AttemptKey) {
        self.last_pid += 1;
        let (pid, wall_ms, boot_ms) = (self.last_pid, self.now.wall_ms, self.now.monotonic_ms);
        let Some(attempt) = self.attempts.get_mut(key) else { return };
        let Some(intent) = &attempt.records.intent else { return };
        let placed_at_ms = intent.order.placed_at_ms.saturating_sub(wall_ms).saturating_add(boot_ms);
        let shim = SimulatedShim::new(&intent.order, placed_at_ms, intent.self_fence);
        let boot_id = BOOT_ID.to_string();
        let record = ShimRecord { pid, start_time: 0, boot_id, session: pid, process_group: None };
        if attempt.records.take_launch_lock(record) {
            attempt.due_ms = shim.next_due_ms();
            attempt.shim = Some(shim);
            self.due_shims.insert((attempt.due_ms, key.clone()));
            self.live_shims.insert(pid, key.clone());
        }
    }

    /// Lets one shim do what was due until `now_ms`, each at its time.
    fn advance_shim(&mut self, key: &AttemptKey, now_ms: i64) {
        let next_due = |attempts: &BTreeMap<AttemptKey, SimulatedAttempt>| {
            let shim = attempts.get(key)?.shim.as_ref()?;
            Some(shim.next_due_ms()).filter(|due_ms| *due_ms <= now_ms)
        };
        while let Some(due_ms) = next_due(&self.attempts) {
            self.wake_shim(key, due_ms);
        }
    }

    /// Lets a shim do everything that is due at `now_ms`.
    fn wake_shim(&mut self, key: &AttemptKey, now_ms: i64) {
        while let Some(SimulatedAttempt { records, shim: Some(shim), .. }) = self.attempts.get_mut(key) {
            let step = shim.step(now_ms, records.stop.as_ref());
            if matches!(step, ShimStep::Waited) {
                break;
            }
            self.take_step(key, now_ms, step);
        }
        self.reschedule(key);
    }

    fn take_step(&mut self, key: &AttemptKey, now_ms: i64, step: ShimStep) {
        match step {
            ShimStep::Waited => return,
            ShimStep::TasksStarted => self.record_start(key),
            ShimStep::NotStarted(why) => {
                let ended_at_ms = self.wall_ms(now_ms);
                self.record_exit(key, |order| ExitRecord::not_started(order.placed_at_ms, why, ended_at_ms));
            }
            ShimStep::Ended(monitor) => {
                let ended_at_ms = self.wall_ms(now_ms);
                self.record_exit(key, |order| monitor.into_exit_record(order, ended_at_ms));
            }
        }
        self.changed_attempts.push(key.clone());
    }

    fn record_start(&mut self, key: &AttemptKey) {
        let Some(SimulatedAttempt { records, shim: Some(shim), .. }) = self.attempts.get_mut(key) else { return };
        if let Some(LaunchLock::Shim(record)) = &mut records.launch_lock {
            record.process_group = Some(record.pid);
        }
        // The log of a restored attempt has these lines.
        if let Some(intent) = records.intent.as_ref().filter(|intent| !intent.order.started) {
            self.log_lines.extend(log_text::opening_lines(&self.node, &intent.order, shim.runtime_ms()));
        }
    }

    /// The shim writes the exit record and exits.
    fn record_exit(&mut self, key: &AttemptKey, record: impl FnOnce(&AttemptOrder) -> ExitRecord) {
        let Some(SimulatedAttempt { records, .. }) = self.attempts.get_mut(key) else { return };
        if let Some(intent) = &records.intent {
            let record = record(&intent.order);
            let stopped_because = records.stop.as_ref().map(|stop| stop.why.as_str());
            self.log_lines.extend(log_text::closing_lines(&intent.order, &record.exit, stopped_because));
            records.exit = Some(record);
        }
        self.remove_shim(key);
    }

    fn remove_shim(&mut self, key: &AttemptKey) {
        let Some(attempt) = self.attempts.get_mut(key) else { return };
        attempt.shim = None;
        if let Some(shim) = attempt.records.shim() {
            self.live_shims.remove(&shim.pid);
        }
        self.due_shims.remove(&(attempt.due_ms, key.clone()));
    }

    fn reschedule(&mut self, key: &AttemptKey) {
        let Some(attempt) = self.attempts.get_mut(key) else { return };
        let Some(due_ms) = attempt.shim.as_ref().map(SimulatedShim::next_due_ms) else { return };
        if attempt.due_ms != due_ms {
            self.due_shims.remove(&(attempt.due_ms, key.clone()));
            self.due_shims.insert((due_ms, key.clone()));
            attempt.due_ms = due_ms;
        }
    }

    /// As if the shim had been started after the placement, and told of the stop when it was ordered.
    fn restore(&mut self, key: &AttemptKey, order: &AttemptOrder) {
        let intent = LaunchIntent { order: order.clone(), boot_id: BOOT_ID.to_string(), self_fence: None };
        let records = InMemoryRecords { intent: Some(intent), ..InMemoryRecords::default() };
        self.attempts.insert(key.clone(), SimulatedAttempt { records, ..SimulatedAttempt::default() });
        self.spawn_shim(key);
        if let Some(stop) = &order.stop {
            let stopped_at_ms = self.boot_ms(stop.since_ms).min(self.now.monotonic_ms);
            self.advance_shim(key, stopped_at_ms);
            self.stop_shim(key, StopRecord { grace_ms: stop.grace_ms, why: stop.why.clone() }, stopped_at_ms);
        }
        self.advance_shim(key, self.now.monotonic_ms);
    }

    fn stop_shim(&mut self, key: &AttemptKey, stop: StopRecord, now_ms: i64) {
        if let Some(records) = self.records(key).filter(|records| records.exit.is_none()) {
            records.stop = Some(stop);
        }
        self.wake_shim(key, now_ms);
    }
}

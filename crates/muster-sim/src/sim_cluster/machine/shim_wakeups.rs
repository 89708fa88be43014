//! What wakes a simulated shim: messages of its agent, which may be lost, the ends of its tasks, and its timer. And what
//! wakes the agent.

use muster_agent::machine::AttemptKey;
use muster_agent::records::{ExitRecord, LaunchLock, SelfFence};
use muster_agent::shim::gang_monitor::{SHIM_LOOK_INTERVAL_MS, StopAction};
use muster_protocol::agent::AttemptOrder;

use super::{MachineEvent, SimMachine, SimMachineState};

/// The per mille of messages to shims, and of events for agents, that are lost.
const LOST_PER_MILLE: u64 = 30;
/// A timer is checked at least this often, in true time, because the rate of the machine's clock may change.
const TIMER_CHECK_MS: i64 = 400;
/// The clock of a machine may be three times too fast.
const CLOCK_RATE_MAX: i64 = 3;

/// The timer of a shim. Only the newest number counts.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ShimTimer {
    number: u64,
    due_ms: i64,
}

impl SimMachine {
    /// True once after each event for the agent.
    pub fn take_new_changes(&self) -> bool {
        std::mem::take(&mut self.0.borrow_mut().has_new_changes)
    }
}

impl SimMachineState {
    pub(super) fn notify_agent(&mut self, key: AttemptKey) {
        if !self.random.chance_per_mille(LOST_PER_MILLE) {
            self.changed_attempts.insert(key);
            self.has_new_changes = true;
        }
    }

    fn live_shim_of(&self, key: &AttemptKey) -> Option<i32> {
        self.shims.iter().find(|(_, shim)| shim.is_alive && shim.key == *key).map(|(pid, _)| *pid)
    }

    /// Wakes the shim for its stop record. Returns by how much it may be late, by the clock of the machine.
    pub(super) fn send_stop_message(&mut self, key: &AttemptKey) -> i64 {
        let Some(pid) = self.live_shim_of(key) else { return 0 };
        if self.random.chance_per_mille(LOST_PER_MILLE) {
            return (SHIM_LOOK_INTERVAL_MS + TIMER_CHECK_MS) * CLOCK_RATE_MAX;
        }
        self.schedule(0, 20, MachineEvent::ShimWakes(pid));
        0
    }

    pub(super) fn send_renewal(&mut self, key: &AttemptKey, renewal: SelfFence) {
        let Some(pid) = self.live_shim_of(key) else { return };
        if !self.random.chance_per_mille(LOST_PER_MILLE) {
            self.schedule(0, 20, MachineEvent::ShimIsRenewed(pid, renewal));
        }
    }

    pub(super) fn renew_shim(&mut self, pid: i32, renewal: SelfFence) {
        if let Some(monitor) = self.shims.get_mut(&pid).and_then(|shim| shim.monitor.as_mut()) {
            monitor.renew_self_fence(renewal);
        }
        self.wake_shim(pid);
    }

    /// The shim asks its monitor, acts, and sleeps until the next event or deadline.
    pub(super) fn wake_shim(&mut self, pid: i32) {
        let now_ms = self.clock.monotonic_ms();
        let Some(key) = self.attempt_of_live_shim(pid) else { return };
        let stop = Ok(self.attempt_dir(&key).records.stop.clone());
        let Some(monitor) = self.shims.get_mut(&pid).and_then(|shim| shim.monitor.as_mut()) else { return };
        let action = monitor.next_action(now_ms, &stop);
        let due_ms = monitor.next_due_ms(now_ms);
        match action {
            StopAction::Terminate => self.send_term(pid),
            StopAction::Kill => drop(self.kill_tasks(pid)),
            StopAction::Wait => {}
        }
        self.set_timer(pid, due_ms);
    }

    fn set_timer(&mut self, pid: i32, due_ms: i64) {
        let Some(shim) = self.shims.get_mut(&pid).filter(|shim| !shim.running.is_empty()) else { return };
        shim.timer = ShimTimer { number: shim.timer.number + 1, due_ms };
        let number = shim.timer.number;
        let sleep_ms = self.clock.true_duration_ms(due_ms - self.clock.monotonic_ms()).clamp(1, TIMER_CHECK_MS);
        self.pending_events.push((sleep_ms, MachineEvent::ShimTimer(pid, number)));
    }

    pub(super) fn handle_shim_timer(&mut self, pid: i32, number: u64) {
        let Some(timer) = self.shims.get(&pid).map(|shim| shim.timer).filter(|timer| timer.number == number) else {
            return;
        };
        match timer.due_ms > self.clock.monotonic_ms() {
            true => self.set_timer(pid, timer.due_ms),
            false => self.wake_shim(pid),
        }
    }

    /// The self-fence deadline has passed before the tasks started.
    pub(super) fn end_before_the_start(&mut self, pid: i32, order: &AttemptOrder, fence: SelfFence) {
        let Some(key) = self.attempt_of_live_shim(pid) else { return };
        let Some(shim) = self.shims.get_mut(&pid) else { return };
        shim.is_alive = false;
        let lock = LaunchLock::Shim(shim.record.clone());
        let exit = ExitRecord::not_started(order.placed_at_ms, fence.why(), self.clock.wall_ms());
        let records = &mut self.attempt_dir(&key).records;
        records.launch_lock = Some(lock);
        records.exit = Some(exit);
        self.notify_agent(key);
    }
}

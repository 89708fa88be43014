//! Shims that are stopped for a while, as by SIGSTOP: their tasks run on, and nobody looks after them.

use super::{MachineEvent, SimMachine, SimMachineState};

impl SimMachine {
    /// One of the shims that live is stopped for some time.
    pub fn pause_any_shim(&self, number: u64, ms: i64) {
        let mut inside = self.0.borrow_mut();
        let living: Vec<i32> =
            inside.shims.iter().filter(|(_, shim)| shim.is_alive).map(|(pid, _)| *pid).collect();
        let Some(pid) = living.get(number as usize % living.len().max(1)) else { return };
        if let Some(shim) = inside.shims.get_mut(pid).filter(|shim| shim.deferred_events.is_none()) {
            (shim.deferred_events, shim.was_paused) = (Some(Vec::new()), true);
            inside.pending_events.push((ms, MachineEvent::ShimResumes(*pid)));
        }
    }
}

impl SimMachineState {
    /// Whether a shim lives and is stopped.
    pub(super) fn is_paused(&self, pid: i32) -> bool {
        self.shims.get(&pid).is_some_and(|shim| shim.deferred_events.is_some())
    }

    /// Whether a stopped shim would have to do this; it will when it goes on.
    pub(super) fn defer_if_paused(&mut self, due: MachineEvent) -> bool {
        let (MachineEvent::ShimStarts(pid) | MachineEvent::TasksStart(pid) | MachineEvent::ShimPolls(pid) | MachineEvent::ShimWritesExit(pid)) = due
        else {
            return false;
        };
        let Some(waits) = self.shims.get_mut(&pid).and_then(|shim| shim.deferred_events.as_mut()) else { return false };
        waits.push(due);
        true
    }

    pub(super) fn resume_shim(&mut self, pid: i32) {
        let waits = self.shims.get_mut(&pid).and_then(|shim| shim.deferred_events.take());
        self.pending_events.extend(waits.into_iter().flatten().map(|due| (1, due)));
    }
}

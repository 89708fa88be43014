//! Paused shims, as by SIGSTOP: their tasks keep running unsupervised.

use super::{MachineEvent, SimMachine, SimMachineState};

impl SimMachine {
    /// Pauses one of the live shims.
    pub fn pause_any_shim(&self, number: u64, ms: i64) {
        let mut state = self.0.borrow_mut();
        let live: Vec<i32> = state.shims.iter().filter(|(_, shim)| shim.is_alive).map(|(pid, _)| *pid).collect();
        let Some(pid) = live.get(number as usize % live.len().max(1)) else { return };
        if let Some(shim) = state.shims.get_mut(pid).filter(|shim| shim.deferred_events.is_none()) {
            (shim.deferred_events, shim.was_paused) = (Some(Vec::new()), true);
            state.pending_events.push((ms, MachineEvent::ShimResumes(*pid)));
        }
    }
}

impl SimMachineState {
    pub(super) fn is_paused(&self, pid: i32) -> bool {
        self.shims.get(&pid).is_some_and(|shim| shim.deferred_events.is_some())
    }

    /// True if the event belongs to a paused shim; the event is then deferred until the shim resumes.
    pub(super) fn defer_if_paused(&mut self, event: MachineEvent) -> bool {
        let (MachineEvent::ShimStarts(pid)
        | MachineEvent::TasksStart(pid)
        | MachineEvent::ShimWakes(pid)
        | MachineEvent::ShimTimer(pid, _)
        | MachineEvent::ShimIsRenewed(pid, _)
        | MachineEvent::ShimWritesExit(pid)) = event
        else {
            return false;
        };
        let Some(deferred) = self.shims.get_mut(&pid).and_then(|shim| shim.deferred_events.as_mut()) else {
            return false;
        };
        deferred.push(event);
        true
    }

    pub(super) fn resume_shim(&mut self, pid: i32) {
        let deferred = self.shims.get_mut(&pid).and_then(|shim| shim.deferred_events.take());
        self.pending_events.extend(deferred.into_iter().flatten().map(|event| (1, event)));
    }
}

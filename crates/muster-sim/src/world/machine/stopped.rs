//! Shims that are stopped for a while, as by SIGSTOP: their tasks run on, and nobody looks after them.

use super::{Due, Host, Inside};

impl Host {
    /// One of the shims that live is stopped for some time.
    pub fn pause_a_shim(&self, number: u64, ms: i64) {
        let mut inside = self.0.borrow_mut();
        let living: Vec<i32> =
            inside.shims.iter().filter(|(_, shim)| shim.lives).map(|(pid, _)| *pid).collect();
        let Some(pid) = living.get(number as usize % living.len().max(1)) else { return };
        if let Some(shim) = inside.shims.get_mut(pid).filter(|shim| shim.waits.is_none()) {
            (shim.waits, shim.was_stopped) = (Some(Vec::new()), true);
            inside.due.push((ms, Due::ShimGoesOn(*pid)));
        }
    }
}

impl Inside {
    /// Whether a shim lives and is stopped.
    pub(super) fn is_stopped(&self, pid: i32) -> bool {
        self.shims.get(&pid).is_some_and(|shim| shim.waits.is_some())
    }

    /// Whether a stopped shim would have to do this; it will when it goes on.
    pub(super) fn is_put_off(&mut self, due: Due) -> bool {
        let (Due::ShimBegins(pid) | Due::TasksBegin(pid) | Due::ShimLooks(pid) | Due::ShimWrites(pid)) = due
        else {
            return false;
        };
        let Some(waits) = self.shims.get_mut(&pid).and_then(|shim| shim.waits.as_mut()) else { return false };
        waits.push(due);
        true
    }

    pub(super) fn shim_goes_on(&mut self, pid: i32) {
        let waits = self.shims.get_mut(&pid).and_then(|shim| shim.waits.take());
        self.due.extend(waits.into_iter().flatten().map(|due| (1, due)));
    }
}

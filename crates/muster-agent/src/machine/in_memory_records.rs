//! The records of one attempt in memory, for machines that have no disk: the simulated one, that of the simulator and
//! the fake one of the tests.

use crate::records::{ExitRecord, LaunchIntent, LaunchLock, ShimRecord, StopRecord};

/// What an attempt directory holds of an attempt.
#[derive(Debug, Clone, Default)]
pub struct InMemoryRecords {
    pub intent: Option<LaunchIntent>,
    pub launch_lock: Option<LaunchLock>,
    pub stop: Option<StopRecord>,
    pub exit: Option<ExitRecord>,
}

impl InMemoryRecords {
    /// The attempt was launched and is not cleaned up.
    pub fn is_launched(&self) -> bool {
        self.intent.is_some()
    }

    /// The shim of the attempt; `None` if no shim has taken the launch lock.
    pub fn shim(&self) -> Option<&ShimRecord> {
        match &self.launch_lock {
            Some(LaunchLock::Shim(shim)) => Some(shim),
            Some(LaunchLock::Abandoned) | None => None,
        }
    }

    /// A shim takes the launch lock. False if the launch was abandoned, or another shim holds the lock: nothing may run.
    pub fn take_launch_lock(&mut self, shim: ShimRecord) -> bool {
        let is_free = self.launch_lock.is_none() && self.is_launched();
        if is_free {
            self.launch_lock = Some(LaunchLock::Shim(shim));
        }
        is_free
    }

    /// As [`Machine::abandon_launch`](super::Machine::abandon_launch).
    pub fn abandon_launch(&mut self) -> bool {
        let is_free = self.launch_lock.is_none();
        self.launch_lock.get_or_insert(LaunchLock::Abandoned);
        is_free
    }

    /// As [`Machine::clean_up`](super::Machine::clean_up).
    pub fn clean_up(&mut self) {
        *self = InMemoryRecords { exit: self.exit.take(), ..InMemoryRecords::default() };
    }
}

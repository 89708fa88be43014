//! FIFO queue of writers. SQLite admits one writer at a time, and the others retry without order, so a busy journal
//! would starve the savepoints.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// FIFO lock.
#[derive(Debug, Default)]
pub struct WriteQueue {
    tickets: Mutex<Tickets>,
    served_changed: Condvar,
}

#[derive(Debug, Default)]
struct Tickets {
    issued: u64,
    served: u64,
}

/// Permission to write, until it is dropped.
pub struct WritePermit<'a>(&'a WriteQueue);

impl WriteQueue {
    /// Wait until all earlier writers are done.
    pub fn acquire(&self) -> WritePermit<'_> {
        let mut tickets = self.lock_tickets();
        let ticket = tickets.issued;
        tickets.issued += 1;
        while tickets.served != ticket {
            tickets = self.served_changed.wait(tickets).unwrap_or_else(PoisonError::into_inner);
        }
        WritePermit(self)
    }

    fn lock_tickets(&self) -> MutexGuard<'_, Tickets> {
        self.tickets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for WritePermit<'_> {
    fn drop(&mut self) {
        self.0.lock_tickets().served += 1;
        self.0.served_changed.notify_all();
    }
}

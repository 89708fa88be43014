//! Whose turn it is to write to the file. SQLite lets one write at a time, but the others ask again and again
//! instead of standing in tickets: a busy journal would never let a savepoint through.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// A tickets of those who want to write.
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

/// The right to write, until it is dropped.
pub struct WritePermit<'a>(&'a WriteQueue);

impl WriteQueue {
    /// Join the tickets, and return at its head.
    pub fn acquire(&self) -> WritePermit<'_> {
        let mut tickets = self.lock_tickets();
        let mine = tickets.issued;
        tickets.issued += 1;
        while tickets.served != mine {
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

//! Whose turn it is to write to the file. SQLite lets one write at a time, but the others ask again and again
//! instead of standing in line: a busy journal would never let a savepoint through.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// A line of those who want to write.
#[derive(Debug, Default)]
pub struct Turns {
    line: Mutex<Line>,
    moved: Condvar,
}

#[derive(Debug, Default)]
struct Line {
    joined: u64,
    served: u64,
}

/// The right to write, until it is dropped.
pub struct Turn<'a>(&'a Turns);

impl Turns {
    /// Join the line, and return at its head.
    pub fn take(&self) -> Turn<'_> {
        let mut line = self.line();
        let mine = line.joined;
        line.joined += 1;
        while line.served != mine {
            line = self.moved.wait(line).unwrap_or_else(PoisonError::into_inner);
        }
        Turn(self)
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.line().served += 1;
        self.0.moved.notify_all();
    }
}

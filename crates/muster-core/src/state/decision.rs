//! The result of an accepted command (step 4, decide).

use crate::facts::command::Answer;
use crate::facts::event::Event;

/// The result of an accepted command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// In order; empty if the command requests what already holds.
    pub events: Vec<Event>,
    pub answer: Answer,
}

impl Decision {
    /// Events with the answer `Done`.
    pub(super) fn done(events: Vec<Event>) -> Decision {
        Decision { events, answer: Answer::Done }
    }
}

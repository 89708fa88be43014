//! The range of time in which a waiting job is expected to start.

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// When a job starts, as far as can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct StartRange {
    pub from: Timestamp,
    pub to: Timestamp,
}

impl StartRange {
    /// The same within what is certain: a job never starts before its earliest start, and a reservation is a moment by
    /// which it starts, so no range begins after it.
    pub fn within(self, earliest: Timestamp, reserved: Option<Timestamp>) -> StartRange {
        let from = reserved.map_or(self.from, |at| self.from.min(at)).max(earliest);
        StartRange { from, to: self.to.max(from) }
    }

    /// The moment of a reservation as it is told beside this range. The planner reserves by time limits and cautious
    /// estimates, so the forecast may expect the start sooner, and then the reservation is kept by the end of the range.
    pub fn reservation(self, reserved: Timestamp) -> Timestamp {
        reserved.min(self.to).max(self.from)
    }
}

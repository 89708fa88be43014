//! Start range: the interval in which a waiting job is expected to start.

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// The interval in which a job is expected to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct StartRange {
    pub from: Timestamp,
    pub to: Timestamp,
}

impl StartRange {
    /// The range limited by what is certain: a job never starts before `earliest`, and it starts by its reservation, so
    /// no range begins after the reservation.
    pub fn within(self, earliest: Timestamp, reserved: Option<Timestamp>) -> StartRange {
        let from = reserved.map_or(self.from, |at| self.from.min(at)).max(earliest);
        StartRange { from, to: self.to.max(from) }
    }

    /// The time of a reservation as shown beside this range, limited to the range. The planner reserves by time limits
    /// and conservative estimates, so the forecast may expect an earlier start; then the end of the range is shown.
    pub fn reservation(self, reserved: Timestamp) -> Timestamp {
        reserved.min(self.to).max(self.from)
    }
}

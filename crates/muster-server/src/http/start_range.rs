//! When a job starts, as it is told: within what is certain, and only while such ranges are mostly right.

use muster_core::objects::start_range::StartRange;
use muster_core::planner::EarliestStarts;
use muster_core::{JobId, Timestamp};
use muster_protocol::explain::ExpectedStart;

use crate::http::conversions::rfc3339;

/// What a start range of a job must agree with.
pub struct StartRangeCheck {
    now: Timestamp,
    /// The begin time of the job, or the end of the windows it cannot start in.
    earliest_start: Timestamp,
    reserved: Option<Timestamp>,
    all_hits: (u32, u32),
    recent_hits: (u32, u32),
    is_reliable: bool,
    /// The forecast rests on the configured default runtime.
    rests_on_default_runtime: bool,
}

/// A range that is worth telling, and how often such ranges were right.
pub struct ReliableStartRange {
    range: StartRange,
    hits: (u32, u32),
}

impl StartRangeCheck {
    /// Of a waiting job, with its reservation if it has one.
    pub fn new(
        state: &muster_core::State,
        job: JobId,
        reserved: Option<Timestamp>,
        now: Timestamp,
    ) -> StartRangeCheck {
        StartRangeCheck {
            now,
            earliest_start: EarliestStarts::new(state, now).of(job),
            reserved,
            all_hits: state.calibration.hits(),
            recent_hits: state.calibration.recent_hits(),
            is_reliable: state.calibration.is_reliable(),
            rests_on_default_runtime: state.guesses_runtimes(job),
        }
    }

    /// The range as it is told, or why none is.
    pub fn reliable(&self, range: Option<StartRange>) -> Result<ReliableStartRange, String> {
        if self.rests_on_default_runtime {
            return Err(
                "no job has ended here, so runtimes are unknown; time limits (`--time`) help".to_string()
            );
        }
        let Some(range) = range else {
            return Err("it does not start within the time that is forecast".to_string());
        };
        if !self.is_reliable {
            let (right, of) = self.recent_hits;
            return Err(format!("only {right} of the last {of} start ranges were right"));
        }
        let range = range.within(self.earliest_start.max(self.now), self.reserved);
        Ok(ReliableStartRange { range, hits: self.all_hits })
    }
}

impl ReliableStartRange {
    /// From when to when.
    pub fn range(&self) -> StartRange {
        self.range
    }

    /// The moment of a reservation as it is told beside the range.
    pub fn reservation_within(&self, reserved: Timestamp) -> Timestamp {
        self.range.reservation(reserved)
    }

    /// For people.
    pub fn to_api(&self) -> ExpectedStart {
        let (from_ms, to_ms) = (self.range.from.0, self.range.to.0);
        let (ranges_right, ranges_told) = self.hits;
        ExpectedStart { from: rfc3339(from_ms), from_ms, to: rfc3339(to_ms), to_ms, ranges_right, ranges_told }
    }
}

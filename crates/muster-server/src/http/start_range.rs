//! Start ranges for the API: clipped to possible starts, and withheld while recent ranges were mostly wrong.
//!
//! The earliest possible start of a job and its reservation bound its range.

use muster_core::objects::start_range::StartRange;
use muster_core::planner::EarliestStarts;
use muster_core::{JobId, Timestamp};
use muster_protocol::explain::ExpectedStart;

use crate::conversions::rfc3339;

/// What a start range must agree with, and whether start ranges are reliable at present.
pub struct StartRangeCheck {
    now: Timestamp,
    /// The `start_after` of the job, or the end of the windows in which it cannot start.
    earliest_start: Timestamp,
    reserved: Option<Timestamp>,
    all_hits: (u32, u32),
    recent_hits: (u32, u32),
    is_reliable: bool,
    /// The forecast rests on the configured default runtime.
    rests_on_default_runtime: bool,
}

/// A start range to show, with how often earlier ranges were right.
pub struct ReliableStartRange {
    range: StartRange,
    hits: (u32, u32),
}

impl StartRangeCheck {
    /// For a waiting job, with the start of its reservation if it has one.
    pub fn new(state: &muster_core::State, job: JobId, reserved: Option<Timestamp>, now: Timestamp) -> StartRangeCheck {
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

    /// The start range to show, or the reason why there is none.
    pub fn reliable(&self, range: Option<StartRange>) -> Result<ReliableStartRange, String> {
        if self.rests_on_default_runtime {
            return Err(
                "no job has ended on this cluster, so there is no runtime history; time limits (`--time`) give \
                 a forecast"
                    .to_string(),
            );
        }
        let Some(range) = range else {
            return Err("no start within the forecast horizon".to_string());
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
    pub fn range(&self) -> StartRange {
        self.range
    }

    /// The start of a reservation, made consistent with the range.
    pub fn reservation_within(&self, reserved: Timestamp) -> Timestamp {
        self.range.reservation(reserved)
    }

    pub fn to_api(&self) -> ExpectedStart {
        let (from_ms, to_ms) = (self.range.from.0, self.range.to.0);
        let (ranges_right, ranges_told) = self.hits;
        ExpectedStart { from: rfc3339(from_ms), from_ms, to: rfc3339(to_ms), to_ms, ranges_right, ranges_told }
    }
}

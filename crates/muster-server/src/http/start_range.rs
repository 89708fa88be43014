//! When a job starts, as it is told: within what is certain, and only while such ranges are mostly right.

use muster_core::plan::{EarliestStarts, Range};
use muster_core::{JobId, Timestamp};
use muster_protocol::outlook::ExpectedStart;

use crate::http::written::stamp;

/// What a start range of a job must agree with.
pub struct StartFacts {
    now: Timestamp,
    /// The begin time of the job, or the end of the windows it cannot start in.
    earliest: Timestamp,
    reserved: Option<Timestamp>,
    hits: (u32, u32),
    recent_hits: (u32, u32),
    is_reliable: bool,
    /// The forecast rests on the configured default runtime.
    is_guessed: bool,
}

/// A range that is worth telling, and how often such ranges were right.
pub struct ToldRange {
    range: Range,
    hits: (u32, u32),
}

impl StartFacts {
    /// Of a waiting job, with its reservation if it has one.
    pub fn of(
        state: &muster_core::State,
        job: JobId,
        reserved: Option<Timestamp>,
        now: Timestamp,
    ) -> StartFacts {
        StartFacts {
            now,
            earliest: EarliestStarts::new(state, now).of(job),
            reserved,
            hits: state.foresight.hits(),
            recent_hits: state.foresight.recent_hits(),
            is_reliable: state.foresight.is_reliable(),
            is_guessed: state.guesses_runtimes(job),
        }
    }

    /// The range as it is told, or why none is.
    pub fn told(&self, range: Option<Range>) -> Result<ToldRange, String> {
        if self.is_guessed {
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
        let range = range.within(self.earliest.max(self.now), self.reserved);
        Ok(ToldRange { range, hits: self.hits })
    }
}

impl ToldRange {
    /// From when to when.
    pub fn range(&self) -> Range {
        self.range
    }

    /// The moment of a reservation as it is told beside the range.
    pub fn reservation(&self, reserved: Timestamp) -> Timestamp {
        self.range.reservation(reserved)
    }

    /// For people.
    pub fn shown(&self) -> ExpectedStart {
        let (from_ms, to_ms) = (self.range.from.0, self.range.to.0);
        let (ranges_right, ranges_told) = self.hits;
        ExpectedStart { from: stamp(from_ms), from_ms, to: stamp(to_ms), to_ms, ranges_right, ranges_told }
    }
}

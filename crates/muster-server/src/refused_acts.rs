//! Refused acts on record, counted together: a caller that is refused a thousand times a second writes one record a
//! minute for each kind of act, with the number of times.
//!
//! The first refusals are recorded one by one and at once, so that an operator sees on what they were tried. Those that
//! follow within the interval are counted and recorded when it is over, or when the leader leaves.

use std::collections::BTreeMap;
use std::mem;

use muster_core::{Event, Timestamp};

/// Time between two records of one caller, act and code.
const INTERVAL_MS: i64 = 60_000;
/// Refusals of one caller, act and code that are recorded one by one before the rest are counted together.
const ONE_BY_ONE: u32 = 10;

/// Refusals that are counted and not yet recorded. Acts are routes and commands, codes are the server's own, so each caller
/// has a limited number of entries.
#[derive(Default)]
pub struct RefusedActs {
    counted: BTreeMap<Kind, Counted>,
}

/// Refusals that are counted together.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    by: String,
    by_kind: Option<String>,
    act: String,
    code: String,
}

/// What came after the last record of its kind.
struct Counted {
    /// When the interval is over.
    until: Timestamp,
    /// How many were recorded one by one.
    recorded: u32,
    times: u32,
    /// On what the last was tried, and when.
    object: String,
    at: Timestamp,
}

impl RefusedActs {
    /// The event, if it is to be recorded now. A refusal within the interval after another is counted instead.
    pub fn admit(&mut self, event: Event) -> Option<Event> {
        let Event::Acted { by, by_kind, act, object, refused: Some(code), at, .. } = &event else {
            return Some(event);
        };
        let kind = Kind { by: by.clone(), by_kind: by_kind.clone(), act: act.clone(), code: code.clone() };
        match self.counted.get_mut(&kind) {
            Some(counted) if counted.recorded < ONE_BY_ONE => {
                counted.recorded += 1;
                Some(event)
            }
            Some(counted) => {
                counted.times = counted.times.saturating_add(1);
                (counted.object, counted.at) = (object.clone(), *at);
                None
            }
            None => {
                let until = at.plus(INTERVAL_MS);
                self.counted
                    .insert(kind, Counted { until, recorded: 1, times: 0, object: String::new(), at: *at });
                Some(event)
            }
        }
    }

    /// Records of the intervals that are over.
    pub fn due(&mut self, now: Timestamp) -> Vec<Event> {
        let mut records = Vec::new();
        self.counted.retain(|kind, counted| {
            if counted.until > now {
                return true;
            }
            counted.until = now.plus(INTERVAL_MS);
            let record = counted.record(kind);
            let goes_on = record.is_some();
            records.extend(record);
            goes_on
        });
        records
    }

    /// Records of everything that was counted.
    pub fn rest(&mut self) -> Vec<Event> {
        let counted = mem::take(&mut self.counted);
        counted.into_iter().filter_map(|(kind, mut counted)| counted.record(&kind)).collect()
    }
}

impl Counted {
    fn record(&mut self, kind: &Kind) -> Option<Event> {
        let times = mem::take(&mut self.times);
        (times > 0).then(|| Event::Acted {
            by: kind.by.clone(),
            by_kind: kind.by_kind.clone(),
            act: kind.act.clone(),
            object: mem::take(&mut self.object),
            refused: Some(kind.code.clone()),
            times,
            at: self.at,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(by: &str, object: &str, at: i64) -> Event {
        let (act, refused) = ("tenant.delete".to_string(), Some("unknown-tenant".to_string()));
        let (by, object) = (by.to_string(), object.to_string());
        let by_kind = Some("token".to_string());
        Event::Acted { by, by_kind, act, object, refused, times: 1, at: Timestamp(at) }
    }

    fn times(events: &[Event]) -> u32 {
        let times = |event: &Event| if let Event::Acted { times, .. } = event { *times } else { 0 };
        events.iter().map(times).sum()
    }

    #[test]
    fn a_flood_is_one_record_a_minute_after_the_first_few_and_none_is_lost_in_count() {
        let mut acts = RefusedActs::default();
        let mut written = Vec::new();
        for second in 0..180 {
            for _ in 0..100 {
                written.extend(acts.admit(refused("ada", "red", second * 1_000)));
            }
            written.extend(acts.due(Timestamp(second * 1_000)));
        }
        assert!(written.len() <= ONE_BY_ONE as usize + 3, "{written:?}");
        written.extend(acts.rest());
        assert_eq!(times(&written), 18_000);
    }

    #[test]
    fn each_caller_is_counted_alone_and_acts_that_were_done_are_not() {
        let mut acts = RefusedActs::default();
        assert!((0..ONE_BY_ONE).all(|_| acts.admit(refused("ada", "red", 0)).is_some()));
        assert!(acts.admit(refused("ben", "red", 0)).is_some());
        assert!(acts.admit(refused("ada", "blue", 5)).is_none());
        let done = Event::Acted {
            by: "ada".into(),
            by_kind: None,
            act: "tenant.delete".into(),
            object: "red".into(),
            refused: None,
            times: 1,
            at: Timestamp(6),
        };
        assert!((0..3).all(|_| acts.admit(done.clone()).is_some()));
        assert_eq!(acts.due(Timestamp(INTERVAL_MS)), vec![refused("ada", "blue", 5)]);
        assert!(acts.admit(refused("ben", "red", INTERVAL_MS)).is_some(), "a quiet minute has passed");
    }
}

//! Refused acts on record, counted together: a caller that is refused a thousand times a second writes one record a
//! minute for each kind of act, with the number of times.
//!
//! The first refusals are recorded one by one and at once, so that an operator sees on what they were tried. Those that
//! follow within the interval are counted and recorded when it is over, or when the leader leaves.

use std::collections::BTreeMap;
use std::mem;

use muster_core::{Event, Timestamp};

/// Time between two records of one caller, act and code.
const RECORD_INTERVAL_MS: i64 = 60_000;
/// Refusals of one caller, act and code that are recorded one by one before the rest are counted together.
const SINGLE_RECORDS_MAX: u32 = 10;

/// Refusals that are counted and not yet recorded. Acts are routes and commands, codes are the server's own, so each caller
/// has a limited number of entries.
#[derive(Default)]
pub struct RefusalAggregator {
    counts: BTreeMap<RefusalKey, RefusalCount>,
}

/// Refusals that are counted together.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct RefusalKey {
    by: String,
    by_kind: Option<String>,
    act: String,
    code: String,
}

/// What came after the last record of its kind.
struct RefusalCount {
    /// When the interval is over.
    interval_ends_at: Timestamp,
    /// How many were recorded one by one.
    recorded_singly: u32,
    unrecorded: u32,
    /// On what the last was tried, and when.
    last_object: String,
    last_at: Timestamp,
}

impl RefusalAggregator {
    /// The event, if it is to be recorded now. A refusal within the interval after another is counted instead.
    pub fn record_or_count(&mut self, event: Event) -> Option<Event> {
        let Event::Acted { by, by_kind, act, object, refused: Some(code), at, .. } = &event else {
            return Some(event);
        };
        let kind = RefusalKey { by: by.clone(), by_kind: by_kind.clone(), act: act.clone(), code: code.clone() };
        match self.counts.get_mut(&kind) {
            Some(counted) if counted.recorded_singly < SINGLE_RECORDS_MAX => {
                counted.recorded_singly += 1;
                Some(event)
            }
            Some(counted) => {
                counted.unrecorded = counted.unrecorded.saturating_add(1);
                (counted.last_object, counted.last_at) = (object.clone(), *at);
                None
            }
            None => {
                let until = at.plus(RECORD_INTERVAL_MS);
                self.counts
                    .insert(kind, RefusalCount { interval_ends_at: until, recorded_singly: 1, unrecorded: 0, last_object: String::new(), last_at: *at });
                Some(event)
            }
        }
    }

    /// Records of the intervals that are over.
    pub fn take_due_records(&mut self, now: Timestamp) -> Vec<Event> {
        let mut records = Vec::new();
        self.counts.retain(|kind, counted| {
            if counted.interval_ends_at > now {
                return true;
            }
            counted.interval_ends_at = now.plus(RECORD_INTERVAL_MS);
            let record = counted.take_record(kind);
            let goes_on = record.is_some();
            records.extend(record);
            goes_on
        });
        records
    }

    /// Records of everything that was counted.
    pub fn take_all_records(&mut self) -> Vec<Event> {
        let counted = mem::take(&mut self.counts);
        counted.into_iter().filter_map(|(kind, mut counted)| counted.take_record(&kind)).collect()
    }
}

impl RefusalCount {
    fn take_record(&mut self, kind: &RefusalKey) -> Option<Event> {
        let times = mem::take(&mut self.unrecorded);
        (times > 0).then(|| Event::Acted {
            by: kind.by.clone(),
            by_kind: kind.by_kind.clone(),
            act: kind.act.clone(),
            object: mem::take(&mut self.last_object),
            refused: Some(kind.code.clone()),
            times,
            at: self.last_at,
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
    fn repeated_refusals_become_one_audit_record_a_minute_with_their_exact_count() {
        let mut acts = RefusalAggregator::default();
        let mut written = Vec::new();
        for second in 0..180 {
            for _ in 0..100 {
                written.extend(acts.record_or_count(refused("ada", "red", second * 1_000)));
            }
            written.extend(acts.take_due_records(Timestamp(second * 1_000)));
        }
        assert!(written.len() <= SINGLE_RECORDS_MAX as usize + 3, "{written:?}");
        written.extend(acts.take_all_records());
        assert_eq!(times(&written), 18_000);
    }

    #[test]
    fn refusals_are_aggregated_per_caller_and_successful_acts_are_not() {
        let mut acts = RefusalAggregator::default();
        assert!((0..SINGLE_RECORDS_MAX).all(|_| acts.record_or_count(refused("ada", "red", 0)).is_some()));
        assert!(acts.record_or_count(refused("ben", "red", 0)).is_some());
        assert!(acts.record_or_count(refused("ada", "blue", 5)).is_none());
        let done = Event::Acted {
            by: "ada".into(),
            by_kind: None,
            act: "tenant.delete".into(),
            object: "red".into(),
            refused: None,
            times: 1,
            at: Timestamp(6),
        };
        assert!((0..3).all(|_| acts.record_or_count(done.clone()).is_some()));
        assert_eq!(acts.take_due_records(Timestamp(RECORD_INTERVAL_MS)), vec![refused("ada", "blue", 5)]);
        assert!(acts.record_or_count(refused("ben", "red", RECORD_INTERVAL_MS)).is_some(), "a quiet minute has passed");
    }
}

//! Aggregation of refusals in the audit log: a caller that is refused a thousand times a second causes one audit record
//! a minute for each act and refusal code, with the number of times.
//!
//! The first refusals are recorded one by one and at once, so that an operator sees their objects. Further refusals
//! within the interval are counted and recorded at its end, or when the leader hands over.

use std::collections::BTreeMap;
use std::mem;

use muster_core::{Event, Timestamp};

/// Interval for which refusals of one caller, act and code are aggregated.
const RECORD_INTERVAL_MS: i64 = 60_000;
/// Refusals of one caller, act and code that are recorded one by one before the others are aggregated.
const SINGLE_RECORDS_MAX: u32 = 10;

/// Refusals that are counted and not yet recorded. The number of entries per caller is bounded: acts are routes or
/// commands, and codes are the server's own.
#[derive(Default)]
pub struct RefusalAggregator {
    counts: BTreeMap<RefusalKey, RefusalCount>,
}

/// Refusals with the same key are aggregated.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct RefusalKey {
    by: String,
    by_kind: Option<String>,
    act: String,
    code: String,
}

/// The refusals of one key in the current interval.
struct RefusalCount {
    interval_ends_at: Timestamp,
    recorded_singly: u32,
    unrecorded: u32,
    /// Object of the last unrecorded refusal.
    last_object: String,
    last_at: Timestamp,
}

impl RefusalAggregator {
    /// The event, if it is to be recorded now. A refusal beyond the first few of an interval is counted instead.
    pub fn record_or_count(&mut self, event: Event) -> Option<Event> {
        let Event::Acted { by, by_kind, act, object, refused: Some(code), at, .. } = &event else {
            return Some(event);
        };
        let key = RefusalKey { by: by.clone(), by_kind: by_kind.clone(), act: act.clone(), code: code.clone() };
        match self.counts.get_mut(&key) {
            Some(count) if count.recorded_singly < SINGLE_RECORDS_MAX => {
                count.recorded_singly += 1;
                Some(event)
            }
            Some(count) => {
                count.unrecorded = count.unrecorded.saturating_add(1);
                (count.last_object, count.last_at) = (object.clone(), *at);
                None
            }
            None => {
                let first = RefusalCount {
                    interval_ends_at: at.plus(RECORD_INTERVAL_MS),
                    recorded_singly: 1,
                    unrecorded: 0,
                    last_object: String::new(),
                    last_at: *at,
                };
                self.counts.insert(key, first);
                Some(event)
            }
        }
    }

    /// Records of the intervals that have ended. A key without refusals in its interval is forgotten.
    pub fn take_due_records(&mut self, now: Timestamp) -> Vec<Event> {
        let mut records = Vec::new();
        self.counts.retain(|key, count| {
            if count.interval_ends_at > now {
                return true;
            }
            count.interval_ends_at = now.plus(RECORD_INTERVAL_MS);
            let record = count.take_record(key);
            let had_refusals = record.is_some();
            records.extend(record);
            had_refusals
        });
        records
    }

    /// Records of all counted refusals.
    pub fn take_all_records(&mut self) -> Vec<Event> {
        let counts = mem::take(&mut self.counts);
        counts.into_iter().filter_map(|(key, mut count)| count.take_record(&key)).collect()
    }
}

impl RefusalCount {
    fn take_record(&mut self, key: &RefusalKey) -> Option<Event> {
        let times = mem::take(&mut self.unrecorded);
        (times > 0).then(|| Event::Acted {
            by: key.by.clone(),
            by_kind: key.by_kind.clone(),
            act: key.act.clone(),
            object: mem::take(&mut self.last_object),
            refused: Some(key.code.clone()),
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
        let mut aggregator = RefusalAggregator::default();
        let mut written = Vec::new();
        for second in 0..180 {
            for _ in 0..100 {
                written.extend(aggregator.record_or_count(refused("ada", "red", second * 1_000)));
            }
            written.extend(aggregator.take_due_records(Timestamp(second * 1_000)));
        }
        assert!(written.len() <= SINGLE_RECORDS_MAX as usize + 3, "{written:?}");
        written.extend(aggregator.take_all_records());
        assert_eq!(times(&written), 18_000);
    }

    #[test]
    fn refusals_are_aggregated_per_caller_and_successful_acts_are_not() {
        let mut aggregator = RefusalAggregator::default();
        assert!((0..SINGLE_RECORDS_MAX).all(|_| aggregator.record_or_count(refused("ada", "red", 0)).is_some()));
        assert!(aggregator.record_or_count(refused("ben", "red", 0)).is_some());
        assert!(aggregator.record_or_count(refused("ada", "blue", 5)).is_none());
        let done = Event::Acted {
            by: "ada".into(),
            by_kind: None,
            act: "tenant.delete".into(),
            object: "red".into(),
            refused: None,
            times: 1,
            at: Timestamp(6),
        };
        assert!((0..3).all(|_| aggregator.record_or_count(done.clone()).is_some()));
        assert_eq!(aggregator.take_due_records(Timestamp(RECORD_INTERVAL_MS)), vec![refused("ada", "blue", 5)]);
        assert!(
            aggregator.record_or_count(refused("ben", "red", RECORD_INTERVAL_MS)).is_some(),
            "a quiet minute has passed"
        );
    }
}

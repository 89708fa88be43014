//! The indexes of an array as people write them: `0-99`, `0-99%8`, `1,4,7-9`, `0-20:5`.

use std::collections::BTreeSet;

use muster_core::command::ArrayAsk;

use crate::http::fault::Fault;

/// One more than the core allows: enough for it to refuse, too few to fill the memory.
const INDEXES_MAX: usize = 100_001;

/// Read the indexes and how many may run at once.
pub fn parse(text: &str) -> Result<ArrayAsk, Fault> {
    let bad = || {
        Fault::invalid(
            "array",
            format!("`{text}` is not understood; write for example `0-99%8` or `1,4,7-9`"),
        )
    };
    let (ranges, running_max) = match text.split_once('%') {
        Some((ranges, most)) => (ranges, Some(number(most).ok_or_else(bad)?)),
        None => (text, None),
    };
    let mut indexes = BTreeSet::new();
    for range in ranges.split(',') {
        let (first, last, step) = bounds(range.trim()).ok_or_else(bad)?;
        let room = INDEXES_MAX - indexes.len();
        indexes.extend((first..=last).step_by(step).take(room));
    }
    Ok(ArrayAsk { indexes: indexes.into_iter().collect(), running_max })
}

fn bounds(range: &str) -> Option<(u32, u32, usize)> {
    let (range, step) = match range.split_once(':') {
        Some((range, step)) => (range, number(step)?),
        None => (range, 1),
    };
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let (first, last) = (number(first)?, number(last)?);
    (first <= last && step > 0).then_some((first, last, step as usize))
}

/// Digits only: `parse` alone would also take `+7`.
fn number(text: &str) -> Option<u32> {
    let text = text.trim();
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_steps_and_limits_are_read() {
        let cases: [(&str, &[u32], Option<u32>); 6] = [
            ("3", &[3], None),
            ("0-3", &[0, 1, 2, 3], None),
            ("0-3%2", &[0, 1, 2, 3], Some(2)),
            ("1,4,7-9", &[1, 4, 7, 8, 9], None),
            ("0-20:5", &[0, 5, 10, 15, 20], None),
            ("2,1,2", &[1, 2], None),
        ];
        for (text, indexes, running_max) in cases {
            let ask = parse(text).unwrap();
            assert_eq!((ask.indexes.as_slice(), ask.running_max), (indexes, running_max), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused_and_giants_stay_small() {
        for text in ["", "a", "3-1", "0-3%", "0-3:0", "-1", "1-", "+1", "1,,2", "99999999999"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!(parse("0-4294967295").unwrap().indexes.len(), INDEXES_MAX);
    }
}

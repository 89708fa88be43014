//! The indexes of a job array as users write them: `0-99`, `0-99%8`, `1,4,7-9`, `0-20:5`.

use std::collections::BTreeSet;

use muster_core::facts::command::ArraySpec;

use crate::http::api_error::ApiError;

/// One more than the core allows: enough that the core refuses the array, too few to exhaust memory.
const INDEXES_MAX: usize = 100_001;

/// The indexes, and how many of the jobs may run at once (`%8`).
pub fn parse_array(text: &str) -> Result<ArraySpec, ApiError> {
    let bad = || {
        ApiError::invalid("array", format!("`{text}` is not an array range; write for example `0-99%8` or `1,4,7-9`"))
    };
    let (ranges, running_max) = match text.split_once('%') {
        Some((ranges, most)) => (ranges, Some(parse_digits(most).ok_or_else(bad)?)),
        None => (text, None),
    };
    let mut indexes = BTreeSet::new();
    for range in ranges.split(',') {
        let (first, last, step) = parse_range(range.trim()).ok_or_else(bad)?;
        let room = INDEXES_MAX - indexes.len();
        indexes.extend((first..=last).step_by(step).take(room));
    }
    Ok(ArraySpec { indexes: indexes.into_iter().collect(), running_max })
}

fn parse_range(range: &str) -> Option<(u32, u32, usize)> {
    let (range, step) = match range.split_once(':') {
        Some((range, step)) => (range, parse_digits(step)?),
        None => (range, 1),
    };
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let (first, last) = (parse_digits(first)?, parse_digits(last)?);
    (first <= last && step > 0).then_some((first, last, step as usize))
}

/// Digits only: `parse` alone would also take `+7`.
fn parse_digits(text: &str) -> Option<u32> {
    let text = text.trim();
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_steps_and_running_limits_are_parsed() {
        let cases: [(&str, &[u32], Option<u32>); 6] = [
            ("3", &[3], None),
            ("0-3", &[0, 1, 2, 3], None),
            ("0-3%2", &[0, 1, 2, 3], Some(2)),
            ("1,4,7-9", &[1, 4, 7, 8, 9], None),
            ("0-20:5", &[0, 5, 10, 15, 20], None),
            ("2,1,2", &[1, 2], None),
        ];
        for (text, indexes, running_max) in cases {
            let array = parse_array(text).unwrap();
            assert_eq!((array.indexes.as_slice(), array.running_max), (indexes, running_max), "{text}");
        }
    }

    #[test]
    fn malformed_ranges_are_refused_and_huge_ranges_are_truncated() {
        for text in ["", "a", "3-1", "0-3%", "0-3:0", "-1", "1-", "+1", "1,,2", "99999999999"] {
            assert!(parse_array(text).is_err(), "{text}");
        }
        assert_eq!(parse_array("0-4294967295").unwrap().indexes.len(), INDEXES_MAX);
    }
}

//! Parses the timestamps of job logs.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// Milliseconds of a timestamp: seconds since an arbitrary start, or a date with or without a zone. A date without
/// a zone is UTC; only the time between two timestamps matters.
pub fn parse_timestamp_ms(text: &str) -> Option<i64> {
    if let Ok(seconds) = text.parse::<f64>() {
        return (0.0..=1e11).contains(&seconds).then(|| (seconds * 1_000.0).round() as i64);
    }
    if let Ok(timestamp) = text.parse::<Timestamp>() {
        return Some(timestamp.as_millisecond());
    }
    let civil: DateTime = text.parse().ok()?;
    Some(civil.to_zoned(TimeZone::UTC).ok()?.timestamp().as_millisecond())
}

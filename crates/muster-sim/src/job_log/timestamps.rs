//! Parses the timestamps and durations of job logs.

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

/// Parses a Slurm duration: `[days-]hours:minutes:seconds`, `minutes:seconds[.fraction]`, `days-hours` or minutes.
pub fn parse_slurm_duration_ms(text: &str) -> Option<i64> {
    let (days, clock) = match text.split_once('-') {
        Some((days, clock)) => (Some(days), clock),
        None => (None, text),
    };
    let whole = clock.split('.').next()?;
    let fields = whole.split(':').map(|field| field.parse().ok()).collect::<Option<Vec<u32>>>()?;
    // With days the first field is hours; without, the last is seconds.
    let (hours, minutes, seconds) = match (days, &fields[..]) {
        (_, [hours, minutes, seconds]) => (*hours, *minutes, *seconds),
        (None, [minutes, seconds]) => (0, *minutes, *seconds),
        (Some(_), [hours, minutes]) => (*hours, *minutes, 0),
        (None, [minutes]) => (0, *minutes, 0),
        (Some(_), [hours]) => (*hours, 0, 0),
        _ => return None,
    };
    let days: i64 = days.map_or(Some(0), |days| days.parse::<u32>().ok()).map(i64::from)?;
    let minutes = (days * 24 + i64::from(hours)) * 60 + i64::from(minutes);
    Some((minutes * 60 + i64::from(seconds)) * 1_000)
}

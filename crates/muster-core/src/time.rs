//! Timestamps and durations, in milliseconds. The engine's clock creates timestamps; the core only compares them.
//!
//! This is also the one parser and printer of durations with units (`1h30m`), for the agent, the server and the command
//! line. What a caller accepts beyond these units (Slurm's `2:30:00`, ISO 8601) is its own rule.

use serde::{Deserialize, Serialize};

/// Milliseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// Milliseconds from `earlier` to `self`; never negative.
    pub fn since(self, earlier: Timestamp) -> i64 {
        self.0.saturating_sub(earlier.0).max(0)
    }

    /// The timestamp as RFC 3339 in UTC, to the second, for messages. Days are converted by the proleptic Gregorian
    /// calendar, with March as the first month, so that the leap day is the last day of a year.
    pub fn utc(self) -> String {
        let (days, ms) = (self.0.div_euclid(DAY), self.0.rem_euclid(DAY));
        // From 1970-01-01 to 0000-03-01; an era is 400 years.
        let shifted = days + 719_468;
        let (era, day) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
        let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
        let day_of_year = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day_of_year + 2) / 153;
        let day_of_month = day_of_year - (153 * month + 2) / 5 + 1;
        let month = if month < 10 { month + 3 } else { month - 9 };
        let year = era * 400 + year + i64::from(month <= 2);
        let (hour, minute, second) = (ms / HOUR, ms / MINUTE % 60, ms / SECOND % 60);
        format!("{year:04}-{month:02}-{day_of_month:02}T{hour:02}:{minute:02}:{second:02}Z")
    }

    /// The timestamp `ms` later.
    pub fn plus(self, ms: i64) -> Timestamp {
        Timestamp(self.0.saturating_add(ms))
    }
}

/// One second in milliseconds.
pub const SECOND: i64 = 1_000;
pub const MINUTE: i64 = 60 * SECOND;
pub const HOUR: i64 = 60 * MINUTE;
pub const DAY: i64 = 24 * HOUR;

/// The units of a duration, largest first: the order in which they are printed.
const UNITS: [(&str, i64); 5] = [("d", DAY), ("h", HOUR), ("m", MINUTE), ("s", SECOND), ("ms", 1)];

/// The duration from which [`format_duration_rounded_ms`] omits milliseconds.
const ROUNDED_FROM_MS: i64 = 10 * SECOND;

/// The error of [`parse_duration_ms`], with the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a duration; write for example `500ms`, `20s`, `2m` or `1h30m`")]
pub struct NotADuration(pub String);

/// Parses a duration such as `500ms`, `20s`, `2m` or `1h30m`. Every number needs a unit; signs, fractions and inner spaces
/// are refused.
pub fn parse_duration_ms(text: &str) -> Result<i64, NotADuration> {
    let unit_ms = |unit: &str| UNITS.into_iter().find(|(name, _)| *name == unit).map(|(_, unit_ms)| unit_ms);
    parse_duration_with(text.trim(), unit_ms).ok_or_else(|| NotADuration(text.to_string()))
}

/// Parses a sequence of numbers with units, where `unit_ms` gives the length of a unit. `None` if the text is empty, a unit
/// is unknown or the sum overflows.
pub fn parse_duration_with(text: &str, unit_ms: impl Fn(&str) -> Option<i64>) -> Option<i64> {
    let mut rest = text;
    let mut total_ms: i64 = 0;
    while !rest.is_empty() {
        let (digits, after_digits) = rest.split_at(rest.find(|letter: char| !letter.is_ascii_digit())?);
        let unit_end = after_digits.find(|letter: char| letter.is_ascii_digit()).unwrap_or(after_digits.len());
        let (unit, after) = after_digits.split_at(unit_end);
        let part_ms = digits.parse::<i64>().ok()?.checked_mul(unit_ms(unit)?)?;
        total_ms = total_ms.checked_add(part_ms)?;
        rest = after;
    }
    (!text.is_empty()).then_some(total_ms)
}

/// The exact duration, with every unit that is not zero: `1h2m3s`. Negative durations print as `0s`.
pub fn format_duration_ms(duration_ms: i64) -> String {
    let mut rest_ms = duration_ms.max(0);
    let mut text = String::new();
    for (unit, unit_ms) in UNITS {
        let count = rest_ms / unit_ms;
        rest_ms %= unit_ms;
        if count > 0 {
            text.push_str(&format!("{count}{unit}"));
        }
    }
    if text.is_empty() { "0s".to_string() } else { text }
}

/// The duration for people: exact below ten seconds, in whole seconds from there on.
pub fn format_duration_rounded_ms(duration_ms: i64) -> String {
    match duration_ms {
        ROUNDED_FROM_MS.. => format_duration_ms(duration_ms / SECOND * SECOND),
        _ => format_duration_ms(duration_ms),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_by_the_calendar() {
        // From `date -u --date=@SECONDS +%FT%TZ`.
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (1_794_827_556, "2026-11-16T11:12:36Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
        ] {
            assert_eq!(Timestamp(seconds * SECOND + 909).utc(), text);
        }
    }

    #[test]
    fn durations_parse_and_print_back() {
        for (text, expected_ms) in
            [("500ms", 500), ("20s", 20_000), ("2m", 120_000), ("1h30m", 5_400_000), ("1d", 86_400_000), ("0s", 0)]
        {
            assert_eq!(parse_duration_ms(text), Ok(expected_ms), "{text}");
            assert_eq!(format_duration_ms(expected_ms), text);
        }
    }

    #[test]
    fn invalid_durations_are_refused() {
        for text in [
            "",
            "20",
            "s",
            "-5s",
            "+5s",
            "5 s",
            "1.5s",
            "5x",
            "5S",
            "1h 30m",
            "99999999999999999999s",
            "9223372036854775807d",
        ] {
            assert_eq!(parse_duration_ms(text), Err(NotADuration(text.to_string())), "{text}");
        }
    }

    #[test]
    fn durations_from_ten_seconds_on_are_rounded_down_to_seconds() {
        for (ms, text) in [(0, "0s"), (1_128, "1s128ms"), (14_999, "14s"), (3_723_004, "1h2m3s")] {
            assert_eq!(format_duration_rounded_ms(ms), text);
        }
    }
}

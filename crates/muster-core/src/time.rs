//! Timestamps and durations, in milliseconds. The engine's clock creates timestamps; the core only compares them.
//!
//! This is also the one parser and printer of durations, for the agent, the server, the simulator and the command line:
//! with units (`1h30m`) and in Slurm's notation (`2:30:00`). Which of the two a caller accepts is its own rule.

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

/// A unit of a duration.
struct DurationUnit {
    ms: i64,
    /// In files, requests and output; `None` if durations are never printed in this unit.
    symbol: Option<&'static str>,
    /// Further names that the command line accepts.
    names: &'static [&'static str],
}

/// The units of a duration, largest first: the order in which they are printed.
const UNITS: [DurationUnit; 6] = [
    DurationUnit { ms: 7 * DAY, symbol: None, names: &["w", "week", "weeks"] },
    DurationUnit { ms: DAY, symbol: Some("d"), names: &["day", "days"] },
    DurationUnit { ms: HOUR, symbol: Some("h"), names: &["hour", "hours"] },
    DurationUnit { ms: MINUTE, symbol: Some("m"), names: &["min", "minute", "minutes"] },
    DurationUnit { ms: SECOND, symbol: Some("s"), names: &["sec", "second", "seconds"] },
    DurationUnit { ms: 1, symbol: Some("ms"), names: &[] },
];

/// The duration from which [`format_duration_rounded_ms`] omits milliseconds.
const ROUNDED_FROM_MS: i64 = 10 * SECOND;

/// The error of [`parse_duration_ms`], with the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a duration; write for example `500ms`, `20s`, `2m` or `1h30m`")]
pub struct NotADuration(pub String);

/// Parses a duration such as `500ms`, `20s`, `2m` or `1h30m`. Every number needs a unit; signs, fractions and inner spaces
/// are refused.
pub fn parse_duration_ms(text: &str) -> Result<i64, NotADuration> {
    let duration_ms = parse_units_ms(text.trim(), |unit, name| unit.symbol == Some(name));
    duration_ms.ok_or_else(|| NotADuration(text.to_string()))
}

/// Parses a duration as [`parse_duration_ms`] does, and also with weeks and the long names of units: `2hours`, `1w`.
pub fn parse_duration_with_long_names_ms(text: &str) -> Option<i64> {
    parse_units_ms(text, |unit, name| unit.symbol == Some(name) || unit.names.contains(&name))
}

/// Parses a sequence of numbers with units, where `is_named` tells whether a unit has a name. `None` if the text is
/// empty, a unit is unknown or the sum overflows.
fn parse_units_ms(text: &str, is_named: impl Fn(&DurationUnit, &str) -> bool) -> Option<i64> {
    let mut rest = text;
    let mut total_ms: i64 = 0;
    while !rest.is_empty() {
        let (digits, after_digits) = rest.split_at(rest.find(|letter: char| !letter.is_ascii_digit())?);
        let unit_end = after_digits.find(|letter: char| letter.is_ascii_digit()).unwrap_or(after_digits.len());
        let (name, after) = after_digits.split_at(unit_end);
        let unit_ms = UNITS.iter().find(|unit| is_named(unit, name))?.ms;
        let part_ms = digits.parse::<i64>().ok()?.checked_mul(unit_ms)?;
        total_ms = total_ms.checked_add(part_ms)?;
        rest = after;
    }
    (!text.is_empty()).then_some(total_ms)
}

/// Where a duration in Slurm's notation comes from, which decides how strictly it is parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlurmSource {
    /// A user wrote it: every field but the first is bounded (24 hours, 60 minutes, 60 seconds), because a larger
    /// number is more likely a mistake. A number alone is refused.
    UserInput,
    /// Slurm recorded it: fields are not bounded, a number alone is minutes, and fractions of a second are dropped.
    AccountingLog,
}

impl SlurmSource {
    fn parse_field(self, text: &str) -> Option<i64> {
        match self {
            SlurmSource::UserInput => parse_digits(text),
            // Slurm keeps times in 32 bits; a larger number is not one of its fields.
            SlurmSource::AccountingLog => text.parse::<u32>().ok().map(i64::from),
        }
    }
}

/// Parses Slurm's `minutes:seconds`, `hours:minutes:seconds` and `days-hours[:minutes[:seconds]]`; from an accounting
/// log also `minutes`.
pub fn parse_slurm_duration_ms(text: &str, source: SlurmSource) -> Option<i64> {
    let (days, clock) = match text.split_once('-') {
        Some((days, clock)) => (Some(source.parse_field(days)?), clock),
        None => (None, text),
    };
    let clock = match source {
        SlurmSource::UserInput => clock,
        SlurmSource::AccountingLog => clock.split('.').next()?,
    };
    let fields = clock.split(':').map(|field| source.parse_field(field)).collect::<Option<Vec<i64>>>()?;
    // With days the first field is hours; without, the last is seconds.
    let units: &[i64] = match (days, fields.len()) {
        (_, 3) => &[HOUR, MINUTE, SECOND],
        (None, 2) => &[MINUTE, SECOND],
        (Some(_), 2) => &[HOUR, MINUTE],
        (Some(_), 1) => &[HOUR],
        (None, 1) if source == SlurmSource::AccountingLog => &[MINUTE],
        _ => return None,
    };
    let parts = || days.map(|days| (days, DAY)).into_iter().chain(fields.iter().copied().zip(units.iter().copied()));
    let bound = |unit: i64| if unit == HOUR { 24 } else { 60 };
    if source == SlurmSource::UserInput && parts().skip(1).any(|(count, unit)| count >= bound(unit)) {
        return None;
    }
    parts().try_fold(0_i64, |sum_ms, (count, unit)| sum_ms.checked_add(count.checked_mul(unit)?))
}

/// Parses a number of ASCII digits alone. `None` for signs, spaces and numbers out of range.
pub fn parse_digits(text: &str) -> Option<i64> {
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_plain.then(|| text.parse().ok()).flatten()
}

/// The exact duration, with every unit that is not zero: `1h2m3s`. Negative durations print as `0s`.
pub fn format_duration_ms(duration_ms: i64) -> String {
    let mut rest_ms = duration_ms.max(0);
    let mut text = String::new();
    for unit in &UNITS {
        let Some(symbol) = unit.symbol else { continue };
        let count = rest_ms / unit.ms;
        rest_ms %= unit.ms;
        if count > 0 {
            text.push_str(&format!("{count}{symbol}"));
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
    fn timestamps_print_as_rfc_3339_in_utc() {
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
            "2hours",
            "1w",
            "99999999999999999999s",
            "9223372036854775807d",
        ] {
            assert_eq!(parse_duration_ms(text), Err(NotADuration(text.to_string())), "{text}");
        }
    }

    #[test]
    fn long_names_and_weeks_parse_and_print_as_symbols() {
        for (text, expected_ms, printed) in [
            ("250ms", 250, "250ms"),
            ("2sec3second4seconds", 9 * SECOND, "9s"),
            ("1min1minute5minutes", 7 * MINUTE, "7m"),
            ("1h1hour2hours", 4 * HOUR, "4h"),
            ("1d1day2days", 4 * DAY, "4d"),
            ("1w1week2weeks", 28 * DAY, "28d"),
        ] {
            assert_eq!(parse_duration_with_long_names_ms(text), Some(expected_ms), "{text}");
            assert_eq!(format_duration_ms(expected_ms), printed);
        }
        for text in ["", "h", "2x", "20", " 2h", "99999999999999999999d"] {
            assert_eq!(parse_duration_with_long_names_ms(text), None, "{text}");
        }
    }

    #[test]
    fn slurm_durations_are_parsed_strictly_from_users_and_leniently_from_logs() {
        let both = |ms: i64| (Some(ms), Some(ms));
        let only_log = |ms: i64| (None, Some(ms));
        for (text, (typed_ms, logged_ms)) in [
            ("00:30:01", both(1_801_000)),
            ("2:30:00", both(150 * MINUTE)),
            ("2-00:00:00", both(172_800_000)),
            ("1-12:00:00", both(36 * HOUR)),
            ("1-12:30", both(36 * HOUR + 30 * MINUTE)),
            ("1-12", both(36 * HOUR)),
            ("30:15", both(1_815_000)),
            ("90:00", both(90 * MINUTE)),
            ("100:00:00", both(100 * HOUR)),
            ("90", only_log(90 * MINUTE)),
            ("1:75", only_log(135 * SECOND)),
            ("1:60:00", only_log(2 * HOUR)),
            ("1-24", only_log(2 * DAY)),
            ("00:00:01.250", only_log(SECOND)),
            ("99999999999:00", (Some(99_999_999_999 * MINUTE), None)),
            ("", (None, None)),
            ("1:2:3:4", (None, None)),
            ("1-2:3:4:5", (None, None)),
            ("-1:00", (None, None)),
            ("1h-", (None, None)),
            ("1.5-3", (None, None)),
            ("soon", (None, None)),
            ("9223372036854775807:00:00", (None, None)),
        ] {
            assert_eq!(parse_slurm_duration_ms(text, SlurmSource::UserInput), typed_ms, "{text}");
            assert_eq!(parse_slurm_duration_ms(text, SlurmSource::AccountingLog), logged_ms, "{text}");
        }
    }

    #[test]
    fn durations_from_ten_seconds_on_are_rounded_down_to_seconds() {
        for (ms, text) in [(0, "0s"), (1_128, "1s128ms"), (14_999, "14s"), (3_723_004, "1h2m3s")] {
            assert_eq!(format_duration_rounded_ms(ms), text);
        }
    }
}

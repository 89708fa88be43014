//! Moments on the command line: a clock time, a date, or a span from now.
//!
//! Clock times and dates are in the user's time zone. Nothing is guessed: a bare number is refused, and a command that
//! is given a clock time or a date prints the moment it was parsed as.

use jiff::civil::{Date, Time};
use jiff::{Timestamp, ToSpan, Zoned};
use muster_protocol::input::Moment;

use crate::output;
use crate::units;

/// Parses a moment relative to now, in the user's time zone.
pub fn parse_moment(text: &str) -> Result<ParsedMoment, String> {
    parse_moment_at(text, &Zoned::now())
}

/// A moment, and how it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParsedMoment {
    /// Unix milliseconds.
    pub ms: i64,
    /// Written as a clock time or a date, so that it depends on the time zone.
    is_local: bool,
    /// In the past when it was parsed.
    pub is_past: bool,
}

impl ParsedMoment {
    /// The value for the API. A clock time or a date is also printed as the moment it was parsed as.
    pub fn announced_moment(&self, what: &str) -> Moment {
        if self.is_local {
            output::print_stderr(&format!("{what} {}", units::local_time_text(self.ms)));
        }
        self.to_api_moment()
    }

    /// The value for the API.
    pub fn to_api_moment(&self) -> Moment {
        Moment::UnixMs(u64::try_from(self.ms).unwrap_or(0))
    }
}

/// Parses a moment relative to `now`, in the time zone of `now`.
fn parse_moment_at(text: &str, now: &Zoned) -> Result<ParsedMoment, String> {
    let text = text.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("`{text}` has no unit; write a span such as `{text}m`, or a clock time such as `18:00`"));
    }
    if let Some(span) = past_offset(text) {
        return Err(format!(
            "`{text}` is in the past; write a span from now such as `{span}`, or a clock time such as `18:00`"
        ));
    }
    let given =
        |ms: i64, local: bool| ParsedMoment { ms, is_local: local, is_past: ms < now.timestamp().as_millisecond() };
    if let Some(ms) = parse_offset_from_now(text, now) {
        return ms.map(|ms| given(ms, false));
    }
    if let Ok(moment) = text.parse::<Timestamp>() {
        return Ok(given(moment.as_millisecond(), false));
    }
    let moment = parse_civil_time(&text.to_ascii_lowercase(), now)?;
    Ok(given(moment.timestamp().as_millisecond(), true))
}

/// Parses a moment that is over, as Unix milliseconds: a span before now, or a time. A clock time is that of the last day on
/// which the clock showed it.
pub fn parse_past_moment(text: &str) -> Result<i64, String> {
    parse_past_moment_at(text, &Zoned::now())
}

fn parse_past_moment_at(text: &str, now: &Zoned) -> Result<i64, String> {
    let text = text.trim();
    let now_ms = now.timestamp().as_millisecond();
    if let Ok(span_ms) = units::parse_duration_ms(past_offset(text).unwrap_or(text)) {
        return Ok(now_ms.saturating_sub(span_ms));
    }
    if let Ok(time) = parse_clock_time(&text.to_ascii_lowercase()) {
        let on = |day: Date| day.to_datetime(time).to_zoned(now.time_zone().clone());
        let today = on(now.date()).ok().filter(|moment| moment <= now);
        let last = today.map_or_else(|| on(now.date().saturating_sub(1.day())), Ok);
        return last.map(|moment| moment.timestamp().as_millisecond()).map_err(|_| format!("`{text}` is out of range"));
    }
    match parse_moment_at(text, now) {
        Ok(moment) if moment.ms > now_ms => Err(format!("`{text}` is in the future")),
        Ok(moment) => Ok(moment.ms),
        Err(why) => Err(why.replace("a span from now such as `2h`", "a span before now such as `2h`")),
    }
}

/// The span of `-1h` and `now-1h`.
fn past_offset(text: &str) -> Option<&str> {
    let span = text.strip_prefix("now").unwrap_or(text).trim_start().strip_prefix('-')?.trim_start();
    units::parse_duration_ms(span).is_ok().then_some(span)
}

/// `now`, `now+2h`, or `2h` alone; `None` if the text is not a span.
fn parse_offset_from_now(text: &str, now: &Zoned) -> Option<Result<i64, String>> {
    let now_ms = now.timestamp().as_millisecond();
    let span = match text.strip_prefix("now") {
        Some("") => return Some(Ok(now_ms)),
        Some(rest) => rest.trim_start().strip_prefix('+')?.trim_start(),
        None if text.contains([':', '-']) => return None,
        None => text,
    };
    match (units::parse_duration_ms(span), text.starts_with("now")) {
        (Err(_), false) => None,
        (span, _) => Some(span.map(|span| now_ms.saturating_add(span))),
    }
}

/// A day, a clock time, or both: `tomorrow`, `18:00`, `2026-11-18T18:00`, `tomorrow 6pm`.
fn parse_civil_time(text: &str, now: &Zoned) -> Result<Zoned, String> {
    let (day, clock) = match parse_day(text, now) {
        Some(day) => (Some(day), None),
        None => match text.match_indices([' ', 't']).find_map(|(at, _)| Some((parse_day(&text[..at], now)?, at))) {
            Some((day, at)) => (Some(day), Some(text[at + 1..].trim())),
            None => (None, Some(text)),
        },
    };
    let time = clock.map_or(Ok(Time::midnight()), parse_clock_time)?;
    let at = |day: Date| {
        let zoned = day.to_datetime(time).to_zoned(now.time_zone().clone());
        zoned.map_err(|_| format!("`{text}` is out of range"))
    };
    match day {
        Some(day) => at(day),
        // The next time at which the clock shows this time.
        None => match at(now.date())? {
            today if today > *now => Ok(today),
            _ => at(now.date().saturating_add(1.day())),
        },
    }
}

fn parse_day(text: &str, now: &Zoned) -> Option<Date> {
    match text {
        "today" => Some(now.date()),
        "tomorrow" => Some(now.date().saturating_add(1.day())),
        _ => text.parse().ok().filter(|_| text.len() == "2026-11-18".len()),
    }
}

/// `18:00`, `18:00:30`, `6pm`, `6:30 pm`, `noon`, `midnight`.
fn parse_clock_time(text: &str) -> Result<Time, String> {
    let bad = || {
        format!(
            "`{text}` is not a moment; write a clock time such as `18:00`, a date such as `2026-11-18T18:00` or \
             `tomorrow 9:00`, or a span from now such as `2h`"
        )
    };
    match text {
        "noon" => return Ok(Time::constant(12, 0, 0, 0)),
        "midnight" => return Ok(Time::midnight()),
        _ => {}
    }
    let half = ["am", "pm"].into_iter().find(|half| text.ends_with(half));
    let digits = half.map_or(text, |half| text.trim_end_matches(half).trim_end());
    let fields = digits.split(':').map(parse_two_digits).collect::<Option<Vec<i8>>>().ok_or_else(bad)?;
    let (hour, minute, second) = match (&fields[..], half) {
        ([hour], Some(_)) => (*hour, 0, 0),
        ([hour, minute], _) => (*hour, *minute, 0),
        ([hour, minute, second], _) => (*hour, *minute, *second),
        _ => return Err(bad()),
    };
    let hour = match half {
        None => Some(hour),
        Some(_) if !(1..=12).contains(&hour) => None,
        Some("pm") => Some(hour % 12 + 12),
        Some(_) => Some(hour % 12),
    };
    let time = hour.and_then(|hour| Time::new(hour, minute, second, 0).ok());
    time.ok_or_else(|| format!("`{text}` is not a clock time: the day goes from `00:00` to `23:59`"))
}

fn parse_two_digits(text: &str) -> Option<i8> {
    let plain = (1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZone;

    use super::*;

    /// A Tuesday, 14:30 in a time zone one hour ahead of UTC, two in summer.
    fn now() -> Zoned {
        let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        "2026-11-17T13:30:00Z".parse::<Timestamp>().unwrap().to_zoned(zone)
    }

    fn utc(text: &str) -> Result<String, String> {
        parse_moment_at(text, &now()).map(|given| Timestamp::from_millisecond(given.ms).unwrap().to_string())
    }

    #[test]
    fn clock_times_are_in_the_local_time_zone() {
        for (text, moment) in [
            ("18:00", "2026-11-17T17:00:00Z"),
            ("18:00:30", "2026-11-17T17:00:30Z"),
            ("14:30", "2026-11-18T13:30:00Z"),
            ("9:05", "2026-11-18T08:05:00Z"),
            ("6pm", "2026-11-17T17:00:00Z"),
            ("6:30 PM", "2026-11-17T17:30:00Z"),
            ("12am", "2026-11-17T23:00:00Z"),
            ("noon", "2026-11-18T11:00:00Z"),
            ("midnight", "2026-11-17T23:00:00Z"),
            ("tomorrow", "2026-11-17T23:00:00Z"),
            ("tomorrow 9:00", "2026-11-18T08:00:00Z"),
            ("2026-11-18", "2026-11-17T23:00:00Z"),
            ("2026-11-18T18:00", "2026-11-18T17:00:00Z"),
            ("2026-07-01 18:00", "2026-07-01T16:00:00Z"),
            ("2026-11-18T18:00:00Z", "2026-11-18T18:00:00Z"),
            ("2026-11-18T18:00:00-05:00", "2026-11-18T23:00:00Z"),
        ] {
            assert_eq!(utc(text).as_deref(), Ok(moment), "{text}");
        }
    }

    #[test]
    fn past_moments_are_spans_before_now_or_times() {
        let past = |text: &str| {
            parse_past_moment_at(text, &now()).map(|ms| Timestamp::from_millisecond(ms).unwrap().to_string())
        };
        for (text, moment) in [
            ("10m", "2026-11-17T13:20:00Z"),
            ("-10m", "2026-11-17T13:20:00Z"),
            ("now", "2026-11-17T13:30:00Z"),
            ("14:00", "2026-11-17T13:00:00Z"),
            ("18:00", "2026-11-16T17:00:00Z"),
            ("today", "2026-11-16T23:00:00Z"),
            ("2026-11-17T09:00", "2026-11-17T08:00:00Z"),
        ] {
            assert_eq!(past(text).as_deref(), Ok(moment), "{text}");
        }
        assert!(past("tomorrow").unwrap_err().contains("in the future"));
        assert!(past("10").unwrap_err().contains("has no unit") && past("soon").unwrap_err().contains("before now"));
    }

    #[test]
    fn offsets_from_now_need_a_unit() {
        for (text, moment) in [
            ("now", "2026-11-17T13:30:00Z"),
            ("2h", "2026-11-17T15:30:00Z"),
            ("now+2h", "2026-11-17T15:30:00Z"),
            ("now + 90minutes", "2026-11-17T15:00:00Z"),
            ("1d12h", "2026-11-19T01:30:00Z"),
        ] {
            assert_eq!(utc(text).as_deref(), Ok(moment), "{text}");
        }
        assert!(utc("18").unwrap_err().contains("`18` has no unit"));
        assert!(utc("now+60").unwrap_err().contains("has no unit"));
    }

    #[test]
    fn past_moments_are_detected() {
        let is_past = |text: &str| parse_moment_at(text, &now()).map(|given| given.is_past);
        for text in ["today 9:00", "2026-11-17", "2020-01-01T18:00", "2026-11-17T13:29:59Z"] {
            assert_eq!(is_past(text), Ok(true), "{text}");
        }
        for text in ["now", "2h", "18:00", "14:30", "tomorrow", "2026-11-18"] {
            assert_eq!(is_past(text), Ok(false), "{text}");
        }
        for text in ["-1h", "now-1h", "now - 90s"] {
            assert!(is_past(text).unwrap_err().contains("is in the past"), "{text}");
        }
    }

    #[test]
    fn invalid_clock_times_are_rejected() {
        for text in ["25:00", "18:60", "13pm", "0am", "18:00:61", "24:00"] {
            assert!(utc(text).unwrap_err().contains("is not a clock time"), "{text}: {:?}", utc(text));
        }
        for text in ["", "soon", "2026-13-01", "2026-11-31T10:00", "tomorrow at nine", "1:2:3:4", "18", "123:00"] {
            assert!(utc(text).is_err(), "{text}: {:?}", utc(text));
        }
    }
}

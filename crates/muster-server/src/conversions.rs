//! Conversions between values of the API and units of the core: timestamps, durations, money, energy, priorities,
//! dependencies.

use muster_core::facts::verdict::FairShare;
use muster_core::objects::job::{Dependency, DependencyWhen, EarlySignal};
use muster_core::objects::tenant::Tier;
use muster_core::time;
use muster_core::{Refusal, Timestamp};
use muster_protocol::input::{DependencyInput, Moment, Priority, Span};

/// Ten years, the same maximum as for time limits.
const DURATION_MS_MAX: i64 = 10 * 366 * 24 * 3_600_000;
/// The end of the year 9999, the last year of RFC 3339.
const TIMESTAMP_MS_MAX: i64 = 253_402_300_799_999;
const MS_PER_HOUR: f64 = 3_600_000.0;
const MICRO_PER_UNIT: f64 = 1_000_000.0;

/// The refusal of a value that can be read and is not valid for its field.
pub fn invalid(field: &'static str, problem: impl Into<String>) -> Refusal {
    Refusal::Invalid { field, problem: problem.into() }
}

pub fn rfc3339(ms: i64) -> String {
    // Outside the range of the calendar: the plain number.
    jiff::Timestamp::from_millisecond(ms).map_or_else(|_| ms.to_string(), |timestamp| timestamp.to_string())
}

/// A duration for people.
pub fn human_duration(ms: i64) -> String {
    time::format_duration_rounded_ms(ms)
}

/// A fair-share factor as a fraction.
pub fn fair_share_factor(share: FairShare) -> f64 {
    f64::from(share.factor_milli) / 1_000.0
}

pub fn ms_to_hours(ms: u64) -> f64 {
    ms as f64 / MS_PER_HOUR
}

pub fn mj_to_kwh(mj: u64) -> f64 {
    mj as f64 / 3.6e9
}

/// Millionths of the currency as money.
pub fn micro_to_money(micro: u64) -> f64 {
    micro as f64 / MICRO_PER_UNIT
}

/// Money as millionths of the currency.
pub fn money_to_micro(field: &'static str, money: f64) -> Result<u64, Refusal> {
    match money.is_finite() && (0.0..=1e9).contains(&money) {
        true => Ok((money * MICRO_PER_UNIT).round() as u64),
        false => Err(invalid(field, "must be from 0 to 1,000,000,000")),
    }
}

/// A duration in milliseconds, above zero.
pub fn parse_duration_ms(field: &'static str, span: &Span) -> Result<i64, Refusal> {
    let ms = match span {
        Span::Seconds(seconds) => i64::try_from(*seconds).ok().and_then(|seconds| seconds.checked_mul(1_000)),
        Span::Text(text) => Some(time::parse_duration_ms(text).map_err(|error| invalid(field, error.to_string()))?),
    };
    match ms {
        Some(ms @ 1..=DURATION_MS_MAX) => Ok(ms),
        Some(..=0) => Err(invalid(field, "must be above zero")),
        _ => Err(invalid(field, "must be ten years at most")),
    }
}

/// The signals that a job may ask for, by their numbers on Linux. SIGKILL and SIGSTOP cannot be handled.
const SIGNALS: [(&str, i32); 12] = [
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("USR1", 10),
    ("USR2", 12),
    ("ALRM", 14),
    ("TERM", 15),
    ("CONT", 18),
    ("URG", 23),
    ("XCPU", 24),
    ("WINCH", 28),
    ("PWR", 30),
];
/// As in Slurm.
const EARLY_SIGNAL_BEFORE_MS: i64 = 60_000;

/// An early signal such as `USR1@300`, `SIGTERM@5m` or `10`.
pub fn parse_early_signal(text: &str) -> Result<EarlySignal, Refusal> {
    let (name, before) = text.split_once('@').map_or((text, None), |(name, before)| (name, Some(before)));
    let upper = name.trim().to_ascii_uppercase();
    let bare = upper.strip_prefix("SIG").unwrap_or(&upper);
    let found = SIGNALS.iter().find(|(known, number)| *known == bare || number.to_string() == bare);
    let names = || SIGNALS.map(|(name, _)| name).join(", ");
    let unknown = || invalid("signal", format!("`{name}` is none of {}, nor the number of one", names()));
    let (_, signal) = found.ok_or_else(unknown)?;
    let before_ms = match before.map(str::trim) {
        None => EARLY_SIGNAL_BEFORE_MS,
        Some(before) => match before.parse() {
            Ok(seconds) => parse_duration_ms("signal", &Span::Seconds(seconds))?,
            Err(_) => parse_duration_ms("signal", &Span::Text(before.to_string()))?,
        },
    };
    Ok(EarlySignal { signal: *signal, before_ms })
}

pub fn signal_name(number: i32) -> String {
    let found = SIGNALS.iter().find(|(_, known)| *known == number);
    found.map_or(number.to_string(), |(name, _)| name.to_string())
}

pub fn early_signal_text(early: EarlySignal) -> String {
    format!("{}@{}", signal_name(early.signal), human_duration(early.before_ms))
}

/// A timestamp in a body.
pub fn parse_timestamp(field: &'static str, written: &Moment) -> Result<Timestamp, Refusal> {
    match written {
        Moment::UnixMs(ms) => match i64::try_from(*ms) {
            Ok(ms) if ms <= TIMESTAMP_MS_MAX => Ok(Timestamp(ms)),
            _ => Err(invalid(field, "is after the year 9999")),
        },
        Moment::Text(text) => parse_timestamp_text(field, text),
    }
}

/// A timestamp as text: RFC 3339, or a plain number of Unix milliseconds.
pub fn parse_timestamp_text(field: &'static str, text: &str) -> Result<Timestamp, Refusal> {
    if let Ok(ms) = text.parse::<i64>() {
        return match (0..=TIMESTAMP_MS_MAX).contains(&ms) {
            true => Ok(Timestamp(ms)),
            false => Err(invalid(field, "is after the year 9999")),
        };
    }
    let timestamp: jiff::Timestamp = text.parse().map_err(|_| {
        invalid(field, format!("`{text}` is not a timestamp; write for example `2026-03-01T09:00:00Z`"))
    })?;
    Ok(Timestamp(timestamp.as_millisecond()))
}

/// A priority as a number or as the name of a tier.
pub fn parse_priority(written: &Priority) -> Result<u32, Refusal> {
    match written {
        Priority::Number(number) => Ok(*number),
        Priority::Name(name) => match name.parse() {
            Ok(number) => Ok(number),
            Err(_) => Ok(parse_tier("priority", name)?.priority()),
        },
    }
}

pub fn parse_tier(field: &'static str, name: &str) -> Result<Tier, Refusal> {
    match name.to_ascii_lowercase().as_str() {
        "low" => Ok(Tier::Low),
        "medium" => Ok(Tier::Medium),
        "high" => Ok(Tier::High),
        "critical" => Ok(Tier::Critical),
        _ => Err(invalid(field, format!("`{name}` is none of low, medium, high, critical"))),
    }
}

/// A dependency, written as `job-1:succeeded` or as two fields.
pub fn parse_dependency(after: &DependencyInput) -> Result<Dependency, Refusal> {
    let (job, when) = match after {
        DependencyInput::Fields(fields) => (fields.job.as_str(), fields.when.as_deref()),
        DependencyInput::Text(text) => match text.split_once(':') {
            Some((job, when)) => (job, Some(when)),
            None => (text.as_str(), None),
        },
    };
    let job = job.parse().map_err(|error| invalid("after", format!("{error}")))?;
    let when = match when.unwrap_or("succeeded") {
        "succeeded" => DependencyWhen::Succeeded,
        "failed" => DependencyWhen::Failed,
        "ended" => DependencyWhen::Ended,
        other => {
            return Err(invalid("after", format!("`{other}` is none of succeeded, failed, ended")));
        }
    };
    Ok(Dependency { job, when })
}

/// A dependency as `job-1:succeeded`.
pub fn dependency_text(dependency: &Dependency) -> String {
    let when = match dependency.when {
        DependencyWhen::Succeeded => "succeeded",
        DependencyWhen::Failed => "failed",
        DependencyWhen::Ended => "ended",
    };
    format!("{}:{when}", dependency.job)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_print_and_parse_alike() {
        assert_eq!(rfc3339(1_772_355_600_000), "2026-03-01T09:00:00Z");
        assert_eq!(parse_timestamp_text("from", "2026-03-01T09:00:00Z").unwrap(), Timestamp(1_772_355_600_000));
        assert_eq!(parse_timestamp_text("from", "2026-03-01T10:00:00+01:00").unwrap(), Timestamp(1_772_355_600_000));
        assert_eq!(parse_timestamp_text("from", "17").unwrap(), Timestamp(17));
        assert!(parse_timestamp_text("from", "tomorrow").is_err());
    }

    #[test]
    fn dependencies_parse_with_and_without_a_condition() {
        let text = parse_dependency(&DependencyInput::Text("job-3:failed".into())).unwrap();
        assert_eq!(dependency_text(&text), "job-3:failed");
        assert_eq!(dependency_text(&parse_dependency(&DependencyInput::Text("7".into())).unwrap()), "job-7:succeeded");
        assert!(parse_dependency(&DependencyInput::Text("7:later".into())).is_err());
    }
}

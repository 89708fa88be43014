//! Values as people write them, read into the units of the core, and back.

use muster_agent::duration;
use muster_core::Timestamp;
use muster_core::job::{Dependency, DependencyWhen};
use muster_core::tenant::Tier;
use muster_protocol::written::{After, Moment, Priority, Span};

use crate::http::fault::Fault;

/// Ten years, as for time limits.
const SPAN_MS_MAX: i64 = 10 * 366 * 24 * 3_600_000;
/// The end of the year 9999, the last that RFC 3339 can write.
const MOMENT_MS_MAX: i64 = 253_402_300_799_999;
const HOUR_MS: f64 = 3_600_000.0;
const MICRO: f64 = 1_000_000.0;

/// A moment as RFC 3339.
pub fn stamp(ms: i64) -> String {
    // Far beyond what the calendar knows there is only the number.
    jiff::Timestamp::from_millisecond(ms).map_or_else(|_| ms.to_string(), |moment| moment.to_string())
}

/// A span for people.
pub fn humane(ms: i64) -> String {
    // Nobody reads the milliseconds of something that took minutes.
    let whole_seconds = if ms >= 10_000 { ms / 1_000 * 1_000 } else { ms };
    duration::humane(whole_seconds)
}

/// Milliseconds as hours.
pub fn hours(ms: u64) -> f64 {
    ms as f64 / HOUR_MS
}

/// Millijoules as kilowatt-hours.
pub fn kwh(mj: u64) -> f64 {
    mj as f64 / 3.6e9
}

/// Millionths of the currency as money.
pub fn money(micro: u64) -> f64 {
    micro as f64 / MICRO
}

/// Money as millionths of the currency.
pub fn micro(field: &'static str, money: f64) -> Result<u64, Fault> {
    match money.is_finite() && (0.0..=1e9).contains(&money) {
        true => Ok((money * MICRO).round() as u64),
        false => Err(Fault::invalid(field, "must be from 0 to 1,000,000,000")),
    }
}

/// A span in milliseconds.
pub fn span_ms(field: &'static str, span: &Span) -> Result<i64, Fault> {
    let ms = match span {
        Span::Seconds(seconds) => i64::try_from(*seconds).ok().and_then(|seconds| seconds.checked_mul(1_000)),
        Span::Text(text) => {
            Some(duration::parse_ms(text).map_err(|error| Fault::invalid(field, error.to_string()))?)
        }
    };
    match ms {
        Some(ms @ 1..=SPAN_MS_MAX) => Ok(ms),
        Some(..=0) => Err(Fault::invalid(field, "must be above zero")),
        _ => Err(Fault::invalid(field, "must be ten years at most")),
    }
}

/// A moment that was written in a body or a query.
pub fn moment(field: &'static str, written: &Moment) -> Result<Timestamp, Fault> {
    match written {
        Moment::UnixMs(ms) => match i64::try_from(*ms) {
            Ok(ms) if ms <= MOMENT_MS_MAX => Ok(Timestamp(ms)),
            _ => Err(Fault::invalid(field, "is later than the calendar goes")),
        },
        Moment::Text(text) => moment_text(field, text),
    }
}

/// The same from a text: RFC 3339, or a plain number of Unix milliseconds.
pub fn moment_text(field: &'static str, text: &str) -> Result<Timestamp, Fault> {
    if let Ok(ms) = text.parse::<i64>() {
        return match (0..=MOMENT_MS_MAX).contains(&ms) {
            true => Ok(Timestamp(ms)),
            false => Err(Fault::invalid(field, "is later than the calendar goes")),
        };
    }
    let moment: jiff::Timestamp = text.parse().map_err(|_| {
        Fault::invalid(field, format!("`{text}` is not a moment; write for example `2026-03-01T09:00:00Z`"))
    })?;
    Ok(Timestamp(moment.as_millisecond()))
}

/// A priority; names are the tier numbers.
pub fn priority(written: &Priority) -> Result<u32, Fault> {
    match written {
        Priority::Number(number) => Ok(*number),
        Priority::Name(name) => match name.parse() {
            Ok(number) => Ok(number),
            Err(_) => Ok(tier("priority", name)?.priority()),
        },
    }
}

/// A tier by its name.
pub fn tier(field: &'static str, name: &str) -> Result<Tier, Fault> {
    match name.to_ascii_lowercase().as_str() {
        "low" => Ok(Tier::Low),
        "medium" => Ok(Tier::Medium),
        "high" => Ok(Tier::High),
        "critical" => Ok(Tier::Critical),
        _ => Err(Fault::invalid(field, format!("`{name}` is none of low, medium, high, critical"))),
    }
}

/// A dependency: `job-1:succeeded`, or two fields.
pub fn dependency(after: &After) -> Result<Dependency, Fault> {
    let (job, when) = match after {
        After::Fields(fields) => (fields.job.as_str(), fields.when.as_deref()),
        After::Text(text) => match text.split_once(':') {
            Some((job, when)) => (job, Some(when)),
            None => (text.as_str(), None),
        },
    };
    let job = job.parse().map_err(|error| Fault::invalid("after", format!("{error}")))?;
    let when = match when.unwrap_or("succeeded") {
        "succeeded" => DependencyWhen::Succeeded,
        "failed" => DependencyWhen::Failed,
        "ended" => DependencyWhen::Ended,
        other => {
            return Err(Fault::invalid("after", format!("`{other}` is none of succeeded, failed, ended")));
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
    fn moments_print_and_parse_alike() {
        assert_eq!(stamp(1_772_355_600_000), "2026-03-01T09:00:00Z");
        assert_eq!(moment_text("from", "2026-03-01T09:00:00Z").unwrap(), Timestamp(1_772_355_600_000));
        assert_eq!(moment_text("from", "2026-03-01T10:00:00+01:00").unwrap(), Timestamp(1_772_355_600_000));
        assert_eq!(moment_text("from", "17").unwrap(), Timestamp(17));
        assert!(moment_text("from", "tomorrow").is_err());
    }

    #[test]
    fn dependencies_are_read_in_both_ways() {
        let text = dependency(&After::Text("job-3:failed".into())).unwrap();
        assert_eq!(dependency_text(&text), "job-3:failed");
        assert_eq!(dependency_text(&dependency(&After::Text("7".into())).unwrap()), "job-7:succeeded");
        assert!(dependency(&After::Text("7:later".into())).is_err());
    }
}

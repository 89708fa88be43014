//! Amounts as people write and read them: durations, memory, moments.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use jiff::tz::TimeZone;

const SECOND: i64 = 1_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// Milliseconds since the Unix epoch, by this machine's clock.
pub fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Read `90s`, `2h`, `1h30m`, `7d`, Slurm's `2:30:00` and `1-12:00:00`, or plain minutes.
pub fn duration_ms(text: &str) -> Result<i64, String> {
    let read = if text.contains(':') { clock_ms(text) } else { parts_ms(text) };
    read.ok_or_else(|| format!("`{text}` is not a duration; write for example `90s`, `2h`, `1h30m` or `7d`"))
}

/// `[days-]hours:minutes:seconds`, or `minutes:seconds`.
fn clock_ms(text: &str) -> Option<i64> {
    let (days, clock) = text.split_once('-').unwrap_or(("0", text));
    let mut fields = clock.split(':').map(number).collect::<Option<Vec<i64>>>()?;
    if fields.len() == 2 {
        fields.insert(0, 0);
    }
    let [hours, minutes, seconds] = fields[..] else { return None };
    let parts = [(number(days)?, DAY), (hours, HOUR), (minutes, MINUTE), (seconds, SECOND)];
    parts.into_iter().try_fold(0_i64, |sum, (count, unit)| sum.checked_add(count.checked_mul(unit)?))
}

fn parts_ms(text: &str) -> Option<i64> {
    let mut rest = text;
    let mut sum = 0_i64;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (count, after) = rest.split_at(digits);
        let letters = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        sum = sum.checked_add(number(count)?.checked_mul(unit_ms(unit)?)?)?;
        rest = after;
    }
    (!text.is_empty()).then_some(sum)
}

fn unit_ms(unit: &str) -> Option<i64> {
    Some(match unit {
        "ms" => 1,
        "s" => SECOND,
        "m" | "" => MINUTE,
        "h" => HOUR,
        "d" => DAY,
        "w" => 7 * DAY,
        _ => return None,
    })
}

fn number(text: &str) -> Option<i64> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

/// Read a part of a GPU: `0.5`.
pub fn share(text: &str) -> Result<f64, String> {
    let bad =
        || format!("`{text}` is not a part of a GPU; write a number above 0 and up to 1, for example `0.5`");
    text.parse().ok().filter(|share| *share > 0.0 && *share <= 1.0).ok_or_else(bad)
}

/// Read `40G`, `512M`, `1.5T`, `64GiB`, or plain MiB. Everything is binary: 1 G is 1,024 MiB.
pub fn memory_mib(text: &str) -> Result<u64, String> {
    let bad = || format!("`{text}` is not an amount of memory; write for example `40G`, `512M` or `1.5T`");
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (count, unit) = text.split_at(digits);
    let unit_mib = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "m" | "mb" | "mib" => 1.0,
        "g" | "gb" | "gib" => 1024.0,
        "t" | "tb" | "tib" => 1024.0 * 1024.0,
        _ => return Err(bad()),
    };
    let mib = count.parse::<f64>().map_err(|_| bad())? * unit_mib;
    if mib > 1e12 || (mib > 0.0 && mib < 1.0) {
        return Err(bad());
    }
    Ok(mib.round() as u64)
}

/// `64 GiB`, `512 MiB`: as few digits as say the truth.
pub fn memory(mib: u64) -> String {
    match mib {
        0..1024 => format!("{mib} MiB"),
        _ if mib.is_multiple_of(1024) => format!("{} GiB", mib / 1024),
        _ => format!("{:.1} GiB", mib as f64 / 1024.0),
    }
}

/// `1 GPU`, `2 GPUs`.
pub fn count(number: impl Into<u64>, word: &str) -> String {
    match number.into() {
        1 => format!("1 {word}"),
        number => format!("{number} {word}s"),
    }
}

/// `14s`, `2m05s`, `3h20m`, `2d04h`: two units at most.
pub fn span(ms: i64) -> String {
    let ms = ms.max(0);
    let (days, hours) = (ms / DAY, ms / HOUR % 24);
    let (minutes, seconds) = (ms / MINUTE % 60, ms / SECOND % 60);
    match ms {
        DAY.. => format!("{days}d{hours:02}h"),
        HOUR.. => format!("{hours}h{minutes:02}m"),
        MINUTE.. => format!("{minutes}m{seconds:02}s"),
        _ => format!("{seconds}s"),
    }
}

/// A moment in UTC, `2026-11-15 03:21:05Z`. Always UTC, so that lines from two machines can be compared.
pub fn moment(ms: i64) -> String {
    match Timestamp::from_millisecond(ms) {
        Ok(moment) => moment.to_zoned(TimeZone::UTC).strftime("%Y-%m-%d %H:%M:%SZ").to_string(),
        Err(_) => format!("{ms} ms"),
    }
}

/// The clock time of a moment in UTC, `03:21:05`.
pub fn clock(ms: i64) -> String {
    match Timestamp::from_millisecond(ms) {
        Ok(moment) => moment.to_zoned(TimeZone::UTC).strftime("%H:%M:%S").to_string(),
        Err(_) => format!("{ms} ms"),
    }
}

/// The same with the date where it is not the day of `now_ms`: `2026-03-02 03:21:05`.
pub fn day_clock(ms: i64, now_ms: i64) -> String {
    let day =
        |ms: i64| Timestamp::from_millisecond(ms).ok().map(|moment| moment.to_zoned(TimeZone::UTC).date());
    match day(ms) {
        Some(date) if Some(date) != day(now_ms) => format!("{date} {}", clock(ms)),
        _ => clock(ms),
    }
}

/// A range of moments; the date of its end is told too where the range does not end on the day it begins.
pub fn range(from_ms: i64, to_ms: i64, now_ms: i64) -> String {
    format!("{} to {}", day_clock(from_ms, now_ms), day_clock(to_ms, now_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_of_another_day_has_its_date() {
        let now = 14 * HOUR;
        assert_eq!(range(now + HOUR, now + 2 * HOUR, now), "15:00:00 to 16:00:00");
        assert_eq!(range(now + MINUTE, now + 11 * HOUR, now), "14:01:00 to 1970-01-02 01:00:00");
    }

    #[test]
    fn durations_are_read_as_people_write_them() {
        let cases = [
            ("90s", 90 * SECOND),
            ("1h30m", 90 * MINUTE),
            ("7d", 7 * DAY),
            ("500ms", 500),
            ("30", 30 * MINUTE),
            ("2:30:00", 150 * MINUTE),
            ("05:00", 5 * MINUTE),
            ("1-12:00:00", 36 * HOUR),
        ];
        for (text, ms) in cases {
            assert_eq!(duration_ms(text), Ok(ms), "{text}");
        }
        for text in ["", "h", "2x", "-1h", "1:2:3:4", "1h-", "99999999999999999999d"] {
            assert!(duration_ms(text).is_err(), "{text}");
        }
    }

    #[test]
    fn memory_is_binary() {
        for (text, mib) in [("40G", 40_960), ("512M", 512), ("1.5T", 1_572_864), ("64GiB", 65_536), ("7", 7)]
        {
            assert_eq!(memory_mib(text), Ok(mib), "{text}");
        }
        for text in ["", "G", "-1G", "1.2.3G", "4P", "0.1M", "1e9"] {
            assert!(memory_mib(text).is_err(), "{text}");
        }
        assert_eq!(
            (memory(65_536), memory(512), memory(81_559)),
            ("64 GiB".into(), "512 MiB".into(), "79.6 GiB".into())
        );
    }

    #[test]
    fn spans_have_two_units_at_most() {
        let cases =
            [(0, "0s"), (14_999, "14s"), (125_000, "2m05s"), (12_000_000, "3h20m"), (187_200_000, "2d04h")];
        for (ms, text) in cases {
            assert_eq!(span(ms), text);
        }
    }

    #[test]
    fn moments_are_in_utc() {
        assert_eq!(moment(1_763_176_865_000), "2025-11-15 03:21:05Z");
        assert_eq!(clock(1_763_176_865_000), "03:21:05");
    }
}

//! Parsing and formatting of durations, times, memory sizes and counts.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use muster_core::time::{self, DAY, HOUR, MINUTE, SECOND, SlurmSource};

/// Milliseconds since the Unix epoch, by this machine's clock.
pub fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Parses `90s`, `2h`, `1h30m`, `7d`, or Slurm's `2:30:00` and `1-12:00:00`. Ambiguous text such as `18:00` is refused.
pub fn parse_duration_ms(text: &str) -> Result<i64, String> {
    if time::parse_digits(text).is_some() {
        return Err(format!("`{text}` has no unit; write `{text}s`, `{text}m` or `{text}h`"));
    }
    if text.split(':').count() == 2 && !text.contains('-') && parse_slurm_duration_ms(text).is_some() {
        let first = text.split(':').next().unwrap_or_default();
        return Err(format!("`{text}` is ambiguous (minutes or hours); write for example `{first}m` or `{first}h`"));
    }
    parse_units_or_slurm_ms(text)
}

/// A time limit, with a note if it was parsed by a rule of Slurm that not every user knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeLimit {
    pub ms: i64,
    /// How the text was parsed, for standard error.
    pub note: Option<String>,
}

/// Parses a time limit as Slurm does: a bare number is minutes, `30:00` is minutes and seconds.
pub fn parse_time_limit(text: &str) -> Result<TimeLimit, String> {
    let bare = time::parse_digits(text).map(|minutes| minutes.checked_mul(MINUTE));
    let ms = match bare {
        Some(ms) => ms.ok_or_else(|| format!("`{text}` minutes is out of range"))?,
        None => parse_units_or_slurm_ms(text)?,
    };
    let note = match text.contains(':') && text.split(':').count() == 2 && !text.contains('-') {
        true => Some(format!("time limit `{text}` is minutes and seconds: {}", duration_text(ms))),
        false => bare.map(|_| format!("time limit `{text}` is in minutes: {}", duration_text(ms))),
    };
    Ok(TimeLimit { ms, note })
}

fn parse_units_or_slurm_ms(text: &str) -> Result<i64, String> {
    let slurm = text.contains([':', '-']);
    let ms = if slurm { parse_slurm_duration_ms(text) } else { time::parse_duration_with_long_names_ms(text) };
    ms.ok_or_else(|| format!("`{text}` is not a duration; write for example `90s`, `2h`, `1h30m` or `7d`"))
}

fn parse_slurm_duration_ms(text: &str) -> Option<i64> {
    time::parse_slurm_duration_ms(text, SlurmSource::UserInput)
}

/// Parses a GPU share such as `0.5`.
pub fn parse_gpu_share(text: &str) -> Result<f64, String> {
    let bad = || format!("`{text}` is not a GPU share; write a number above 0 and up to 1, for example `0.5`");
    text.parse().ok().filter(|share| *share > 0.0 && *share <= 1.0).ok_or_else(bad)
}

/// Parses `40G`, `512M`, `1.5T`, `64GiB`, or a plain number of MiB. All units are binary: 1 G is 1,024 MiB.
pub fn parse_memory_mib(text: &str) -> Result<u64, String> {
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

/// `64 GiB`, `79.6 GiB`, `512 MiB`.
pub fn memory_text(mib: u64) -> String {
    match mib {
        0..1024 => format!("{mib} MiB"),
        _ if mib.is_multiple_of(1024) => format!("{} GiB", mib / 1024),
        _ => format!("{:.1} GiB", mib as f64 / 1024.0),
    }
}

pub fn parse_gpu_count(text: &str) -> Result<u32, String> {
    text.parse()
        .map_err(|_| format!("`{text}` is not a number of GPUs; write a whole number from 0 on, for example `2`"))
}

/// An amount with two decimals, and with more if it is small: only zero is printed as `0.00`.
pub fn amount_text(amount: f64) -> String {
    match amount.abs() {
        small if small > 0.0 && small < 0.0001 => format!("{amount:.8}"),
        small if small > 0.0 && small < 1.0 => format!("{amount:.4}"),
        _ => format!("{amount:.2}"),
    }
}

/// `1 GPU`, `2 GPUs`.
pub fn count_text(number: impl Into<u64>, word: &str) -> String {
    match number.into() {
        1 => format!("1 {word}"),
        number => format!("{number} {word}s"),
    }
}

/// `5,012`.
pub fn thousands_text(number: u64) -> String {
    let digits = number.to_string();
    let with_comma = |(index, digit): (usize, char)| {
        let comma = index > 0 && (digits.len() - index).is_multiple_of(3);
        [comma.then_some(','), Some(digit)]
    };
    digits.chars().enumerate().flat_map(with_comma).flatten().collect()
}

/// `14s`, `2m05s`, `3h20m`, `2d04h`: two units at most.
pub fn duration_text(ms: i64) -> String {
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

/// A span in the format of the server's sentences: `1s128ms`, `15s`, `1h2m3s`.
pub fn runtime_text(ms: i64) -> String {
    time::format_duration_rounded_ms(ms)
}

/// A moment in the user's time zone, `2026-11-15 04:21:05+01:00`; in UTC `2026-11-15 03:21:05Z`. Always with its
/// offset from UTC, so that output of two machines can be compared.
pub fn local_time_text(ms: i64) -> String {
    time_text_in(ms, TimeZone::system())
}

fn time_text_in(ms: i64, zone: TimeZone) -> String {
    let Ok(moment) = Timestamp::from_millisecond(ms) else { return format!("{ms} ms") };
    let zoned = moment.to_zoned(zone);
    let format = if zoned.offset().is_zero() { "%Y-%m-%d %H:%M:%SZ" } else { "%Y-%m-%d %H:%M:%S%:z" };
    zoned.strftime(format).to_string()
}

/// The clock time of a moment in the user's time zone, `03:21:05`.
pub fn local_clock_text(ms: i64) -> String {
    match Timestamp::from_millisecond(ms) {
        Ok(moment) => moment.to_zoned(TimeZone::system()).strftime("%H:%M:%S").to_string(),
        Err(_) => format!("{ms} ms"),
    }
}

/// A sentence of the server with its moments (`2026-11-15T03:21:05Z`) in the user's time zone.
pub fn localize_timestamps(sentence: &str) -> String {
    let word = |word: &str| match word.parse::<Timestamp>() {
        Ok(moment) if word.contains('T') => self::local_time_text(moment.as_millisecond()),
        _ => word.to_string(),
    };
    sentence.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// The clock time, with the date if it is not the day of `now_ms`: `2026-03-02 03:21:05`.
pub fn local_clock_text_with_date(ms: i64, now_ms: i64) -> String {
    let day = |ms: i64| Timestamp::from_millisecond(ms).ok().map(|moment| moment.to_zoned(TimeZone::UTC).date());
    match day(ms) {
        Some(date) if Some(date) != day(now_ms) => format!("{date} {}", local_clock_text(ms)),
        _ => local_clock_text(ms),
    }
}

/// A range of moments, each with its date if it is not the day of `now_ms`.
pub fn time_range_text(from_ms: i64, to_ms: i64, now_ms: i64) -> String {
    format!("{} to {}", local_clock_text_with_date(from_ms, now_ms), local_clock_text_with_date(to_ms, now_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_of_another_day_has_its_date() {
        let now = 14 * HOUR;
        assert_eq!(time_range_text(now + HOUR, now + 2 * HOUR, now), "15:00:00 to 16:00:00");
        assert_eq!(time_range_text(now + MINUTE, now + 11 * HOUR, now), "14:01:00 to 1970-01-02 01:00:00");
    }

    #[test]
    fn durations_parse_with_units_and_in_slurm_notation() {
        let cases = [
            ("90s", 90 * SECOND),
            ("1h30m", 90 * MINUTE),
            ("7d", 7 * DAY),
            ("500ms", 500),
            ("2hours", 2 * HOUR),
            ("2:30:00", 150 * MINUTE),
            ("1-12", 36 * HOUR),
            ("1-12:30", 36 * HOUR + 30 * MINUTE),
            ("1-12:00:00", 36 * HOUR),
        ];
        for (text, ms) in cases {
            assert_eq!(parse_duration_ms(text), Ok(ms), "{text}");
        }
        for text in ["", "h", "2x", "-1h", "1:2:3:4", "1h-", "99999999999999999999d", "1:60:00", "1-24"] {
            assert!(parse_duration_ms(text).is_err(), "{text}");
        }
    }

    #[test]
    fn ambiguous_durations_are_rejected_or_explained() {
        assert!(parse_duration_ms("30").unwrap_err().contains("`30` has no unit"));
        assert!(parse_duration_ms("18:00").unwrap_err().contains("is ambiguous (minutes or hours)"));
        let limit = |text: &str| parse_time_limit(text).map(|limit| (limit.ms, limit.note));
        assert_eq!(limit("2h"), Ok((2 * HOUR, None)));
        assert_eq!(limit("2:30:00"), Ok((150 * MINUTE, None)));
        let minutes = "time limit `30:00` is minutes and seconds: 30m00s";
        assert_eq!(limit("30:00"), Ok((30 * MINUTE, Some(minutes.into()))));
        assert_eq!(limit("90"), Ok((90 * MINUTE, Some("time limit `90` is in minutes: 1h30m".into()))));
        assert!(limit("10:75").is_err(), "there are 60 seconds in a minute");
    }

    #[test]
    fn memory_is_binary() {
        for (text, mib) in [("40G", 40_960), ("512M", 512), ("1.5T", 1_572_864), ("64GiB", 65_536), ("7", 7)] {
            assert_eq!(parse_memory_mib(text), Ok(mib), "{text}");
        }
        for text in ["", "G", "-1G", "1.2.3G", "4P", "0.1M", "1e9"] {
            assert!(parse_memory_mib(text).is_err(), "{text}");
        }
        assert_eq!(
            (memory_text(65_536), memory_text(512), memory_text(81_559)),
            ("64 GiB".into(), "512 MiB".into(), "79.6 GiB".into())
        );
    }

    #[test]
    fn long_numbers_have_commas() {
        for (number, text) in [(0, "0"), (999, "999"), (5_012, "5,012"), (1_000_000, "1,000,000")] {
            assert_eq!(thousands_text(number), text);
        }
    }

    #[test]
    fn spans_have_two_units_at_most() {
        let cases = [(0, "0s"), (14_999, "14s"), (125_000, "2m05s"), (12_000_000, "3h20m"), (187_200_000, "2d04h")];
        for (ms, text) in cases {
            assert_eq!(duration_text(ms), text);
        }
    }

    #[test]
    fn runtimes_print_in_the_servers_format() {
        for (ms, text) in [(0, "0s"), (1_128, "1s128ms"), (14_999, "14s"), (3_723_004, "1h2m3s")] {
            assert_eq!(runtime_text(ms), text);
        }
    }

    #[test]
    fn small_amounts_never_round_to_zero() {
        for (value, text) in [
            (0.0, "0.00"),
            (0.000_000_28, "0.00000028"),
            (0.000_1, "0.0001"),
            (0.25, "0.2500"),
            (1.0, "1.00"),
            (12.345, "12.35"),
        ] {
            assert_eq!(amount_text(value), text);
        }
    }

    #[test]
    fn gpu_counts_are_whole_numbers_from_zero() {
        assert_eq!((parse_gpu_count("0"), parse_gpu_count("8")), (Ok(0), Ok(8)));
        for text in ["-1", "many", "", "1.5", "99999999999"] {
            assert!(parse_gpu_count(text).unwrap_err().contains("is not a number of GPUs"), "{text}");
        }
    }

    #[test]
    fn moments_are_shown_in_the_local_time_zone() {
        let berlin = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        assert_eq!(time_text_in(1_763_176_865_000, TimeZone::UTC), "2025-11-15 03:21:05Z");
        assert_eq!(time_text_in(1_763_176_865_000, berlin), "2025-11-15 04:21:05+01:00");
        let sentence = "may start at 2025-11-15T03:21:05Z, not before";
        assert_eq!(localize_timestamps(sentence), sentence, "a moment with a comma is not converted");
        let sentence = "may start at 2025-11-15T03:21:05Z";
        assert_eq!(localize_timestamps(sentence), format!("may start at {}", local_time_text(1_763_176_865_000)));
    }
}

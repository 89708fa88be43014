//! Moments and spans, in milliseconds. The engine's clock makes them; the core only compares them.

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

    /// The moment as RFC 3339 in UTC, to the second, for sentences. Days are counted by the proleptic Gregorian
    /// calendar, with March as the first month of a year so that a leap day comes last.
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

    /// The moment `ms` later.
    pub fn plus(self, ms: i64) -> Timestamp {
        Timestamp(self.0.saturating_add(ms))
    }
}

/// One second, for constants.
pub const SECOND: i64 = 1_000;
/// One minute.
pub const MINUTE: i64 = 60 * SECOND;
/// One hour.
pub const HOUR: i64 = 60 * MINUTE;
/// One day.
pub const DAY: i64 = 24 * HOUR;

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
}

//! What a job asks of the simulation, in its annotations.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use crate::duration::{self, NotADuration};

const RUNTIME: &str = "muster.sim/runtime";
const EXIT_CODE: &str = "muster.sim/exit-code";
const LAUNCH: &str = "muster.sim/launch";
const IGNORE_STOP: &str = "muster.sim/ignore-stop";
const TEMPERATURE: &str = "muster.sim/temperature";

/// Long enough to look at, short enough to wait for.
const RUNTIME_MS_DEFAULT: i64 = 20_000;
/// What a process can return.
const EXIT_CODES: RangeInclusive<i32> = 0..=255;
/// In °C. Wider than any device survives, narrow enough to catch a slip.
const TEMPERATURES_C: RangeInclusive<i32> = 0..=150;

/// What the attempt shall do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wishes {
    pub runtime_ms: i64,
    pub exit_code: i32,
    pub refuse_launch: bool,
    pub ignore_stop: bool,
    pub temperature_c: Option<i32>,
}

/// A wish that cannot be understood. The attempt does not start: a simulation of something else would mislead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadWish {
    #[error("annotation `{RUNTIME}`: {0}")]
    Runtime(#[from] NotADuration),
    #[error("annotation `{key}` is `{value}`; it must be a whole number from {min} to {max}")]
    Number { key: &'static str, value: String, min: i32, max: i32 },
    #[error("annotation `{key}` is `{value}`; it must be {words}")]
    Word { key: &'static str, value: String, words: &'static str },
}

impl Wishes {
    pub fn read(annotations: &BTreeMap<String, String>) -> Result<Wishes, BadWish> {
        let get = |key: &str| annotations.get(key).map(String::as_str);
        Ok(Wishes {
            runtime_ms: get(RUNTIME).map_or(Ok(RUNTIME_MS_DEFAULT), duration::parse_ms)?,
            exit_code: number(EXIT_CODE, get(EXIT_CODE), &EXIT_CODES)?.unwrap_or(0),
            refuse_launch: word(LAUNCH, get(LAUNCH), "accept", "refuse", "`accept` or `refuse`")?,
            ignore_stop: word(IGNORE_STOP, get(IGNORE_STOP), "false", "true", "`true` or `false`")?,
            temperature_c: number(TEMPERATURE, get(TEMPERATURE), &TEMPERATURES_C)?,
        })
    }
}

fn number(
    key: &'static str,
    text: Option<&str>,
    range: &RangeInclusive<i32>,
) -> Result<Option<i32>, BadWish> {
    let Some(text) = text else { return Ok(None) };
    match text.trim().parse() {
        Ok(number) if range.contains(&number) => Ok(Some(number)),
        _ => Err(BadWish::Number { key, value: text.to_string(), min: *range.start(), max: *range.end() }),
    }
}

/// Whether the second of two words was said; the first is what happens when nothing is said.
fn word(
    key: &'static str,
    text: Option<&str>,
    no: &str,
    yes: &str,
    words: &'static str,
) -> Result<bool, BadWish> {
    match text {
        None => Ok(false),
        Some(text) if text == no => Ok(false),
        Some(text) if text == yes => Ok(true),
        Some(text) => Err(BadWish::Word { key, value: text.to_string(), words }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Wishes, BadWish> {
        Wishes::read(&pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect())
    }

    #[test]
    fn without_a_word_it_runs_twenty_seconds_and_ends_well() {
        let wishes = read(&[("team", "vision")]).unwrap();
        assert_eq!((wishes.runtime_ms, wishes.exit_code, wishes.temperature_c), (20_000, 0, None));
        assert!(!wishes.refuse_launch && !wishes.ignore_stop);
    }

    #[test]
    fn wishes_are_read() {
        let wishes = read(&[
            (RUNTIME, "1h30m"),
            (EXIT_CODE, "3"),
            (LAUNCH, "refuse"),
            (IGNORE_STOP, "true"),
            (TEMPERATURE, "90"),
        ]);
        let expected = Wishes {
            runtime_ms: 5_400_000,
            exit_code: 3,
            refuse_launch: true,
            ignore_stop: true,
            temperature_c: Some(90),
        };
        assert_eq!(wishes, Ok(expected));
    }

    #[test]
    fn bad_wishes_are_named() {
        for (key, value) in [
            (RUNTIME, "soon"),
            (EXIT_CODE, "256"),
            (EXIT_CODE, "-1"),
            (LAUNCH, "no"),
            (IGNORE_STOP, "yes"),
            (TEMPERATURE, "hot"),
            (TEMPERATURE, "900"),
        ] {
            let said = read(&[(key, value)]).unwrap_err().to_string();
            assert!(said.contains(key) && said.contains(&format!("`{value}`")), "{said}");
        }
    }
}

//! The annotations by which a job controls its simulation, such as `muster.sim/runtime`.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use muster_core::time::{self, NotADuration};

const RUNTIME: &str = "muster.sim/runtime";
const EXIT_CODE: &str = "muster.sim/exit-code";
const LAUNCH: &str = "muster.sim/launch";
const IGNORE_STOP: &str = "muster.sim/ignore-stop";
const TEMPERATURE: &str = "muster.sim/temperature";

/// The runtime without an annotation: long enough to observe, short enough to wait for.
const RUNTIME_MS_DEFAULT: i64 = 20_000;
/// The exit codes that a process can return.
const EXIT_CODES: RangeInclusive<i32> = 0..=255;
/// In °C. Wider than any device survives, narrow enough to catch a typing error.
const TEMPERATURES_C: RangeInclusive<i32> = 0..=150;

/// The simulated behaviour of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SimulationAnnotations {
    pub runtime_ms: i64,
    pub exit_code: i32,
    pub refuse_launch: bool,
    pub ignore_stop: bool,
    pub temperature_c: Option<i32>,
}

/// An annotation that cannot be parsed. The attempt does not start: simulating something else would mislead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum InvalidAnnotation {
    #[error("annotation `{RUNTIME}`: {0}")]
    Runtime(#[from] NotADuration),
    #[error("annotation `{key}` is `{value}`; it must be a whole number from {min} to {max}")]
    Number { key: &'static str, value: String, min: i32, max: i32 },
    #[error("annotation `{key}` is `{value}`; it must be {allowed}")]
    Choice { key: &'static str, value: String, allowed: &'static str },
}

impl SimulationAnnotations {
    pub fn parse(annotations: &BTreeMap<String, String>) -> Result<SimulationAnnotations, InvalidAnnotation> {
        let get = |key: &str| annotations.get(key).map(String::as_str);
        Ok(SimulationAnnotations {
            runtime_ms: get(RUNTIME).map_or(Ok(RUNTIME_MS_DEFAULT), time::parse_duration_ms)?,
            exit_code: parse_number(EXIT_CODE, get(EXIT_CODE), &EXIT_CODES)?.unwrap_or(0),
            refuse_launch: parse_choice(LAUNCH, get(LAUNCH), "accept", "refuse", "`accept` or `refuse`")?,
            ignore_stop: parse_choice(IGNORE_STOP, get(IGNORE_STOP), "false", "true", "`true` or `false`")?,
            temperature_c: parse_number(TEMPERATURE, get(TEMPERATURE), &TEMPERATURES_C)?,
        })
    }
}

fn parse_number(
    key: &'static str,
    text: Option<&str>,
    range: &RangeInclusive<i32>,
) -> Result<Option<i32>, InvalidAnnotation> {
    let Some(text) = text else { return Ok(None) };
    match text.trim().parse() {
        Ok(number) if range.contains(&number) => Ok(Some(number)),
        _ => Err(InvalidAnnotation::Number { key, value: text.to_string(), min: *range.start(), max: *range.end() }),
    }
}

/// True if the annotation is `yes`; false if it is `no`, the default.
fn parse_choice(
    key: &'static str,
    text: Option<&str>,
    no: &str,
    yes: &str,
    allowed: &'static str,
) -> Result<bool, InvalidAnnotation> {
    match text {
        None => Ok(false),
        Some(text) if text == no => Ok(false),
        Some(text) if text == yes => Ok(true),
        Some(text) => Err(InvalidAnnotation::Choice { key, value: text.to_string(), allowed }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<SimulationAnnotations, InvalidAnnotation> {
        SimulationAnnotations::parse(&pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect())
    }

    #[test]
    fn without_annotations_an_attempt_runs_twenty_seconds_and_exits_zero() {
        let annotations = read(&[("team", "vision")]).unwrap();
        assert_eq!((annotations.runtime_ms, annotations.exit_code, annotations.temperature_c), (20_000, 0, None));
        assert!(!annotations.refuse_launch && !annotations.ignore_stop);
    }

    #[test]
    fn annotations_are_parsed() {
        let annotations = read(&[
            (RUNTIME, "1h30m"),
            (EXIT_CODE, "3"),
            (LAUNCH, "refuse"),
            (IGNORE_STOP, "true"),
            (TEMPERATURE, "90"),
        ]);
        let expected = SimulationAnnotations {
            runtime_ms: 5_400_000,
            exit_code: 3,
            refuse_launch: true,
            ignore_stop: true,
            temperature_c: Some(90),
        };
        assert_eq!(annotations, Ok(expected));
    }

    #[test]
    fn an_invalid_annotation_is_named_in_the_error() {
        for (key, value) in [
            (RUNTIME, "soon"),
            (EXIT_CODE, "256"),
            (EXIT_CODE, "-1"),
            (LAUNCH, "no"),
            (IGNORE_STOP, "yes"),
            (TEMPERATURE, "hot"),
            (TEMPERATURE, "900"),
        ] {
            let message = read(&[(key, value)]).unwrap_err().to_string();
            assert!(message.contains(key) && message.contains(&format!("`{value}`")), "{message}");
        }
    }
}

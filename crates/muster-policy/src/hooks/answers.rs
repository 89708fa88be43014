//! Parses the answers of hooks strictly: an answer of a wrong type is an error that names the expected types.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::ids::JobId;
use muster_core::objects::policy::{Admission, GpuLimit, Hook, RETRY_WAIT_MS_MAX, Retry};
use muster_core::objects::settings;

use crate::builtins::REFUSAL_FIELD;
use crate::error::PolicyError;
use crate::policy_value::PolicyValue;

const PRIORITY_MAX: i64 = settings::PRIORITY_MAX as i64;
/// A megawatt: more than any device draws.
const WATTS_MAX: f64 = 1e6;
/// More GPUs than any cluster has. Its thousandths are exact as a float.
const GPUS_MAX: f64 = 1e9;
/// The answers that `limit` may return, for messages.
const LIMIT_ANSWER_FORMAT: &str = "a number of GPUs from 0, None, or {\"gpus\": number, \"pools\": {name: number}}";
/// The most characters of a reason. It is stored with every answer and shown on one line.
const REASON_CHARS_MAX: usize = 300;

pub fn admission(file: &str, answer: PolicyValue) -> Result<Admission, PolicyError> {
    match answer {
        PolicyValue::None | PolicyValue::Bool(true) => Ok(Admission::Yes),
        PolicyValue::Bool(false) => Ok(Admission::Wait { why: format!("`{file}` does not admit the job now") }),
        PolicyValue::Text(why) => Ok(Admission::Wait { why: single_line(&why) }),
        other => match refusal_reason(&other) {
            Some(why) => Ok(Admission::Refuse { why: single_line(why) }),
            None => Err(wrong_answer_type(file, Hook::Admit, &other, "True, False, None, a string or refuse(string)")),
        },
    }
}

pub fn priority(file: &str, answer: PolicyValue) -> Result<Option<u32>, PolicyError> {
    match answer {
        PolicyValue::None => Ok(None),
        PolicyValue::Int(number @ 0..=PRIORITY_MAX) => Ok(u32::try_from(number).ok()),
        other => Err(wrong_answer_type(file, Hook::Priority, &other, "a whole number from 0 to 10000, or None")),
    }
}

/// The negated answer of `score`: a higher score lowers the placement cost.
pub fn cost_milli(file: &str, answer: PolicyValue) -> Result<i64, PolicyError> {
    if answer == PolicyValue::None {
        return Ok(0);
    }
    let number = number(&answer).filter(|number| !number.is_nan());
    let milli = number.map(|number| -(number * 1_000.0).round() as i64);
    milli.ok_or_else(|| wrong_answer_type(file, Hook::Score, &answer, "a number or None"))
}

/// The candidates that `victims` allows; `None` if it allows all of them.
pub fn victims(file: &str, answer: PolicyValue, all: &BTreeSet<JobId>) -> Result<Option<BTreeSet<JobId>>, PolicyError> {
    let items = match &answer {
        PolicyValue::None => return Ok(None),
        PolicyValue::List(items) | PolicyValue::Tuple(items) => items,
        other => {
            return Err(wrong_answer_type(file, Hook::Victims, other, "a list of candidates or of their ids, or None"));
        }
    };
    let to_id = |item: &PolicyValue| {
        let id = candidate_id(item).and_then(|id| id.parse::<JobId>().ok()).filter(|id| all.contains(id));
        id.ok_or_else(|| {
            let message = format!("`victims` returned {}, which is not one of the candidates", shortened(item));
            PolicyError::Invalid { file: file.to_string(), message }
        })
    };
    items.iter().map(to_id).collect::<Result<_, _>>().map(Some)
}

pub fn retry(file: &str, answer: PolicyValue) -> Result<Retry, PolicyError> {
    match &answer {
        PolicyValue::None | PolicyValue::Bool(true) => return Ok(Retry::ByRestartRule),
        PolicyValue::Bool(false) => return Ok(Retry::No { why: format!("`{file}` forbids a retry") }),
        PolicyValue::Text(why) => return Ok(Retry::No { why: single_line(why) }),
        _ => {}
    }
    let wait = number(&answer).map(|seconds| (seconds * 1_000.0).round());
    let wait = wait.filter(|ms| (0.0..=RETRY_WAIT_MS_MAX as f64).contains(ms));
    let wait = wait.map(|ms| Retry::After { wait_ms: ms as i64 });
    let expected = "True, False, None, a string or seconds from 0 to 86400";
    wait.ok_or_else(|| wrong_answer_type(file, Hook::Retry, &answer, expected))
}

pub fn milliwatts(file: &str, answer: PolicyValue) -> Result<Option<u64>, PolicyError> {
    if answer == PolicyValue::None {
        return Ok(None);
    }
    let watts = number(&answer).filter(|watts| *watts > 0.0 && *watts <= WATTS_MAX);
    // A positive limit stays positive after rounding.
    let milliwatts = watts.map(|watts| ((watts * 1_000.0).round() as u64).max(1));
    milliwatts.map(Some).ok_or_else(|| wrong_answer_type(file, Hook::Power, &answer, "watts above 0, or None"))
}

pub fn limit(file: &str, answer: PolicyValue) -> Result<GpuLimit, PolicyError> {
    if answer == PolicyValue::None {
        return Ok(GpuLimit::default());
    }
    let limit = match &answer {
        PolicyValue::Dict(entries) => limit_from_dict(entries),
        other => gpu_milli(other).map(|milli| GpuLimit { gpu_milli: Some(milli), ..GpuLimit::default() }),
    };
    limit.ok_or_else(|| wrong_answer_type(file, Hook::Limit, &answer, LIMIT_ANSWER_FORMAT))
}

/// The limit on all GPUs (`gpus`) and on the GPUs of pools (`pools`). None means no limit.
fn limit_from_dict(entries: &[(PolicyValue, PolicyValue)]) -> Option<GpuLimit> {
    let mut limit = GpuLimit::default();
    for (key, value) in entries {
        match (key, value) {
            (_, PolicyValue::None) if [PolicyValue::text("gpus"), PolicyValue::text("pools")].contains(key) => {}
            (PolicyValue::Text(name), value) if name == "gpus" => limit.gpu_milli = Some(gpu_milli(value)?),
            (PolicyValue::Text(name), PolicyValue::Dict(pools)) if name == "pools" => {
                let of_pools = pools.iter().filter(|(_, value)| *value != PolicyValue::None).map(pool_limit);
                limit.pools = of_pools.collect::<Option<BTreeMap<_, _>>>()?;
            }
            _ => return None,
        }
    }
    Some(limit)
}

fn pool_limit((pool, value): &(PolicyValue, PolicyValue)) -> Option<(String, u64)> {
    match pool {
        PolicyValue::Text(pool) => Some((pool.clone(), gpu_milli(value)?)),
        _ => None,
    }
}

/// GPUs in thousandths, rounded down: 2.9999 GPUs are not 3.
fn gpu_milli(value: &PolicyValue) -> Option<u64> {
    let gpus = number(value).filter(|gpus| (0.0..=GPUS_MAX).contains(gpus))?;
    let milli = gpus * 1_000.0;
    // 1.1 * 1000 is 1100.0000000000002 and 4.1 * 1000 is 4099.999999999999: a product within the rounding error of a
    // whole number is that number.
    let nearest = milli.round();
    let is_whole = (milli - nearest).abs() < 1e-9 * milli.max(1.0);
    Some(if is_whole { nearest as u64 } else { milli as u64 })
}

/// The reason in the value that `refuse` returns.
fn refusal_reason(answer: &PolicyValue) -> Option<&str> {
    match answer {
        PolicyValue::Dict(entries) if entries.len() == 1 => text_entry(entries, REFUSAL_FIELD),
        _ => None,
    }
}

/// The id of a candidate, which is given as a view or as its id.
fn candidate_id(item: &PolicyValue) -> Option<&str> {
    match item {
        PolicyValue::Text(id) => Some(id),
        PolicyValue::Dict(entries) => text_entry(entries, "id"),
        _ => None,
    }
}

fn text_entry<'a>(entries: &'a [(PolicyValue, PolicyValue)], name: &str) -> Option<&'a str> {
    let (_, value) = entries.iter().find(|(key, _)| matches!(key, PolicyValue::Text(key) if key == name))?;
    match value {
        PolicyValue::Text(text) => Some(text),
        _ => None,
    }
}

fn number(answer: &PolicyValue) -> Option<f64> {
    match answer {
        PolicyValue::Int(number) => Some(*number as f64),
        PolicyValue::Float(number) => Some(*number),
        _ => None,
    }
}

fn wrong_answer_type(file: &str, hook: Hook, answer: &PolicyValue, expected: &str) -> PolicyError {
    let (function, value, kind) = (hook.as_str(), shortened(answer), answer.type_name());
    let message = format!("`{function}` returned {value} ({kind}); it must return {expected}");
    PolicyError::Invalid { file: file.to_string(), message }
}

/// A value for a message.
fn shortened(value: &PolicyValue) -> String {
    truncate_chars(&value.to_string(), 100)
}

/// A reason on one line, at most [`REASON_CHARS_MAX`] long.
fn single_line(reason: &str) -> String {
    let line: String = reason.chars().map(|char| if char.is_control() { ' ' } else { char }).collect();
    truncate_chars(line.trim(), REASON_CHARS_MAX)
}

fn truncate_chars(text: &str, chars_max: usize) -> String {
    match text.chars().count() > chars_max {
        true => text.chars().take(chars_max - 1).chain(['…']).collect(),
        false => text.to_string(),
    }
}

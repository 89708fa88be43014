//! What functions of policies answer, read strictly: a kind that was not meant is an error that says what is.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::ids::JobId;
use muster_core::policy::{Admission, GpuLimit, Hook, Retry, WAIT_MS_MAX};
use muster_core::settings;

use crate::error::PolicyError;
use crate::plain::Plain;

/// As job priorities are everywhere.
const PRIORITY_MAX: i64 = settings::PRIORITY_MAX as i64;
/// No device draws a megawatt.
const WATTS_MAX: f64 = 1e6;
/// No cluster has more GPUs; thousandths of it are exact as a float.
const GPUS_MAX: f64 = 1e9;
/// What `limit` may answer.
const LIMITS: &str = "a number of GPUs from 0, None, or {\"gpus\": number, \"pools\": {name: number}}";
/// Letters of a reason: it is kept with every answer, and shown on one line.
const WHY_MAX: usize = 300;
/// The field of what `refuse` makes.
pub const REFUSE: &str = "refuse";

/// Of `admit`.
pub fn admission(file: &str, answer: Plain) -> Result<Admission, PolicyError> {
    match answer {
        Plain::None | Plain::Bool(true) => Ok(Admission::Yes),
        Plain::Bool(false) => Ok(Admission::Wait { why: format!("`{file}` does not let it start now") }),
        Plain::Text(why) => Ok(Admission::Wait { why: tidy(&why) }),
        other => match refused(&other) {
            Some(why) => Ok(Admission::Refuse { why: tidy(why) }),
            None => Err(wrong(file, Hook::Admit, &other, "True, False, None, a text or refuse(text)")),
        },
    }
}

/// Of `priority`.
pub fn priority(file: &str, answer: Plain) -> Result<Option<u32>, PolicyError> {
    match answer {
        Plain::None => Ok(None),
        Plain::Int(number @ 0..=PRIORITY_MAX) => Ok(u32::try_from(number).ok()),
        other => Err(wrong(file, Hook::Priority, &other, "a whole number from 0 to 10000, or None")),
    }
}

/// Of `score`: what it welcomes costs less.
pub fn cost_milli(file: &str, answer: Plain) -> Result<i64, PolicyError> {
    if answer == Plain::None {
        return Ok(0);
    }
    let number = number(&answer).filter(|number| !number.is_nan());
    let milli = number.map(|number| -(number * 1_000.0).round() as i64);
    milli.ok_or_else(|| wrong(file, Hook::Score, &answer, "a number or None"))
}

/// Of `victims`: nothing where it has nothing to say.
pub fn victims(
    file: &str,
    answer: Plain,
    all: &BTreeSet<JobId>,
) -> Result<Option<BTreeSet<JobId>>, PolicyError> {
    let items = match &answer {
        Plain::None => return Ok(None),
        Plain::List(items) | Plain::Tuple(items) => items,
        other => {
            return Err(wrong(file, Hook::Victims, other, "a list of candidates or of their ids, or None"));
        }
    };
    let of_item = |item: &Plain| {
        let id = id_of(item).and_then(|id| id.parse::<JobId>().ok()).filter(|id| all.contains(id));
        id.ok_or_else(|| {
            let what = format!("`victims` names {}, which is none of the candidates", short(item));
            PolicyError::Somewhere { file: file.to_string(), what }
        })
    };
    items.iter().map(of_item).collect::<Result<_, _>>().map(Some)
}

/// Of `retry`.
pub fn retry(file: &str, answer: Plain) -> Result<Retry, PolicyError> {
    match &answer {
        Plain::None | Plain::Bool(true) => return Ok(Retry::AsAsked),
        Plain::Bool(false) => return Ok(Retry::No { why: format!("`{file}` does not start it again") }),
        Plain::Text(why) => return Ok(Retry::No { why: tidy(why) }),
        _ => {}
    }
    let wait = number(&answer).map(|seconds| (seconds * 1_000.0).round());
    let wait = wait.filter(|ms| (0.0..=WAIT_MS_MAX as f64).contains(ms));
    let wait = wait.map(|ms| Retry::After { wait_ms: ms as i64 });
    let wanted = "True, False, None, a text or seconds from 0 to 86400";
    wait.ok_or_else(|| wrong(file, Hook::Retry, &answer, wanted))
}

/// Of `power`.
pub fn milliwatts(file: &str, answer: Plain) -> Result<Option<u64>, PolicyError> {
    if answer == Plain::None {
        return Ok(None);
    }
    let watts = number(&answer).filter(|watts| *watts > 0.0 && *watts <= WATTS_MAX);
    // Next to nothing is not nothing.
    let milliwatts = watts.map(|watts| ((watts * 1_000.0).round() as u64).max(1));
    milliwatts.map(Some).ok_or_else(|| wrong(file, Hook::Power, &answer, "watts above 0, or None"))
}

/// Of `limit`.
pub fn limit(file: &str, answer: Plain) -> Result<GpuLimit, PolicyError> {
    if answer == Plain::None {
        return Ok(GpuLimit::default());
    }
    let read = match &answer {
        Plain::Dict(entries) => limits(entries),
        other => gpu_milli(other).map(|milli| GpuLimit { gpu_milli: Some(milli), ..GpuLimit::default() }),
    };
    read.ok_or_else(|| wrong(file, Hook::Limit, &answer, LIMITS))
}

/// Limits by name: of all GPUs, and of pools. A limit of None is none.
fn limits(entries: &[(Plain, Plain)]) -> Option<GpuLimit> {
    let mut limit = GpuLimit::default();
    for (key, value) in entries {
        match (key, value) {
            (_, Plain::None) if [Plain::text("gpus"), Plain::text("pools")].contains(key) => {}
            (Plain::Text(name), value) if name == "gpus" => limit.gpu_milli = Some(gpu_milli(value)?),
            (Plain::Text(name), Plain::Dict(pools)) if name == "pools" => {
                let of_pools = pools.iter().filter(|(_, value)| *value != Plain::None).map(pool_limit);
                limit.pools = of_pools.collect::<Option<BTreeMap<_, _>>>()?;
            }
            _ => return None,
        }
    }
    Some(limit)
}

fn pool_limit((pool, value): &(Plain, Plain)) -> Option<(String, u64)> {
    match pool {
        Plain::Text(pool) => Some((pool.clone(), gpu_milli(value)?)),
        _ => None,
    }
}

/// GPUs in thousandths, rounded down: who says 2.9999 GPUs does not mean 3.
fn gpu_milli(value: &Plain) -> Option<u64> {
    let gpus = number(value).filter(|gpus| (0.0..=GPUS_MAX).contains(gpus))?;
    let milli = gpus * 1_000.0;
    // 1.1 * 1000 is 1100.0000000000002 and 4.1 * 1000 is 4099.999999999999: what is next to a whole is meant as that.
    let nearest = milli.round();
    let is_meant = (milli - nearest).abs() < 1e-9 * milli.max(1.0);
    Some(if is_meant { nearest as u64 } else { milli as u64 })
}

/// The text of what `refuse` made.
fn refused(answer: &Plain) -> Option<&str> {
    match answer {
        Plain::Dict(entries) if entries.len() == 1 => text_at(entries, REFUSE),
        _ => None,
    }
}

/// A candidate by itself or by its id.
fn id_of(item: &Plain) -> Option<&str> {
    match item {
        Plain::Text(id) => Some(id),
        Plain::Dict(entries) => text_at(entries, "id"),
        _ => None,
    }
}

fn text_at<'a>(entries: &'a [(Plain, Plain)], name: &str) -> Option<&'a str> {
    let (_, value) = entries.iter().find(|(key, _)| matches!(key, Plain::Text(key) if key == name))?;
    match value {
        Plain::Text(text) => Some(text),
        _ => None,
    }
}

fn number(answer: &Plain) -> Option<f64> {
    match answer {
        Plain::Int(number) => Some(*number as f64),
        Plain::Float(number) => Some(*number),
        _ => None,
    }
}

fn wrong(file: &str, hook: Hook, answer: &Plain, wanted: &str) -> PolicyError {
    let (function, said, kind) = (hook.word(), short(answer), answer.kind());
    let what = format!("`{function}` answers {said} ({kind}); it must be {wanted}");
    PolicyError::Somewhere { file: file.to_string(), what }
}

/// A value in a message.
fn short(value: &Plain) -> String {
    cut(&value.to_string(), 100)
}

/// One line that is not too long.
fn tidy(why: &str) -> String {
    let line: String = why.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    cut(line.trim(), WHY_MAX)
}

fn cut(text: &str, most: usize) -> String {
    match text.chars().count() > most {
        true => text.chars().take(most - 1).chain(['…']).collect(),
        false => text.to_string(),
    }
}

//! Source: the environment. Our own variables, and those that the seeds documented.

use super::nearest;
use super::problem::Place;
use super::value::Raw;
use super::{RawConfig, keys};

const OURS: &str = "MUSTER_";
const SEED: &str = "GPU_SCHEDULER_";

/// Short names of our own for what is set most often.
const SHORT: &[(&str, &str)] = &[("MUSTER_DATABASE_URL", "database.url"), ("MUSTER_LOG", "log.level")];

/// What other documents call keys that mean the same here.
const OTHER_NAMES: &[(&str, &str)] = &[
    ("OTEL_EXPORTER_OTLP_ENDPOINT", "telemetry.otlp_endpoint"),
    ("GPU_PLATFORM_SCHEDULER__ENABLE_PREEMPTION", "scheduler.enable_preemption"),
    ("GPU_PLATFORM_SCHEDULER__MAX_QUEUE_SIZE", "scheduler.max_queue_size"),
    ("GPU_PLATFORM_OBSERVABILITY__LOG_LEVEL", "log.level"),
    ("GPU_PLATFORM_OBSERVABILITY__LOG_FORMAT", "log.format"),
    ("GPU_PLATFORM_OBSERVABILITY__OTEL_ENDPOINT", "telemetry.otlp_endpoint"),
];

/// Variables with our prefix that are not configuration: they speak to the command line.
const NOT_OURS: &[&str] =
    &["CONFIG", "TOKEN", "TOKEN_FILE", "URL", "API_URL", "SERVER", "TENANT", "OUTPUT", "CA"];
/// Or to running jobs: single ones, and families by how they begin.
const FOR_TASKS: &[&str] = &[
    "USER",
    "ATTEMPT",
    "ATTEMPT_DIR",
    "RESTART_COUNT",
    "CHECKPOINT_DIR",
    "GPUS",
    "RANK",
    "LOCAL_RANK",
    "GROUP",
    "GROUP_RANK",
    "NODES",
    "NODE_COUNT",
    "NODE_RANK",
    "MASTER",
    "MASTER_ADDRESS",
];
const FOR_JOBS: &[&str] = &["JOB_", "TASK_", "GANG_", "ARRAY_", "SIM_", "TEST_"];

/// Read the variables that are meant for us. An empty one says nothing, as in most container files.
pub(super) fn read(variables: impl IntoIterator<Item = (String, String)>) -> RawConfig {
    let mut raw = RawConfig::default();
    let mut said: Vec<(String, String)> = variables
        .into_iter()
        .filter(|(name, value)| !value.is_empty() && !is_service_link(name, value))
        .collect();
    said.sort(); // So that warnings come in the same order each time.
    for (name, value) in said {
        take(&mut raw, name, value);
    }
    raw
}

fn take(raw: &mut RawConfig, name: String, value: String) {
    let text = Raw::One(value);
    if let Some(key) = alias(OTHER_NAMES, &name) {
        raw.say(key, text, Place::SeedVariable(name));
    } else if let Some(rest) = name.strip_prefix(SEED) {
        match seed_key(rest) {
            Meant::Key(key) => raw.say(key, text, Place::SeedVariable(name)),
            Meant::Inert(whole, why) => raw.warn_inert(whole, why),
            Meant::Nothing => warn_unknown(raw, &name, seed_name),
        }
    } else if let Some(rest) = name.strip_prefix(OURS) {
        match alias(SHORT, &name).map_or_else(|| our_key(rest), Meant::Key) {
            Meant::Key(key) => raw.say(key, text, Place::Variable(name)),
            Meant::Inert(whole, why) => raw.warn_inert(whole, why),
            Meant::Nothing if is_for_others(rest) => {}
            Meant::Nothing => warn_unknown(raw, &name, our_name),
        }
    }
}

enum Meant {
    Key(&'static str),
    Inert(&'static str, &'static str),
    Nothing,
}

fn alias(names: &[(&str, &'static str)], name: &str) -> Option<&'static str> {
    names.iter().find(|(other, _)| *other == name).map(|(_, key)| *key)
}

/// `API__HTTP_PORT` is `api.http_port`.
fn our_key(rest: &str) -> Meant {
    let dotted = rest.to_ascii_lowercase().replace("__", ".");
    match (keys::find(&dotted), keys::inert(&dotted)) {
        (Some(key), _) => Meant::Key(key.name),
        (None, Some((whole, why))) => Meant::Inert(whole, why),
        (None, None) => Meant::Nothing,
    }
}

/// `API_HTTP_PORT` is `api.http_port`: the seed writes dots as underscores, so we look among the known names.
fn seed_key(rest: &str) -> Meant {
    let key = keys::names().find(|key| key.replace('.', "_").eq_ignore_ascii_case(rest));
    let first_dot = rest.to_ascii_lowercase().replacen('_', ".", 1);
    match (key, keys::inert(&first_dot)) {
        (Some(key), _) => Meant::Key(key),
        (None, Some((whole, why))) => Meant::Inert(whole, why),
        (None, None) => Meant::Nothing,
    }
}

fn our_name(key: &str) -> String {
    format!("{OURS}{}", key.replace('.', "__").to_ascii_uppercase())
}

fn seed_name(key: &str) -> String {
    format!("{SEED}{}", key.replace('.', "_").to_ascii_uppercase())
}

fn warn_unknown(raw: &mut RawConfig, name: &str, spelling: impl Fn(&str) -> String) {
    let known: Vec<String> = keys::names().map(spelling).collect();
    let hint = match nearest(name, known.iter().map(String::as_str)) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => "`muster config show` lists the keys".to_string(),
    };
    raw.warnings.push(format!("the variable `{name}` is not known and has no effect; {hint}"));
}

fn is_for_others(rest: &str) -> bool {
    NOT_OURS.contains(&rest)
        || FOR_TASKS.contains(&rest)
        || FOR_JOBS.iter().any(|prefix| rest.starts_with(prefix))
}

/// Kubernetes gives every pod variables named after services, such as `MUSTER_PORT=tcp://10.0.0.1:8080`. They
/// are nobody's wish.
fn is_service_link(name: &str, value: &str) -> bool {
    let is_link = value.starts_with("tcp://") || value.starts_with("udp://");
    (is_link && name.contains("_PORT"))
        || name.ends_with("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || ["_TCP_ADDR", "_TCP_PORT", "_TCP_PROTO"].iter().any(|end| name.ends_with(end))
}

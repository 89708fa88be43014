//! Source: environment variables, `MUSTER_*` and compatibility names.

use super::nearest;
use super::problem::ValueSource;
use super::value::RawValue;
use super::{RawConfig, keys};

const MUSTER_PREFIX: &str = "MUSTER_";
const COMPAT_PREFIX: &str = "GPU_SCHEDULER_";

/// Short names for the keys that are set most often.
const SHORT_NAMES: &[(&str, &str)] = &[("MUSTER_DATABASE_URL", "database.url"), ("MUSTER_LOG", "log.level")];

/// Compatibility names without the prefix [`COMPAT_PREFIX`].
const COMPAT_NAMES: &[(&str, &str)] = &[
    ("OTEL_EXPORTER_OTLP_ENDPOINT", "telemetry.otlp_endpoint"),
    ("GPU_PLATFORM_SCHEDULER__ENABLE_PREEMPTION", "scheduler.enable_preemption"),
    ("GPU_PLATFORM_SCHEDULER__MAX_QUEUE_SIZE", "scheduler.max_queue_size"),
    ("GPU_PLATFORM_OBSERVABILITY__LOG_LEVEL", "log.level"),
    ("GPU_PLATFORM_OBSERVABILITY__LOG_FORMAT", "log.format"),
    ("GPU_PLATFORM_OBSERVABILITY__OTEL_ENDPOINT", "telemetry.otlp_endpoint"),
];

/// Variables with the prefix `MUSTER_` that the command line reads.
const CLI_VARIABLES: &[&str] = &["CONFIG", "TOKEN", "TOKEN_FILE", "URL", "API_URL", "SERVER", "TENANT", "OUTPUT", "CA"];
/// Variables with the prefix `MUSTER_` that agents set for tasks.
const TASK_VARIABLES: &[&str] = &[
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
/// The same, by the beginning of their names.
const TASK_VARIABLE_PREFIXES: &[&str] = &["JOB_", "TASK_", "GANG_", "ARRAY_", "SIM_", "TEST_"];

/// Read the variables that are configuration. An empty variable sets nothing, as is usual in container files.
pub(super) fn read(variables: impl IntoIterator<Item = (String, String)>) -> RawConfig {
    let mut raw = RawConfig::default();
    let mut set: Vec<(String, String)> =
        variables.into_iter().filter(|(name, value)| !value.is_empty() && !is_service_link(name, value)).collect();
    set.sort(); // For a stable order of warnings.
    for (name, value) in set {
        read_variable(&mut raw, name, value);
    }
    raw
}

fn read_variable(raw: &mut RawConfig, name: String, value: String) {
    let text = RawValue::One(value);
    if let Some(key) = find_alias(COMPAT_NAMES, &name) {
        raw.set(key, text, ValueSource::CompatVariable(name));
    } else if let Some(rest) = name.strip_prefix(COMPAT_PREFIX) {
        match compat_key(rest) {
            KeyMatch::Key(key) => raw.set(key, text, ValueSource::CompatVariable(name)),
            KeyMatch::Inert(whole, why) => raw.warn_inert(whole, why),
            KeyMatch::Unknown => warn_unknown(raw, &name, compat_variable),
        }
    } else if let Some(rest) = name.strip_prefix(MUSTER_PREFIX) {
        match find_alias(SHORT_NAMES, &name).map_or_else(|| muster_key(rest), KeyMatch::Key) {
            KeyMatch::Key(key) => raw.set(key, text, ValueSource::Variable(name)),
            KeyMatch::Inert(whole, why) => raw.warn_inert(whole, why),
            KeyMatch::Unknown if is_not_configuration(rest) => {}
            KeyMatch::Unknown => warn_unknown(raw, &name, muster_variable),
        }
    }
}

enum KeyMatch {
    Key(&'static str),
    Inert(&'static str, &'static str),
    Unknown,
}

fn find_alias(names: &[(&str, &'static str)], name: &str) -> Option<&'static str> {
    names.iter().find(|(other, _)| *other == name).map(|(_, key)| *key)
}

/// `API__HTTP_PORT` is `api.http_port`.
fn muster_key(rest: &str) -> KeyMatch {
    let dotted = rest.to_ascii_lowercase().replace("__", ".");
    match (keys::spelling(&dotted), keys::find_inert(&dotted)) {
        (Some(key), _) => KeyMatch::Key(key),
        (None, Some((whole, why))) => KeyMatch::Inert(whole, why),
        (None, None) => KeyMatch::Unknown,
    }
}

/// `API_HTTP_PORT` is `api.http_port`: an underscore stands for a dot or for itself, so the known names decide.
fn compat_key(rest: &str) -> KeyMatch {
    let mut names = keys::names().chain(keys::ALIASES.iter().map(|(alias, _)| *alias));
    let key = names.find(|key| key.replace('.', "_").eq_ignore_ascii_case(rest));
    let first_dot = rest.to_ascii_lowercase().replacen('_', ".", 1);
    match (key, keys::find_inert(&first_dot)) {
        (Some(key), _) => KeyMatch::Key(key),
        (None, Some((whole, why))) => KeyMatch::Inert(whole, why),
        (None, None) => KeyMatch::Unknown,
    }
}

fn muster_variable(key: &str) -> String {
    format!("{MUSTER_PREFIX}{}", key.replace('.', "__").to_ascii_uppercase())
}

fn compat_variable(key: &str) -> String {
    format!("{COMPAT_PREFIX}{}", key.replace('.', "_").to_ascii_uppercase())
}

fn warn_unknown(raw: &mut RawConfig, name: &str, spelling: impl Fn(&str) -> String) {
    let known: Vec<String> = keys::names().map(spelling).collect();
    let hint = match nearest(name, known.iter().map(String::as_str)) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => "`muster config show` lists the keys".to_string(),
    };
    raw.warnings.push(format!("the variable `{name}` is not known and has no effect; {hint}"));
}

fn is_not_configuration(rest: &str) -> bool {
    CLI_VARIABLES.contains(&rest)
        || TASK_VARIABLES.contains(&rest)
        || TASK_VARIABLE_PREFIXES.iter().any(|prefix| rest.starts_with(prefix))
}

/// Kubernetes sets variables for every service in each pod, such as `MUSTER_PORT=tcp://10.0.0.1:8080`. They are not
/// configuration.
fn is_service_link(name: &str, value: &str) -> bool {
    let is_link = value.starts_with("tcp://") || value.starts_with("udp://");
    (is_link && name.contains("_PORT"))
        || name.ends_with("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || ["_TCP_ADDR", "_TCP_PORT", "_TCP_PROTO"].iter().any(|end| name.ends_with(end))
}

//! Kinds of configuration values, and their parsing.

use std::net::SocketAddr;

use jiff::SignedDuration;
use muster_core::objects::settings::PortRange;
use muster_core::time;

/// The unparsed value of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RawValue {
    One(String),
    Many(Vec<String>),
}

impl RawValue {
    /// As people would write it.
    pub fn text(&self) -> String {
        match self {
            RawValue::One(text) => text.clone(),
            RawValue::Many(texts) => texts.join(", "),
        }
    }
}

/// The kind of value of a key.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum ValueKind {
    /// Any text; empty means not set.
    Text,
    /// A text that is never printed.
    Secret,
    /// A URL that may hold a password.
    Url,
    /// `true` or `false`.
    Bool,
    /// A whole number.
    Integer { min: i64, max: i64 },
    /// A temperature; fractions are allowed.
    Celsius { min: f64, max: f64 },
    /// With its unit.
    Duration,
    /// One of a few words.
    Choice(&'static [&'static str]),
    /// An IP address with a port.
    Address,
    /// Two TCP ports, the first and the last of a range.
    PortRange,
    /// Several texts.
    List,
}

/// A parsed value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Unset,
    Text(String),
    Bool(bool),
    Integer(i64),
    Number(f64),
    Address(SocketAddr),
    List(Vec<String>),
}

impl ValueKind {
    /// Parse a value; `None` if it is not [`ValueKind::expected`].
    pub fn parse(&self, raw: &RawValue) -> Option<Value> {
        match (self, raw) {
            (ValueKind::List, RawValue::One(text)) => Some(Value::List(split_list(text))),
            (ValueKind::List, RawValue::Many(texts)) => Some(Value::List(texts.clone())),
            (_, RawValue::Many(_)) => None,
            (_, RawValue::One(text)) => self.parse_one(text.trim()),
        }
    }

    fn parse_one(&self, text: &str) -> Option<Value> {
        match self {
            ValueKind::Text | ValueKind::Secret | ValueKind::Url if text.is_empty() => Some(Value::Unset),
            ValueKind::Text | ValueKind::Secret | ValueKind::Url => Some(Value::Text(text.to_string())),
            ValueKind::Bool => parse_bool(text).map(Value::Bool),
            ValueKind::Integer { min, max } => {
                text.parse().ok().filter(|number| (min..=max).contains(&number)).map(Value::Integer)
            }
            ValueKind::Celsius { min, max } => {
                text.parse().ok().filter(|number| (min..=max).contains(&number)).map(Value::Number)
            }
            ValueKind::Duration => parse_duration_ms(text).map(Value::Integer),
            ValueKind::Choice(words) => {
                let word = text.to_ascii_lowercase();
                words.contains(&word.as_str()).then_some(Value::Text(word))
            }
            ValueKind::Address => parse_address(text).map(Value::Address),
            ValueKind::PortRange => parse_port_range(text).map(|_| Value::Text(text.to_string())),
            ValueKind::List => Some(Value::List(split_list(text))),
        }
    }

    /// Description of valid values: the end of the sentence "it must be …".
    pub fn expected(&self) -> String {
        match self {
            ValueKind::Text | ValueKind::Secret => "a single text".to_string(),
            ValueKind::Url => "a single URL".to_string(),
            ValueKind::Bool => "`true` or `false`".to_string(),
            ValueKind::Integer { min, max: i64::MAX } => format!("a whole number from {min}"),
            ValueKind::Integer { min, max } => format!("a whole number from {min} to {max}"),
            ValueKind::Celsius { min, max } => format!("a number from {min} to {max} (°C)"),
            ValueKind::Duration => "a duration with its unit, such as `500ms`, `30s`, `5m` or `1h30m`".to_string(),
            ValueKind::Choice(words) => one_of(words),
            ValueKind::Address => "an address with a port, such as `127.0.0.1:8080` or `[::1]:8080`".to_string(),
            ValueKind::PortRange => "a range of ports from 1024, such as `29500-29999`".to_string(),
            ValueKind::List => "a list".to_string(),
        }
    }
}

/// `a`, `b` or `c`.
fn one_of(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

/// Also the spellings of YAML 1.1 and of shells.
fn parse_bool(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Some(true),
        "false" | "no" | "off" | "0" => Some(false),
        _ => None,
    }
}

/// A duration in milliseconds; never negative and never without a unit. The format of the API and the CLI, which knows
/// days, or else the formats of jiff, such as `1h30m` and `PT5M`.
fn parse_duration_ms(text: &str) -> Option<i64> {
    if let Ok(ms) = time::parse_duration_ms(text) {
        return Some(ms);
    }
    let span: SignedDuration = text.parse().ok()?;
    let ms = i64::try_from(span.as_millis()).ok()?;
    (ms >= 0).then_some(ms)
}

/// `localhost` is replaced by its address: to resolve names would make the start depend on a name server.
fn parse_address(text: &str) -> Option<SocketAddr> {
    let address = match text.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None if text.starts_with(':') => format!("0.0.0.0{text}"),
        None => text.to_string(),
    };
    address.parse().ok()
}

/// Ports below 1024 are for root alone, and jobs never run as root.
pub(super) fn parse_port_range(text: &str) -> Option<PortRange> {
    let (first, last) = text.split_once('-')?;
    let range = PortRange { first: first.trim().parse().ok()?, last: last.trim().parse().ok()? };
    (range.first >= 1_024 && !range.is_empty()).then_some(range)
}

fn split_list(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::to_string).collect()
}

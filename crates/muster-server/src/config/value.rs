//! What a key may hold, and how a text becomes a value.

use std::net::SocketAddr;

use jiff::SignedDuration;
use muster_agent::duration;

/// What a source said for a key, before anybody knows whether it makes sense.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Raw {
    One(String),
    Many(Vec<String>),
}

impl Raw {
    /// As people would write it.
    pub fn text(&self) -> String {
        match self {
            Raw::One(text) => text.clone(),
            Raw::Many(texts) => texts.join(", "),
        }
    }
}

/// What a key may hold.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Kind {
    /// Any text; empty means not set.
    Text,
    /// A text that is never shown.
    Secret,
    /// An address that may hold a password.
    Url,
    /// `true` or `false`.
    Flag,
    /// A whole number.
    Integer { min: i64, max: i64 },
    /// A temperature; fractions are allowed.
    Celsius { min: f64, max: f64 },
    /// A span of time with its unit.
    Duration,
    /// One of a few words.
    Word(&'static [&'static str]),
    /// Where to listen.
    Address,
    /// Several texts.
    List,
}

/// A value that fits its kind.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    /// Nothing is set.
    Unset,
    Text(String),
    Flag(bool),
    Integer(i64),
    Number(f64),
    Address(SocketAddr),
    List(Vec<String>),
}

impl Kind {
    /// Read what was said; `None` when it is not [`Kind::wanted`].
    pub fn read(&self, raw: &Raw) -> Option<Value> {
        match (self, raw) {
            (Kind::List, Raw::One(text)) => Some(Value::List(split(text))),
            (Kind::List, Raw::Many(texts)) => Some(Value::List(texts.clone())),
            (_, Raw::Many(_)) => None,
            (_, Raw::One(text)) => self.read_one(text.trim()),
        }
    }

    fn read_one(&self, text: &str) -> Option<Value> {
        match self {
            Kind::Text | Kind::Secret | Kind::Url if text.is_empty() => Some(Value::Unset),
            Kind::Text | Kind::Secret | Kind::Url => Some(Value::Text(text.to_string())),
            Kind::Flag => flag(text).map(Value::Flag),
            Kind::Integer { min, max } => {
                text.parse().ok().filter(|number| (min..=max).contains(&number)).map(Value::Integer)
            }
            Kind::Celsius { min, max } => {
                text.parse().ok().filter(|number| (min..=max).contains(&number)).map(Value::Number)
            }
            Kind::Duration => duration_ms(text).map(Value::Integer),
            Kind::Word(words) => {
                let said = text.to_ascii_lowercase();
                words.contains(&said.as_str()).then_some(Value::Text(said))
            }
            Kind::Address => address(text).map(Value::Address),
            Kind::List => Some(Value::List(split(text))),
        }
    }

    /// What would be right, to end the sentence "it must be …".
    pub fn wanted(&self) -> String {
        match self {
            Kind::Text | Kind::Secret => "a single text".to_string(),
            Kind::Url => "a single address".to_string(),
            Kind::Flag => "`true` or `false`".to_string(),
            Kind::Integer { min, max: i64::MAX } => format!("a whole number from {min}"),
            Kind::Integer { min, max } => format!("a whole number from {min} to {max}"),
            Kind::Celsius { min, max } => format!("a number from {min} to {max} (°C)"),
            Kind::Duration => "a duration with its unit, such as `500ms`, `30s`, `5m` or `1h30m`".to_string(),
            Kind::Word(words) => one_of(words),
            Kind::Address => "an address with a port, such as `127.0.0.1:8080` or `[::1]:8080`".to_string(),
            Kind::List => "a list".to_string(),
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

/// The words that YAML 1.1 and shells use, because the seed's loader took them too.
fn flag(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Some(true),
        "false" | "no" | "off" | "0" => Some(false),
        _ => None,
    }
}

/// Milliseconds; never negative, and never without a unit, so that nobody has to guess it.
/// As everywhere else, where days are understood too; else in any of the ways that the seed's users know.
fn duration_ms(text: &str) -> Option<i64> {
    if let Ok(ms) = duration::parse_ms(text) {
        return Some(ms);
    }
    let span: SignedDuration = text.parse().ok()?;
    let ms = i64::try_from(span.as_millis()).ok()?;
    (ms >= 0).then_some(ms)
}

/// `localhost` is spelt out: resolving names here would make the start depend on a name server.
fn address(text: &str) -> Option<SocketAddr> {
    let spelt = match text.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None if text.starts_with(':') => format!("0.0.0.0{text}"),
        None => text.to_string(),
    };
    spelt.parse().ok()
}

fn split(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::to_string).collect()
}

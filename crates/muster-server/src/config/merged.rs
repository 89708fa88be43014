//! The merged configuration: for each key the value of the source with the highest precedence, and that source.

use std::collections::BTreeMap;

use super::keys::{self, KEYS, Key};
use super::problem::{Problem, ProblemKind, ValueSource};
use super::value::{RawValue, Value, ValueKind};
use super::{RawConfig, ShownKey};

/// One value for every key of the table.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct MergedConfig {
    entries: BTreeMap<&'static str, MergedValue>,
}

#[derive(Debug, Clone, PartialEq)]
struct MergedValue {
    /// The name or alias under which the value was set.
    name: &'static str,
    value: Value,
    text: String,
    source: ValueSource,
}

/// Merge the sources over the defaults. Every value is checked, also one that another source overrides: otherwise a
/// mistake would show only on the day the other source goes away.
pub(super) fn merge(raw: &RawConfig, problems: &mut Vec<Problem>) -> MergedConfig {
    let mut entries: BTreeMap<_, _> = KEYS.iter().map(|key| (key.name, default_value(key))).collect();
    for entry in &raw.entries {
        let (Some(key), Some(name)) = (keys::find(entry.key), keys::spelling(entry.key)) else {
            panic!("`{}` is not in the table of keys", entry.key);
        };
        let Some(value) = key.kind.parse(&entry.raw) else {
            problems.push(invalid_value(key, &entry.raw, entry.source.clone()));
            continue;
        };
        let new = MergedValue { name, value, text: entry.raw.text(), source: entry.source.clone() };
        if let Some(conflict) = entries.get(key.name).and_then(|known| alias_conflict(known, &new)) {
            problems.push(conflict);
        }
        let overrides = entries.get(key.name).is_none_or(|known| new.source.precedence() >= known.source.precedence());
        if overrides {
            entries.insert(key.name, new);
        }
    }
    MergedConfig { entries }
}

/// A key and its alias in sources of one precedence must not have different values.
fn alias_conflict(known: &MergedValue, new: &MergedValue) -> Option<Problem> {
    let is_conflict =
        known.name != new.name && known.source.precedence() == new.source.precedence() && known.value != new.value;
    is_conflict.then(|| Problem {
        source: new.source.clone(),
        kind: ProblemKind::Conflict { key: new.name, other: known.name, what: "the value" },
    })
}

fn default_value(key: &Key) -> MergedValue {
    let raw = RawValue::One(key.default.to_string());
    let value = match key.default {
        "" if key.kind != ValueKind::List => Value::Unset,
        _ => key.kind.parse(&raw).unwrap_or_else(|| panic!("the default of `{}` does not fit", key.name)),
    };
    MergedValue { name: key.name, value, text: key.default.to_string(), source: ValueSource::Default }
}

fn invalid_value(key: &Key, raw: &RawValue, source: ValueSource) -> Problem {
    let value = if key.kind == ValueKind::Secret { "***".to_string() } else { raw.text() };
    Problem { source, kind: ProblemKind::InvalidValue { key: key.name, value, expected: key.kind.expected() } }
}

// These functions panic if a key is not in the table or is of another kind. That is a bug, and every start finds it: each
// start reads every key.
impl MergedConfig {
    fn entry(&self, key: &str) -> &MergedValue {
        self.entries.get(key).unwrap_or_else(|| panic!("`{key}` is not in the table of keys"))
    }

    pub fn source(&self, key: &str) -> &ValueSource {
        &self.entry(key).source
    }

    /// Whether any source sets the key.
    pub fn is_set(&self, key: &str) -> bool {
        *self.source(key) != ValueSource::Default
    }

    /// A text or choice; `None` if it is empty.
    pub fn text(&self, key: &str) -> Option<&str> {
        match &self.entry(key).value {
            Value::Text(text) => Some(text),
            Value::Unset => None,
            other => panic!("`{key}` is {other:?}, not a text"),
        }
    }

    /// The value as it was written, for messages.
    pub fn shown_text(&self, key: &str) -> String {
        self.entry(key).text.clone()
    }

    pub fn boolean(&self, key: &str) -> bool {
        match self.entry(key).value {
            Value::Bool(value) => value,
            ref other => panic!("`{key}` is {other:?}, not a boolean"),
        }
    }

    /// A whole number, or a duration in milliseconds; `None` if nothing is set.
    pub fn number_or_none<T: TryFrom<i64>>(&self, key: &str) -> Option<T> {
        match self.entry(key).value {
            Value::Unset => None,
            Value::Integer(number) => {
                Some(T::try_from(number).unwrap_or_else(|_| panic!("the range of `{key}` is too wide")))
            }
            ref other => panic!("`{key}` is {other:?}, not a whole number"),
        }
    }

    /// The same for a key with a default.
    pub fn number<T: TryFrom<i64>>(&self, key: &str) -> T {
        self.number_or_none(key).unwrap_or_else(|| panic!("`{key}` has no default"))
    }

    /// A temperature in °C, rounded down to the stricter value.
    pub fn celsius(&self, key: &str) -> i32 {
        match self.entry(key).value {
            Value::Number(degrees) => degrees.floor() as i32,
            ref other => panic!("`{key}` is {other:?}, not a temperature"),
        }
    }

    pub fn address(&self, key: &str) -> std::net::SocketAddr {
        match self.entry(key).value {
            Value::Address(address) => address,
            ref other => panic!("`{key}` is {other:?}, not an address"),
        }
    }

    pub fn list(&self, key: &str) -> Vec<String> {
        match &self.entry(key).value {
            Value::List(texts) => texts.clone(),
            other => panic!("`{key}` is {other:?}, not a list"),
        }
    }

    pub fn show(&self) -> Vec<ShownKey> {
        KEYS.iter().map(|key| self.shown(key)).collect()
    }

    fn shown(&self, key: &Key) -> ShownKey {
        let entry = self.entry(key.name);
        let value = match key.kind {
            ValueKind::Secret if !entry.text.is_empty() => "***".to_string(),
            ValueKind::Url => without_password(&entry.text),
            _ => entry.text.clone(),
        };
        ShownKey { key: key.name, value, source: entry.source.to_string(), about: key.description }
    }
}

/// A URL with its password hidden: `postgres://me:***@db/jobs`.
pub(super) fn without_password(url: &str) -> String {
    let (address, options) = url.split_once('?').map_or((url, None), |(address, rest)| (address, Some(rest)));
    let mut shown = without_userinfo_password(address);
    for (index, option) in options.into_iter().flat_map(|rest| rest.split('&')).enumerate() {
        shown.push(if index == 0 { '?' } else { '&' });
        shown.push_str(if option.starts_with("password=") { "password=***" } else { option });
    }
    shown
}

fn without_userinfo_password(address: &str) -> String {
    let userinfo = address.split_once("://").and_then(|(scheme, rest)| {
        let (userinfo, host) = rest.rsplit_once('@')?;
        let (user, _) = userinfo.split_once(':')?;
        Some(format!("{scheme}://{user}:***@{host}"))
    });
    userinfo.unwrap_or_else(|| address.to_string())
}

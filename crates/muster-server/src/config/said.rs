//! What all sources say together: for each key the strongest word, and who said it.

use std::collections::BTreeMap;

use super::keys::{self, KEYS, Key};
use super::problem::{Place, Problem, Wrong};
use super::value::{Kind, Raw, Value};
use super::{RawConfig, Shown};

/// One value for every key of the table.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Said {
    entries: BTreeMap<&'static str, Entry>,
}

#[derive(Debug, Clone, PartialEq)]
struct Entry {
    value: Value,
    text: String,
    place: Place,
}

/// Lay the sources over the defaults. Every word is checked, also one that a stronger source overrules: a
/// mistake is not hidden until the day the flag goes away.
pub(super) fn merge(raw: &RawConfig, problems: &mut Vec<Problem>) -> Said {
    let mut entries: BTreeMap<_, _> = KEYS.iter().map(|key| (key.name, default(key))).collect();
    for word in &raw.words {
        let Some(key) = keys::find(word.key) else {
            panic!("`{}` is not in the table of keys", word.key);
        };
        let Some(value) = key.kind.read(&word.raw) else {
            problems.push(unfit(key, &word.raw, word.place.clone()));
            continue;
        };
        let stronger = entries.get(key.name).is_none_or(|entry| word.place.rank() >= entry.place.rank());
        if stronger {
            let entry = Entry { value, text: word.raw.text(), place: word.place.clone() };
            entries.insert(key.name, entry);
        }
    }
    Said { entries }
}

fn default(key: &Key) -> Entry {
    let raw = Raw::One(key.default.to_string());
    let value = match key.default {
        "" if key.kind != Kind::List => Value::Unset,
        _ => key.kind.read(&raw).unwrap_or_else(|| panic!("the default of `{}` does not fit", key.name)),
    };
    Entry { value, text: key.default.to_string(), place: Place::Default }
}

fn unfit(key: &Key, raw: &Raw, place: Place) -> Problem {
    let said = if key.kind == Kind::Secret { "***".to_string() } else { raw.text() };
    Problem { place, wrong: Wrong::Unfit { key: key.name, said, wanted: key.kind.wanted() } }
}

// A key that is not in the table, or is of another kind, is a bug: every one of these is read by every start.
impl Said {
    fn entry(&self, key: &str) -> &Entry {
        self.entries.get(key).unwrap_or_else(|| panic!("`{key}` is not in the table of keys"))
    }

    /// Who said it.
    pub fn place(&self, key: &str) -> &Place {
        &self.entry(key).place
    }

    /// Whether any source said it.
    pub fn is_said(&self, key: &str) -> bool {
        *self.place(key) != Place::Default
    }

    /// Texts and words.
    pub fn text(&self, key: &str) -> Option<&str> {
        match &self.entry(key).value {
            Value::Text(text) => Some(text),
            Value::Unset => None,
            other => panic!("`{key}` is {other:?}, not a text"),
        }
    }

    /// Flags.
    pub fn flag(&self, key: &str) -> bool {
        match self.entry(key).value {
            Value::Flag(flag) => flag,
            ref other => panic!("`{key}` is {other:?}, not a flag"),
        }
    }

    /// Whole numbers and durations in milliseconds; `None` where nothing is set.
    pub fn number_or_none<T: TryFrom<i64>>(&self, key: &str) -> Option<T> {
        match self.entry(key).value {
            Value::Unset => None,
            Value::Integer(number) => {
                Some(T::try_from(number).unwrap_or_else(|_| panic!("the range of `{key}` is too wide")))
            }
            ref other => panic!("`{key}` is {other:?}, not a whole number"),
        }
    }

    /// The same where there is always one.
    pub fn number<T: TryFrom<i64>>(&self, key: &str) -> T {
        self.number_or_none(key).unwrap_or_else(|| panic!("`{key}` has no default"))
    }

    /// Degrees, rounded down: the stricter reading.
    pub fn celsius(&self, key: &str) -> i32 {
        match self.entry(key).value {
            Value::Number(degrees) => degrees.floor() as i32,
            ref other => panic!("`{key}` is {other:?}, not a temperature"),
        }
    }

    /// Addresses.
    pub fn address(&self, key: &str) -> std::net::SocketAddr {
        match self.entry(key).value {
            Value::Address(address) => address,
            ref other => panic!("`{key}` is {other:?}, not an address"),
        }
    }

    /// Lists.
    pub fn list(&self, key: &str) -> Vec<String> {
        match &self.entry(key).value {
            Value::List(texts) => texts.clone(),
            other => panic!("`{key}` is {other:?}, not a list"),
        }
    }

    /// Every key, for people.
    pub fn show(&self) -> Vec<Shown> {
        KEYS.iter().map(|key| self.shown(key)).collect()
    }

    fn shown(&self, key: &Key) -> Shown {
        let entry = self.entry(key.name);
        let value = match key.kind {
            Kind::Secret if !entry.text.is_empty() => "***".to_string(),
            Kind::Url => without_password(&entry.text),
            _ => entry.text.clone(),
        };
        Shown { key: key.name, value, source: entry.place.to_string(), about: key.about }
    }
}

/// An address with its password hidden: `postgres://me:***@db/jobs`.
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

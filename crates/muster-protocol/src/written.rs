//! Values that people may write in more than one way. They keep what was written; the server reads it.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A priority: a whole number from 0 to 10,000, or `low`, `medium`, `high`, `critical`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum Priority {
    /// The number itself.
    Number(u32),
    /// The name of a tier: 100, 500, 1,000 or 5,000.
    Name(String),
}

/// A span of time: a whole number of seconds, or a text such as `90s`, `45m`, `2h30m`, `3d`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum Span {
    /// Seconds.
    Seconds(u64),
    /// Numbers with units.
    Text(String),
}

/// A moment: Unix milliseconds, or a text such as `2026-03-01T09:00:00Z`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum Moment {
    /// Milliseconds since the Unix epoch.
    UnixMs(u64),
    /// RFC 3339.
    Text(String),
}

/// A job that must have ended first: `job-1:succeeded`, or an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum After {
    /// The id, a colon, and `succeeded`, `failed` or `ended`; `succeeded` when nothing is said.
    Text(String),
    /// The same in two fields.
    Fields(AfterFields),
}

/// A job that must have ended first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AfterFields {
    /// Which job; without an index, every task of an array.
    #[schema(example = "job-41")]
    pub job: String,
    /// How it must have ended: `succeeded`, `failed` or `ended`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "succeeded")]
    pub when: Option<String>,
}

/// Reads a whole number or a text. Derived untagged enums would only say that nothing matched.
struct NumberOrText<T> {
    expecting: &'static str,
    number: fn(u64) -> Option<T>,
    text: fn(String) -> T,
}

impl<T> Visitor<'_> for NumberOrText<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.expecting)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        let unexpected = serde::de::Unexpected::Unsigned(number);
        (self.number)(number).ok_or_else(|| E::invalid_value(unexpected, &self))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        match u64::try_from(number) {
            Ok(number) => self.visit_u64(number),
            Err(_) => Err(E::invalid_value(serde::de::Unexpected::Signed(number), &self)),
        }
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        Ok((self.text)(text.to_string()))
    }
}

impl<'de> Deserialize<'de> for Priority {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Priority, D::Error> {
        deserializer.deserialize_any(NumberOrText {
            expecting: "a whole number from 0 to 10,000 or the name of a tier",
            number: |number| u32::try_from(number).ok().map(Priority::Number),
            text: Priority::Name,
        })
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Span, D::Error> {
        deserializer.deserialize_any(NumberOrText {
            expecting: "a whole number of seconds or a text such as `2h30m`",
            number: |number| Some(Span::Seconds(number)),
            text: Span::Text,
        })
    }
}

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Moment, D::Error> {
        deserializer.deserialize_any(NumberOrText {
            expecting: "Unix milliseconds or a text such as `2026-03-01T09:00:00Z`",
            number: |number| Some(Moment::UnixMs(number)),
            text: Moment::Text,
        })
    }
}

struct AfterVisitor;

impl<'de> Visitor<'de> for AfterVisitor {
    type Value = After;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a text such as `job-1:succeeded` or an object with `job` and `when`")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<After, E> {
        Ok(After::Text(text.to_string()))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<After, A::Error> {
        AfterFields::deserialize(MapAccessDeserializer::new(map)).map(After::Fields)
    }
}

impl<'de> Deserialize<'de> for After {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<After, D::Error> {
        deserializer.deserialize_any(AfterVisitor)
    }
}

/// Tells a field that was sent as `null` from one that was not sent: for changes, `null` lifts a limit.
pub(crate) fn sent<'de, T, D>(deserializer: D) -> Result<Option<Option<T>>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    Option::<T>::deserialize(deserializer).map(Some)
}

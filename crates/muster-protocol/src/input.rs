//! Input values with more than one notation, kept as written; the server parses them.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A priority: a whole number from 0 to 10,000, or `low`, `medium`, `high`, `critical`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum Priority {
    /// Number from 0 to 10,000.
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
    /// Number with a unit.
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
pub enum DependencyInput {
    /// The id, a colon, and `succeeded`, `failed` or `ended`; `succeeded` if the part after the id is missing.
    Text(String),
    /// The same in two fields.
    Fields(DependencyFields),
}

/// A job that must have ended first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DependencyFields {
    /// Job id; without an index, all tasks of an array.
    #[schema(example = "job-41")]
    pub job: String,
    /// Required outcome: `succeeded`, `failed` or `ended`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "succeeded")]
    pub when: Option<String>,
}

/// Visitor for a whole number or a text. The error of a derived untagged enum would only say that no variant matched.
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

struct DependencyVisitor;

impl<'de> Visitor<'de> for DependencyVisitor {
    type Value = DependencyInput;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a text such as `job-1:succeeded` or an object with `job` and `when`")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<DependencyInput, E> {
        Ok(DependencyInput::Text(text.to_string()))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<DependencyInput, A::Error> {
        DependencyFields::deserialize(MapAccessDeserializer::new(map)).map(DependencyInput::Fields)
    }
}

impl<'de> Deserialize<'de> for DependencyInput {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<DependencyInput, D::Error> {
        deserializer.deserialize_any(DependencyVisitor)
    }
}

/// Distinguishes a field that was sent as `null` from one that was not sent: in a change, `null` removes a limit.
pub(crate) fn double_option<'de, T, D>(deserializer: D) -> Result<Option<Option<T>>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    Option::<T>::deserialize(deserializer).map(Some)
}

//! JSON parsing and serialisation for all crates.
//!
//! Parsing uses `simd-json`: a dependency may enable `serde_json/arbitrary_precision` for the whole binary, and then
//! `serde_json` fails on fractions within tagged, untagged and flattened types. `simd-json` is not affected by that
//! feature, and it limits the nesting depth. Serialisation uses `serde_json`.

use serde::de::DeserializeOwned;
use serde::ser::Error as _;
use serde::{Serialize, Serializer};

/// A text is not valid JSON, or does not match the expected type.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct JsonError(String);

/// Parse a value from bytes.
pub fn from_slice<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, JsonError> {
    // The parser modifies its input, so it gets a copy.
    let mut scratch = bytes.to_vec();
    simd_json::serde::from_slice(&mut scratch).map_err(|error| JsonError(serde_message(&error.to_string())))
}

/// Parse a value from text.
pub fn from_str<T: DeserializeOwned>(text: &str) -> Result<T, JsonError> {
    from_slice(text.as_bytes())
}

/// Serialise a value as compact JSON. Panics for types with non-text map keys, which are a bug.
pub fn to_string<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_else(|error| panic!("cannot serialise as JSON: {error}"))
}

/// Serialise a value as indented JSON, for display.
pub fn to_string_pretty<T: Serialize>(value: &T) -> String {
    serde_json::to_string_pretty(value).unwrap_or_else(|error| panic!("cannot serialise as JSON: {error}"))
}

/// Serialise a value as compact JSON bytes.
pub fn to_vec<T: Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_else(|error| panic!("cannot serialise as JSON: {error}"))
}

/// A JSON text that serialises into any other format, with its fields in the order of the text. A command that prints
/// many types as YAML compiles the YAML serialiser once, and not once for each type.
pub struct JsonText(Vec<u8>);

impl JsonText {
    pub fn of<T: Serialize>(value: &T) -> JsonText {
        JsonText(to_vec(value))
    }
}

impl Serialize for JsonText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // The parser modifies its input, so it gets a copy.
        let mut scratch = self.0.clone();
        let mut parser = simd_json::Deserializer::from_slice(&mut scratch).map_err(S::Error::custom)?;
        serde_transcode::transcode(&mut parser, serializer)
    }
}

/// Extract the serde message from the Debug-style error text of `simd-json`.
fn serde_message(message: &str) -> String {
    match message.strip_prefix("Serde(\"").and_then(|rest| rest.split("\") at").next()) {
        Some(sentence) => sentence.replace("\\\"", "\""),
        None => message.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(tag = "type")]
    enum Tagged {
        Watts { value: f64 },
    }

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(untagged)]
    enum Untagged {
        Number(f64),
        Text(String),
    }

    #[derive(Debug, Deserialize, PartialEq)]
    struct Inner {
        value: f64,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    struct Flat {
        name: String,
        #[serde(flatten)]
        inner: Inner,
    }

    #[test]
    fn json_text_serialises_as_the_value_it_was_made_from() {
        #[derive(Serialize)]
        struct Row {
            zone: &'static str,
            count: u64,
            share: f64,
            whole: f64,
            none: Option<u8>,
            lists: Vec<Vec<i64>>,
        }
        let row = Row {
            zone: "a \"b\" ü",
            count: u64::MAX,
            share: 0.1,
            whole: 2.0,
            none: None,
            lists: vec![vec![-1], vec![]],
        };
        assert_eq!(to_string(&JsonText::of(&row)), to_string(&row));
    }

    #[test]
    fn fractions_survive_every_kind_of_enum_and_flattening() {
        let tagged: Tagged = from_str(r#"{"type":"Watts","value":1.5}"#).unwrap();
        assert_eq!(tagged, Tagged::Watts { value: 1.5 });
        assert_eq!(from_str::<Untagged>("1.5").unwrap(), Untagged::Number(1.5));
        let flat: Flat = from_str(r#"{"name":"a","value":2.25}"#).unwrap();
        assert_eq!(flat, Flat { name: "a".into(), inner: Inner { value: 2.25 } });
    }

    #[test]
    fn a_deep_body_is_an_error_and_not_a_stack_overflow() {
        let deep = format!("{{\"name\":\"a\",\"value\":1.0,\"x\":{}{}}}", "[".repeat(500_000), "]".repeat(500_000));
        assert!(from_str::<Flat>(&deep).is_err());
    }

    #[test]
    fn large_integers_are_exact() {
        assert_eq!(from_str::<i64>("-9007199254740993").unwrap(), -9_007_199_254_740_993);
        assert_eq!(from_str::<u64>("18446744073709551615").unwrap(), u64::MAX);
    }
}

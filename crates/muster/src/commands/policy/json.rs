//! Policy values as JSON: arguments of `muster policy eval` and its answers.

use std::fmt;

use muster_policy::PolicyValue;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};

#[derive(Debug, Clone, PartialEq)]
pub struct JsonValue(pub PolicyValue);

impl Serialize for JsonValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            PolicyValue::None => serializer.serialize_none(),
            PolicyValue::Bool(flag) => serializer.serialize_bool(*flag),
            PolicyValue::Int(number) => serializer.serialize_i64(*number),
            PolicyValue::Float(number) => serializer.serialize_f64(*number),
            PolicyValue::Text(text) => serializer.serialize_str(text),
            PolicyValue::List(items) | PolicyValue::Tuple(items) => {
                let mut all = serializer.serialize_seq(Some(items.len()))?;
                items.iter().try_for_each(|item| all.serialize_element(&JsonValue(item.clone())))?;
                all.end()
            }
            PolicyValue::Dict(entries) => {
                let entries = entries.iter().map(|(key, value)| (key_text(key), value));
                serialize_entries(serializer, entries)
            }
            PolicyValue::Record(fields) => {
                serialize_entries(serializer, fields.iter().map(|(name, value)| (name.to_string(), value)))
            }
        }
    }
}

fn serialize_entries<'a, S: Serializer>(
    serializer: S,
    entries: impl Iterator<Item = (String, &'a PolicyValue)>,
) -> Result<S::Ok, S::Error> {
    let mut all = serializer.serialize_map(None)?;
    for (key, value) in entries {
        all.serialize_entry(&key, &JsonValue(value.clone()))?;
    }
    all.end()
}

/// Keys of JSON objects are strings.
fn key_text(key: &PolicyValue) -> String {
    match key {
        PolicyValue::Text(text) => text.clone(),
        other => other.to_string(),
    }
}

impl<'de> Deserialize<'de> for JsonValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<JsonValue, D::Error> {
        deserializer.deserialize_any(JsonValueVisitor).map(JsonValue)
    }
}

struct JsonValueVisitor;

impl<'de> Visitor<'de> for JsonValueVisitor {
    type Value = PolicyValue;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<PolicyValue, E> {
        Ok(PolicyValue::None)
    }

    fn visit_none<E>(self) -> Result<PolicyValue, E> {
        Ok(PolicyValue::None)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<PolicyValue, E> {
        Ok(PolicyValue::Bool(flag))
    }

    fn visit_i64<E>(self, number: i64) -> Result<PolicyValue, E> {
        Ok(PolicyValue::Int(number))
    }

    fn visit_u64<E>(self, number: u64) -> Result<PolicyValue, E> {
        Ok(PolicyValue::from(number))
    }

    fn visit_f64<E>(self, number: f64) -> Result<PolicyValue, E> {
        Ok(PolicyValue::Float(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<PolicyValue, E> {
        Ok(PolicyValue::text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<PolicyValue, A::Error> {
        let mut items = Vec::new();
        while let Some(JsonValue(item)) = all.next_element()? {
            items.push(item);
        }
        Ok(PolicyValue::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut all: A) -> Result<PolicyValue, A::Error> {
        let mut entries = Vec::new();
        while let Some((key, JsonValue(value))) = all.next_entry::<String, JsonValue>()? {
            entries.push((PolicyValue::Text(key), value));
        }
        Ok(PolicyValue::Dict(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policy_values_round_trip_through_json() {
        let text = r#"{"a":[1,-2,0.5,true,null,"ä"],"b":{}}"#;
        let read: JsonValue = muster_json::from_str(text).unwrap();
        assert_eq!(muster_json::to_string(&read), text);
        let odd = JsonValue(PolicyValue::Dict(vec![(PolicyValue::Int(1), PolicyValue::Tuple(vec![]))]));
        assert_eq!(muster_json::to_string(&odd), r#"{"1":[]}"#);
    }
}

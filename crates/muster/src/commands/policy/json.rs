//! Values of policies as JSON, to be given and to be read.

use std::fmt;

use muster_policy::Plain;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub struct Json(pub Plain);

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Plain::None => serializer.serialize_none(),
            Plain::Bool(flag) => serializer.serialize_bool(*flag),
            Plain::Int(number) => serializer.serialize_i64(*number),
            Plain::Float(number) => serializer.serialize_f64(*number),
            Plain::Text(text) => serializer.serialize_str(text),
            Plain::List(items) | Plain::Tuple(items) => {
                let mut all = serializer.serialize_seq(Some(items.len()))?;
                items.iter().try_for_each(|item| all.serialize_element(&Json(item.clone())))?;
                all.end()
            }
            Plain::Dict(entries) => {
                let entries = entries.iter().map(|(key, value)| (key_of(key), value));
                map(serializer, entries)
            }
            Plain::Record(fields) => {
                map(serializer, fields.iter().map(|(name, value)| (name.to_string(), value)))
            }
        }
    }
}

fn map<'a, S: Serializer>(
    serializer: S,
    entries: impl Iterator<Item = (String, &'a Plain)>,
) -> Result<S::Ok, S::Error> {
    let mut all = serializer.serialize_map(None)?;
    for (key, value) in entries {
        all.serialize_entry(&key, &Json(value.clone()))?;
    }
    all.end()
}

/// Keys of JSON are texts.
fn key_of(key: &Plain) -> String {
    match key {
        Plain::Text(text) => text.clone(),
        other => other.to_string(),
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Json, D::Error> {
        deserializer.deserialize_any(Reader).map(Json)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Plain;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Plain, E> {
        Ok(Plain::None)
    }

    fn visit_none<E>(self) -> Result<Plain, E> {
        Ok(Plain::None)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Plain, E> {
        Ok(Plain::Bool(flag))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Plain, E> {
        Ok(Plain::Int(number))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Plain, E> {
        Ok(Plain::from(number))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Plain, E> {
        Ok(Plain::Float(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Plain, E> {
        Ok(Plain::text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Plain, A::Error> {
        let mut items = Vec::new();
        while let Some(Json(item)) = all.next_element()? {
            items.push(item);
        }
        Ok(Plain::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut all: A) -> Result<Plain, A::Error> {
        let mut entries = Vec::new();
        while let Some((key, Json(value))) = all.next_entry::<String, Json>()? {
            entries.push((Plain::Text(key), value));
        }
        Ok(Plain::Dict(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_as_they_went() {
        let text = r#"{"a":[1,-2,0.5,true,null,"ä"],"b":{}}"#;
        let read: Json = muster_json::from_str(text).unwrap();
        assert_eq!(muster_json::to_string(&read), text);
        let odd = Json(Plain::Dict(vec![(Plain::Int(1), Plain::Tuple(vec![]))]));
        assert_eq!(muster_json::to_string(&odd), r#"{"1":[]}"#);
    }
}

//! Schemas in words that people read.

use serde_json::{Map, Value};

use super::{Row, object, text};

/// What a schema asks for, in a few words.
pub fn kind(schema: &Value) -> String {
    if let Some(name) = reference(schema) {
        return name;
    }
    let choices = ["oneOf", "anyOf", "allOf"].iter().find_map(|key| schema[*key].as_array());
    if let Some(choices) = choices {
        let words: Vec<String> = choices.iter().map(kind).filter(|word| word != "null").collect();
        return words.join(" or ");
    }
    if let Some(words) = schema["enum"].as_array() {
        let words = words.iter().filter(|word| !word.is_null());
        let words: Vec<String> = words.map(|word| format!("`{}`", text(word))).collect();
        return words.join(" or ");
    }
    match plain_type(schema).as_str() {
        "array" => format!("list of {}", kind(&schema["items"])),
        "object" if schema["additionalProperties"].is_object() => {
            format!("map of {}", kind(&schema["additionalProperties"]))
        }
        "string" => "text".to_string(),
        "integer" => "whole number".to_string(),
        "boolean" => "true or false".to_string(),
        other => other.to_string(),
    }
}

/// The name of a schema that is defined elsewhere.
fn reference(schema: &Value) -> Option<String> {
    schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()).map(str::to_string)
}

/// The type beside `null`.
fn plain_type(schema: &Value) -> String {
    match &schema["type"] {
        Value::Array(types) => types.iter().map(text).find(|word| word != "null").unwrap_or_default(),
        one => text(one),
    }
}

/// The fields of an object, those of the objects it includes first.
pub fn rows(schema: &Value, all: &Map<String, Value>) -> Vec<Row> {
    let parts = schema["allOf"].as_array().map(Vec::as_slice).unwrap_or_default();
    let included = parts.iter().flat_map(|part| match reference(part) {
        Some(name) => all.get(&name).map(|schema| rows(schema, all)).unwrap_or_default(),
        None => rows(part, all),
    });
    let required: Vec<String> =
        schema["required"].as_array().map(|names| names.iter().map(text).collect()).unwrap_or_default();
    let own = object(&schema["properties"]);
    let own = own.iter().map(|(name, field)| Row {
        name: name.clone(),
        kind: kind(field),
        required: required.contains(name),
        about: described(field),
    });
    included.chain(own).collect()
}

/// A description stands beside a reference, or inside one of the choices.
fn described(field: &Value) -> String {
    let choices = ["oneOf", "anyOf", "allOf"].iter().find_map(|key| field[*key].as_array());
    let inside = choices.into_iter().flatten().map(|choice| text(&choice["description"]));
    std::iter::once(text(&field["description"]))
        .chain(inside)
        .find(|said| !said.is_empty())
        .unwrap_or_default()
}

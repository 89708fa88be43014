//! Types and fields of schemas as text.

use serde_json::{Map, Value};

use super::{FieldDoc, object_or_empty, str_or_empty};

/// The type of a schema in a few words.
pub fn type_text(schema: &Value) -> String {
    if let Some(name) = ref_name(schema) {
        return name;
    }
    let choices = ["oneOf", "anyOf", "allOf"].iter().find_map(|key| schema[*key].as_array());
    if let Some(choices) = choices {
        let types: Vec<String> = choices.iter().map(type_text).filter(|name| name != "null").collect();
        return types.join(" or ");
    }
    if let Some(values) = schema["enum"].as_array() {
        let values = values.iter().filter(|value| !value.is_null());
        let values: Vec<String> = values.map(|value| format!("`{}`", str_or_empty(value))).collect();
        return values.join(" or ");
    }
    match non_null_type(schema).as_str() {
        "array" => format!("list of {}", type_text(&schema["items"])),
        "object" if schema["additionalProperties"].is_object() => {
            format!("map of {}", type_text(&schema["additionalProperties"]))
        }
        "string" => "text".to_string(),
        "integer" => "whole number".to_string(),
        "boolean" => "true or false".to_string(),
        other => other.to_string(),
    }
}

/// The name of a schema that is defined elsewhere.
fn ref_name(schema: &Value) -> Option<String> {
    schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()).map(str::to_string)
}

/// The type beside `null`.
fn non_null_type(schema: &Value) -> String {
    match &schema["type"] {
        Value::Array(types) => types.iter().map(str_or_empty).find(|name| name != "null").unwrap_or_default(),
        one => str_or_empty(one),
    }
}

/// The fields of an object; those of included objects come first.
pub fn schema_fields(schema: &Value, all: &Map<String, Value>) -> Vec<FieldDoc> {
    let parts = schema["allOf"].as_array().map(Vec::as_slice).unwrap_or_default();
    let included = parts.iter().flat_map(|part| match ref_name(part) {
        Some(name) => all.get(&name).map(|schema| schema_fields(schema, all)).unwrap_or_default(),
        None => schema_fields(part, all),
    });
    let required: Vec<String> =
        schema["required"].as_array().map(|names| names.iter().map(str_or_empty).collect()).unwrap_or_default();
    let own = object_or_empty(&schema["properties"]);
    let own = own.iter().map(|(name, field)| FieldDoc {
        name: name.clone(),
        type_text: type_text(field),
        required: required.contains(name),
        description: field_description(field),
    });
    included.chain(own).collect()
}

/// The description of a field, which may be beside its reference or inside one of its alternatives.
fn field_description(field: &Value) -> String {
    let choices = ["oneOf", "anyOf", "allOf"].iter().find_map(|key| field[*key].as_array());
    let inside = choices.into_iter().flatten().map(|choice| str_or_empty(&choice["description"]));
    std::iter::once(str_or_empty(&field["description"])).chain(inside).find(|text| !text.is_empty()).unwrap_or_default()
}

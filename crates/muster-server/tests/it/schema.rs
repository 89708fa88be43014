//! Checks responses against the OpenAPI document: route, status, media type and schema.
//!
//! Supports the part of JSON Schema that the document uses.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use serde_json::Value;

use crate::client::HttpReply;

/// Paths that serve pages or the document itself.
const UNDOCUMENTED_PATHS: [&str; 3] = ["/", "/api/v1/docs", "/api/v1/openapi.json"];

pub fn document() -> &'static Value {
    static DOCUMENT: OnceLock<Value> = OnceLock::new();
    DOCUMENT.get_or_init(muster_server::http::openapi)
}

/// Panic if the document does not describe this response.
pub fn check_reply(method: &str, path: &str, reply: &HttpReply) {
    let path = path.split('?').next().unwrap_or_default();
    if UNDOCUMENTED_PATHS.contains(&path) || method == "HEAD" || method == "OPTIONS" {
        return;
    }
    assert!(!reply.header("x-request-id").is_empty(), "{method} {path}: no request id");
    let Some(operation) = operation(method, path) else {
        assert!(matches!(reply.status, 403..=405), "{method} {path} is not in the document: {}", reply.text);
        return check_body("Problem", reply);
    };
    let responses = &operation["responses"];
    let response = match &responses[reply.status.to_string()] {
        Value::Null => &responses["default"],
        described => described,
    };
    let media = reply.header("content-type").split(';').next().unwrap_or_default();
    let schema = &response["content"][media]["schema"];
    assert!(!schema.is_null(), "{method} {path} {}: `{media}` is not documented", reply.status);
    if media.ends_with("json") {
        assert_matches_schema(schema, &reply.json(), &format!("{method} {path} {}", reply.status));
    }
}

/// The operation whose path matches; a path without parameters takes precedence.
fn operation(method: &str, path: &str) -> Option<&'static Value> {
    let paths = document()["paths"].as_object()?;
    let mut matching: Vec<&String> = paths.keys().filter(|known| path_matches(known, path)).collect();
    matching.sort_by_key(|known| known.matches('{').count());
    let operation = &paths[*matching.first()?][method.to_lowercase()];
    (!operation.is_null()).then_some(operation)
}

fn path_matches(known: &str, path: &str) -> bool {
    let (known, path): (Vec<&str>, Vec<&str>) = (known.split('/').collect(), path.split('/').collect());
    known.len() == path.len()
        && known.iter().zip(&path).all(|(known, segment)| known.starts_with('{') || known == segment)
}

fn check_body(name: &str, reply: &HttpReply) {
    assert_matches_schema(&document()["components"]["schemas"][name], &reply.json(), name);
}

/// Panic unless a value matches a schema; the message names the location.
pub fn assert_matches_schema(schema: &Value, value: &Value, at: &str) {
    if let Err(problem) = match_schema(schema, value, at) {
        panic!("{problem}");
    }
}

fn match_schema(schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = reference.rsplit('/').next().unwrap_or_default();
        let named = &document()["components"]["schemas"][name];
        assert!(named.is_object(), "{at}: the document lacks {name}");
        return match_schema(named, value, at);
    }
    for part in schema["allOf"].as_array().into_iter().flatten() {
        match_schema(part, value, at)?;
    }
    for choices in [&schema["oneOf"], &schema["anyOf"]].into_iter().filter_map(Value::as_array) {
        if !choices.iter().any(|choice| match_schema(choice, value, at).is_ok()) {
            return Err(format!("{at}: {value} matches none of {choices:?}"));
        }
    }
    if let Some(values) = schema["enum"].as_array()
        && !values.contains(value)
    {
        return Err(format!("{at}: {value} is none of {values:?}"));
    }
    match_type(&schema["type"], value, at)?;
    match_members(schema, value, at)
}

fn match_type(wanted: &Value, value: &Value, at: &str) -> Result<(), String> {
    let is_of_type = |name: &Value| match name.as_str() {
        Some("null") => value.is_null(),
        Some("boolean") => value.is_boolean(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        _ => true,
    };
    let matches = match wanted {
        Value::Array(names) => names.iter().any(is_of_type),
        name => is_of_type(name),
    };
    if matches { Ok(()) } else { Err(format!("{at}: {value} is not of type {wanted}")) }
}

fn match_members(schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
        match_schema(&schema["items"], item, &format!("{at}[{index}]"))?;
    }
    let Some(members) = value.as_object() else { return Ok(()) };
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !members.contains_key(name) {
            return Err(format!("{at}: `{name}` is missing"));
        }
    }
    for (name, member) in members {
        match &schema["properties"][name] {
            Value::Null => match_schema(&schema["additionalProperties"], member, &format!("{at}.{name}"))?,
            known => match_schema(known, member, &format!("{at}.{name}"))?,
        }
    }
    Ok(())
}

/// Call `visit` with each field of a response, as `Type.field`, and its value; null if it is absent.
pub fn visit_fields(method: &str, path: &str, value: &Value, visit: &mut dyn FnMut(&str, &Value)) {
    let path = path.split('?').next().unwrap_or_default();
    let operation = operation(method, path).unwrap_or_else(|| panic!("{path} is not in the document"));
    visit_schema(response_schema(operation), "", value, visit);
}

/// Every field of every type in responses of this method, as `Type.field`.
pub fn response_fields(method: &str) -> BTreeSet<String> {
    let mut fields = BTreeSet::new();
    let mut types = BTreeSet::new();
    for operation in document()["paths"].as_object().unwrap().values().map(|path| &path[method]) {
        collect_fields(response_schema(operation), "", &mut types, &mut fields);
    }
    fields
}

fn response_schema(operation: &Value) -> &Value {
    &operation["responses"]["200"]["content"]["application/json"]["schema"]
}

fn resolve_ref(schema: &Value) -> Option<(&str, &'static Value)> {
    let name = schema["$ref"].as_str()?.rsplit('/').next()?;
    Some((name, &document()["components"]["schemas"][name]))
}

fn subschemas(schema: &Value) -> impl Iterator<Item = &Value> {
    ["allOf", "oneOf", "anyOf"].into_iter().flat_map(|key| schema[key].as_array().into_iter().flatten())
}

fn visit_schema(schema: &Value, name: &str, value: &Value, visit: &mut dyn FnMut(&str, &Value)) {
    if let Some((name, schema)) = resolve_ref(schema) {
        return visit_schema(schema, name, value, visit);
    }
    if value.is_null() {
        return;
    }
    subschemas(schema).for_each(|part| visit_schema(part, name, value, visit));
    for (field, schema_of_field) in schema["properties"].as_object().into_iter().flatten() {
        visit(&format!("{name}.{field}"), &value[field]);
        visit_schema(schema_of_field, &format!("{name}.{field}"), &value[field], visit);
    }
    value.as_array().into_iter().flatten().for_each(|item| visit_schema(&schema["items"], name, item, visit));
    if schema["additionalProperties"].is_object() {
        let members = value.as_object().into_iter().flatten();
        members.for_each(|(_, member)| visit_schema(&schema["additionalProperties"], name, member, visit));
    }
}

fn collect_fields(schema: &Value, name: &str, types: &mut BTreeSet<String>, fields: &mut BTreeSet<String>) {
    if let Some((name, schema)) = resolve_ref(schema) {
        if types.insert(name.to_string()) {
            collect_fields(schema, name, types, fields);
        }
        return;
    }
    let inside = [&schema["items"], &schema["additionalProperties"]].into_iter().filter(|part| part.is_object());
    for part in subschemas(schema).chain(inside) {
        collect_fields(part, name, types, fields);
    }
    for (field, schema_of_field) in schema["properties"].as_object().into_iter().flatten() {
        fields.insert(format!("{name}.{field}"));
        collect_fields(schema_of_field, &format!("{name}.{field}"), types, fields);
    }
}

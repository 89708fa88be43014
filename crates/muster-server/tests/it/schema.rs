//! Checks answers against the OpenAPI document: known route, known status, known media type, right shape.
//!
//! Reads the part of JSON Schema that our document uses.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use serde_json::Value;

use crate::client::Reply;

/// Paths that serve pages or the document itself.
const PAGES: [&str; 3] = ["/", "/api/v1/docs", "/api/v1/openapi.json"];

pub fn document() -> &'static Value {
    static DOCUMENT: OnceLock<Value> = OnceLock::new();
    DOCUMENT.get_or_init(|| serde_json::to_value(muster_server::http::openapi()).unwrap())
}

/// Panic if the document does not promise this answer.
pub fn check(method: &str, path: &str, reply: &Reply) {
    let path = path.split('?').next().unwrap_or_default();
    if PAGES.contains(&path) || method == "HEAD" || method == "OPTIONS" {
        return;
    }
    assert!(!reply.header("x-request-id").is_empty(), "{method} {path}: no request id");
    let Some(operation) = operation(method, path) else {
        assert!(matches!(reply.status, 403..=405), "{method} {path} is not in the document: {}", reply.text);
        return must_be("Problem", reply);
    };
    let responses = &operation["responses"];
    let response = match &responses[reply.status.to_string()] {
        Value::Null => &responses["default"],
        promised => promised,
    };
    let media = reply.header("content-type").split(';').next().unwrap_or_default();
    let schema = &response["content"][media]["schema"];
    assert!(!schema.is_null(), "{method} {path} {}: `{media}` was not promised", reply.status);
    if media.ends_with("json") {
        fits(schema, &reply.json(), &format!("{method} {path} {}", reply.status));
    }
}

/// The operation whose path matches; one without parameters goes first.
fn operation(method: &str, path: &str) -> Option<&'static Value> {
    let paths = document()["paths"].as_object()?;
    let mut matching: Vec<&String> = paths.keys().filter(|known| matches(known, path)).collect();
    matching.sort_by_key(|known| known.matches('{').count());
    let operation = &paths[*matching.first()?][method.to_lowercase()];
    (!operation.is_null()).then_some(operation)
}

fn matches(known: &str, path: &str) -> bool {
    let (known, path): (Vec<&str>, Vec<&str>) = (known.split('/').collect(), path.split('/').collect());
    known.len() == path.len()
        && known.iter().zip(&path).all(|(known, said)| known.starts_with('{') || known == said)
}

fn must_be(name: &str, reply: &Reply) {
    fits(&document()["components"]["schemas"][name], &reply.json(), name);
}

/// Panic unless a value fits a schema, naming the place.
pub fn fits(schema: &Value, value: &Value, at: &str) {
    if let Err(problem) = fit(schema, value, at) {
        panic!("{problem}");
    }
}

fn fit(schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = reference.rsplit('/').next().unwrap_or_default();
        let named = &document()["components"]["schemas"][name];
        assert!(named.is_object(), "{at}: the document lacks {name}");
        return fit(named, value, at);
    }
    for part in schema["allOf"].as_array().into_iter().flatten() {
        fit(part, value, at)?;
    }
    for choices in [&schema["oneOf"], &schema["anyOf"]].into_iter().filter_map(Value::as_array) {
        if !choices.iter().any(|choice| fit(choice, value, at).is_ok()) {
            return Err(format!("{at}: {value} fits none of {choices:?}"));
        }
    }
    if let Some(words) = schema["enum"].as_array()
        && !words.contains(value)
    {
        return Err(format!("{at}: {value} is none of {words:?}"));
    }
    fit_type(&schema["type"], value, at)?;
    fit_members(schema, value, at)
}

fn fit_type(wanted: &Value, value: &Value, at: &str) -> Result<(), String> {
    let is = |word: &Value| match word.as_str() {
        Some("null") => value.is_null(),
        Some("boolean") => value.is_boolean(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        _ => true,
    };
    let fits = match wanted {
        Value::Array(words) => words.iter().any(is),
        word => is(word),
    };
    if fits { Ok(()) } else { Err(format!("{at}: {value} is no {wanted}")) }
}

fn fit_members(schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
        fit(&schema["items"], item, &format!("{at}[{index}]"))?;
    }
    let Some(members) = value.as_object() else { return Ok(()) };
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !members.contains_key(name) {
            return Err(format!("{at}: `{name}` is missing"));
        }
    }
    for (name, member) in members {
        match &schema["properties"][name] {
            Value::Null => fit(&schema["additionalProperties"], member, &format!("{at}.{name}"))?,
            known => fit(known, member, &format!("{at}.{name}"))?,
        }
    }
    Ok(())
}

/// Call `see` with each field of an answer, as `Type.field`, and its value; null where it is absent.
pub fn walk(method: &str, path: &str, value: &Value, see: &mut dyn FnMut(&str, &Value)) {
    let path = path.split('?').next().unwrap_or_default();
    let operation = operation(method, path).unwrap_or_else(|| panic!("{path} is not in the document"));
    walk_in(answer_schema(operation), "", value, see);
}

/// Every field of every type that answers of this method consist of, as `Type.field`.
pub fn fields_of_answers(method: &str) -> BTreeSet<String> {
    let mut fields = BTreeSet::new();
    let mut types = BTreeSet::new();
    for operation in document()["paths"].as_object().unwrap().values().map(|path| &path[method]) {
        collect(answer_schema(operation), "", &mut types, &mut fields);
    }
    fields
}

fn answer_schema(operation: &Value) -> &Value {
    &operation["responses"]["200"]["content"]["application/json"]["schema"]
}

fn named(schema: &Value) -> Option<(&str, &'static Value)> {
    let name = schema["$ref"].as_str()?.rsplit('/').next()?;
    Some((name, &document()["components"]["schemas"][name]))
}

fn parts(schema: &Value) -> impl Iterator<Item = &Value> {
    ["allOf", "oneOf", "anyOf"].into_iter().flat_map(|word| schema[word].as_array().into_iter().flatten())
}

fn walk_in(schema: &Value, name: &str, value: &Value, see: &mut dyn FnMut(&str, &Value)) {
    if let Some((name, schema)) = named(schema) {
        return walk_in(schema, name, value, see);
    }
    if value.is_null() {
        return;
    }
    parts(schema).for_each(|part| walk_in(part, name, value, see));
    for (field, of) in schema["properties"].as_object().into_iter().flatten() {
        see(&format!("{name}.{field}"), &value[field]);
        walk_in(of, &format!("{name}.{field}"), &value[field], see);
    }
    value.as_array().into_iter().flatten().for_each(|item| walk_in(&schema["items"], name, item, see));
    if schema["additionalProperties"].is_object() {
        let members = value.as_object().into_iter().flatten();
        members.for_each(|(_, member)| walk_in(&schema["additionalProperties"], name, member, see));
    }
}

fn collect(schema: &Value, name: &str, types: &mut BTreeSet<String>, fields: &mut BTreeSet<String>) {
    if let Some((name, schema)) = named(schema) {
        if types.insert(name.to_string()) {
            collect(schema, name, types, fields);
        }
        return;
    }
    let inside =
        [&schema["items"], &schema["additionalProperties"]].into_iter().filter(|part| part.is_object());
    for part in parts(schema).chain(inside) {
        collect(part, name, types, fields);
    }
    for (field, of) in schema["properties"].as_object().into_iter().flatten() {
        fields.insert(format!("{name}.{field}"));
        collect(of, &format!("{name}.{field}"), types, fields);
    }
}

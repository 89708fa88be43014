//! A request message as the request of its REST operation.
//!
//! Every scalar field of a request has presence, so that a field that was not set and one that was set to zero differ
//! in JSON too.

use axum::body::Body;
use axum::http::Request;
use axum::http::header::CONTENT_TYPE;
use prost_reflect::{DynamicMessage, MessageDescriptor, SerializeOptions};
use serde_json::{Map, Value};

use super::operations::{Operation, RequestBody};
use crate::http::ApiError;

/// Beside a body that is a single field, the field that lists fields of the body to clear.
const CLEAR_FIELD: &str = "clear";

/// Names and values as the REST API writes them.
const JSON_OPTIONS: SerializeOptions =
    SerializeOptions::new().use_proto_field_name(true).stringify_64_bit_integers(false);

/// The request of an operation, without headers of the caller. `authority` is the host that the caller named.
pub fn rest_request(
    operation: &Operation,
    message: &DynamicMessage,
    authority: Option<&str>,
) -> Result<Request<Body>, ApiError> {
    let mut fields = fields(message)?;
    let path = fill_path(&operation.path, &mut fields)?;
    let body = take_body(operation, &mut fields)?;
    let parameters = fields.iter().map(|(name, value)| format!("{name}={}", percent_encoded(&plain_text(value))));
    let query: Vec<String> =
        Some(operation.query.clone()).filter(|query| !query.is_empty()).into_iter().chain(parameters).collect();
    let host = authority.map_or_else(String::new, |authority| format!("http://{authority}"));
    let uri = match query.is_empty() {
        true => format!("{host}{path}"),
        false => format!("{host}{path}?{}", query.join("&")),
    };
    let request = Request::builder().method(&operation.method).uri(uri);
    let request = match body {
        Some(body) => request.header(CONTENT_TYPE, "application/json").body(Body::from(muster_json::to_vec(&body))),
        None => request.body(Body::empty()),
    };
    request.map_err(|error| ApiError::malformed(format!("the call cannot be expressed as a request: {error}")))
}

fn fields(message: &DynamicMessage) -> Result<Map<String, Value>, ApiError> {
    let written = message.serialize_with_options(serde_json::value::Serializer, &JSON_OPTIONS);
    let mut value = written.map_err(|error| ApiError::malformed(error.to_string()))?;
    // Maps of messages have no order, and an idempotency key is for the same bytes.
    value.sort_all_objects();
    match value {
        Value::Object(fields) => Ok(fields),
        _ => Err(ApiError::internal("a message is no JSON object")),
    }
}

/// The path, with fields in place of their names in braces.
fn fill_path(path: &str, fields: &mut Map<String, Value>) -> Result<String, ApiError> {
    let mut filled = String::new();
    for part in path.split('/').skip(1) {
        filled.push('/');
        match part.strip_prefix('{').and_then(|part| part.strip_suffix('}')) {
            None => filled.push_str(part),
            Some(name) => {
                let value = fields.remove(name).map(|value| plain_text(&value)).unwrap_or_default();
                if value.is_empty() {
                    return Err(ApiError::malformed(format!("{name}: is missing")));
                }
                filled.push_str(&percent_encoded(&value));
            }
        }
    }
    Ok(filled)
}

fn take_body(operation: &Operation, fields: &mut Map<String, Value>) -> Result<Option<Value>, ApiError> {
    match &operation.body {
        RequestBody::None => Ok(None),
        RequestBody::AllFields => Ok(Some(Value::Object(std::mem::take(fields)))),
        RequestBody::Field(name) => {
            let body = fields.remove(name).unwrap_or_else(|| Value::Object(Map::new()));
            let to_clear = fields.remove(CLEAR_FIELD).unwrap_or_default();
            let descriptor = operation.input.get_field_by_name(name);
            let descriptor = descriptor.and_then(|field| field.kind().as_message().cloned());
            let (Value::Object(mut body), Some(descriptor)) = (body, descriptor) else {
                return Err(ApiError::internal("the body of the operation is no message"));
            };
            for field in to_clear.as_array().into_iter().flatten().filter_map(Value::as_str) {
                clear_field(&mut body, &descriptor, field)?;
            }
            Ok(Some(Value::Object(body)))
        }
    }
}

/// A list or map becomes empty; any other field becomes `null`, which removes a limit.
fn clear_field(body: &mut Map<String, Value>, descriptor: &MessageDescriptor, name: &str) -> Result<(), ApiError> {
    let Some(field) = descriptor.get_field_by_name(name) else {
        let known: Vec<String> = descriptor.fields().map(|field| field.name().to_string()).collect();
        let nearest = crate::config::nearest(name, known.iter().map(String::as_str));
        let error = ApiError::malformed(format!("clear: `{name}` is not a field of `{}`", descriptor.name()));
        return Err(match nearest {
            Some(known) => error.hint(format!("did you mean `{known}`?")),
            None => error,
        });
    };
    let cleared = match (field.is_map(), field.is_list()) {
        (true, _) => Value::Object(Map::new()),
        (_, true) => Value::Array(Vec::new()),
        _ => Value::Null,
    };
    match body.insert(name.to_string(), cleared) {
        None => Ok(()),
        Some(_) => Err(ApiError::malformed(format!("clear: `{name}` is also set; either set or clear it"))),
    }
}

fn plain_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn percent_encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => encoded.push(char::from(byte)),
            other => encoded.push_str(&format!("%{other:02X}")),
        }
    }
    encoded
}

//! JSON objects of requests. An error names the field that caused it, and the nearest known field.

use muster_core::nearest::nearest;
use serde::de::DeserializeOwned;

/// Why a JSON object cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct RequestJsonError {
    /// Stable across releases.
    pub code: &'static str,
    pub detail: String,
    pub hint: Option<String>,
}

impl RequestJsonError {
    fn new(code: &'static str, detail: impl Into<String>) -> RequestJsonError {
        RequestJsonError { code, detail: detail.into(), hint: None }
    }

    fn malformed(detail: impl Into<String>) -> RequestJsonError {
        RequestJsonError::new("malformed", detail)
    }

    fn hint(self, hint: impl Into<String>) -> RequestJsonError {
        RequestJsonError { hint: Some(hint.into()), ..self }
    }
}

/// Parse a JSON object.
pub fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, RequestJsonError> {
    if bytes.trim_ascii().is_empty() {
        return Err(RequestJsonError::malformed("the request has no body").hint("send a JSON object"));
    }
    // serde would also fill the fields from an array, in the order of their declaration.
    if bytes.trim_ascii().starts_with(b"[") && muster_json::from_slice::<serde_json::Value>(bytes).is_ok() {
        return Err(RequestJsonError::malformed("the body must be a JSON object"));
    }
    muster_json::from_slice(bytes).map_err(|error| body_error::<T>(bytes, &error.to_string()))
}

/// The error with the field that caused it: the field that alone gives the same error.
fn body_error<T: DeserializeOwned>(bytes: &[u8], message: &str) -> RequestJsonError {
    if let Some(error) = unknown_field_error(message) {
        return error;
    }
    let members = match muster_json::from_slice::<serde_json::Value>(bytes) {
        Ok(serde_json::Value::Object(members)) => members,
        Ok(_) => return RequestJsonError::malformed("the body must be a JSON object"),
        Err(_) => {
            return RequestJsonError::malformed(format!("the body is not JSON: {}", without_rust_types(message)));
        }
    };
    let culprit = members.iter().find(|(name, value)| {
        let alone = serde_json::Map::from_iter([((*name).clone(), (*value).clone())]);
        let alone = muster_json::from_slice::<T>(&muster_json::to_vec(&alone));
        alone.is_err_and(|error| error.to_string() == message)
    });
    match culprit {
        Some((name, _)) => RequestJsonError::malformed(format!("{name}: {}", without_rust_types(message))),
        None => RequestJsonError::malformed(without_rust_types(message)),
    }
}

/// An unknown field, with the nearest known one as a hint. The message of serde lists all known fields.
pub fn unknown_field_error(message: &str) -> Option<RequestJsonError> {
    let mut quoted = message.split_once("unknown field `")?.1.split('`');
    let sent = quoted.next()?;
    let known: Vec<&str> = quoted.skip(1).step_by(2).collect();
    let error = RequestJsonError::new("unknown-field", format!("unknown field `{sent}`"));
    Some(match nearest(sent, known.iter().copied()) {
        Some(meant) => error.hint(format!("did you mean `{meant}`?")),
        None => error.hint(format!("the fields are {}", known.join(", "))),
    })
}

/// The message of serde with its Rust types replaced by words of the API.
fn without_rust_types(message: &str) -> String {
    let number = "a whole number that is not negative";
    let words = [
        ("expected u64", number),
        ("expected u32", number),
        ("expected u8", number),
        ("expected i64", "a whole number"),
        ("expected i32", "a whole number"),
        ("expected f64", "a number"),
        ("expected a string", "text"),
        ("expected a boolean", "`true` or `false`"),
        ("expected a sequence", "a list"),
        ("expected a map", "an object"),
    ];
    let found = words.iter().find(|(rust, _)| message.ends_with(rust));
    match found {
        Some((rust, plain)) => message.replace(rust, &format!("expected {plain}")),
        None => message.to_string(),
    }
}

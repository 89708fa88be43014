//! JSON bodies. An error names the field; an unknown field gets the nearest known name as a hint.

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{FromRequest, Request};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::config::nearest;
use crate::http::api_error::ApiError;

/// Largest body of any request.
pub const BODY_BYTES_MAX: usize = 1 << 20;

/// A JSON body of a request or a response.
pub struct Json<T>(pub T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        let content_type = [(CONTENT_TYPE, HeaderValue::from_static("application/json"))];
        (content_type, muster_json::to_vec(&self.0)).into_response()
    }
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Json<T>, ApiError> {
        let (parts, body) = request.into_parts();
        let bytes = read_bytes(&parts.headers, body, BODY_BYTES_MAX).await?;
        parse(&bytes).map(Json)
    }
}

/// A JSON body that may be absent.
pub struct OptionalJson<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for OptionalJson<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<OptionalJson<T>, ApiError> {
        let (parts, body) = request.into_parts();
        let bytes = read_bytes(&parts.headers, body, BODY_BYTES_MAX).await?;
        let bytes: &[u8] = if bytes.trim_ascii().is_empty() { b"{}" } else { &bytes };
        parse(bytes).map(OptionalJson)
    }
}

/// The bytes of a body, if its content type is JSON and it is not too large.
pub async fn read_bytes(headers: &HeaderMap, body: Body, bytes_max: usize) -> Result<Bytes, ApiError> {
    check_content_type(headers)?;
    to_bytes(body, bytes_max).await.map_err(|error| {
        let too_large = std::error::Error::source(&error)
            .is_some_and(|source| source.is::<http_body_util::LengthLimitError>());
        match too_large {
            true => {
                let detail = format!("the body is larger than {} KiB", bytes_max / 1024);
                ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", detail)
            }
            false => ApiError::malformed("the body could not be read to its end"),
        }
    })
}

/// A missing content type counts as JSON: many clients omit it, and no other type is supported.
fn check_content_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let Some(value) = headers.get(CONTENT_TYPE) else { return Ok(()) };
    let media_type = value.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim();
    let is_json = media_type.eq_ignore_ascii_case("application/json")
        || media_type.to_ascii_lowercase().ends_with("+json");
    if is_json {
        return Ok(());
    }
    let detail = format!("media type `{media_type}` is not supported");
    Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported-media-type", detail)
        .hint("send `Content-Type: application/json`"))
}

/// Parse a JSON object.
pub fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    if bytes.trim_ascii().is_empty() {
        return Err(ApiError::malformed("the request has no body").hint("send a JSON object"));
    }
    // serde would also fill the fields from an array, in the order of their declaration.
    if bytes.trim_ascii().starts_with(b"[") && muster_json::from_slice::<serde_json::Value>(bytes).is_ok() {
        return Err(ApiError::malformed("the body must be a JSON object"));
    }
    muster_json::from_slice(bytes).map_err(|error| body_error::<T>(bytes, &error.to_string()))
}

/// The error with the field that caused it: the field that alone gives the same error.
fn body_error<T: DeserializeOwned>(bytes: &[u8], message: &str) -> ApiError {
    if let Some(error) = unknown_field_error(message) {
        return error;
    }
    let members = match muster_json::from_slice::<serde_json::Value>(bytes) {
        Ok(serde_json::Value::Object(members)) => members,
        Ok(_) => return ApiError::malformed("the body must be a JSON object"),
        Err(_) => return ApiError::malformed(format!("the body is not JSON: {}", without_rust_types(message))),
    };
    let culprit = members.iter().find(|(name, value)| {
        let alone = serde_json::Map::from_iter([((*name).clone(), (*value).clone())]);
        let alone = muster_json::from_slice::<T>(&muster_json::to_vec(&alone));
        alone.is_err_and(|error| error.to_string() == message)
    });
    match culprit {
        Some((name, _)) => ApiError::malformed(format!("{name}: {}", without_rust_types(message))),
        None => ApiError::malformed(without_rust_types(message)),
    }
}

/// An unknown field, with the nearest known one as a hint. The message of serde lists all known fields.
pub fn unknown_field_error(message: &str) -> Option<ApiError> {
    let mut quoted = message.split_once("unknown field `")?.1.split('`');
    let sent = quoted.next()?;
    let known: Vec<&str> = quoted.skip(1).step_by(2).collect();
    let error = ApiError::new(StatusCode::BAD_REQUEST, "unknown-field", format!("unknown field `{sent}`"));
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

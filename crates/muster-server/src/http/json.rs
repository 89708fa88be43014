//! JSON in and out. What cannot be read is answered with the field and the nearest known name.

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{FromRequest, Request};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::config::nearest;
use crate::http::fault::Fault;

/// Largest body of any request.
pub const BODY_BYTES_MAX: usize = 1 << 20;

/// A JSON body, read or to be written.
pub struct Json<T>(pub T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        let content_type = [(CONTENT_TYPE, HeaderValue::from_static("application/json"))];
        (content_type, muster_json::to_vec(&self.0)).into_response()
    }
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = Fault;

    async fn from_request(request: Request, _: &S) -> Result<Json<T>, Fault> {
        let (parts, body) = request.into_parts();
        let bytes = read_bytes(&parts.headers, body, BODY_BYTES_MAX).await?;
        parse(&bytes).map(Json)
    }
}

/// A JSON body that may be left out.
pub struct OptionalJson<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for OptionalJson<T> {
    type Rejection = Fault;

    async fn from_request(request: Request, _: &S) -> Result<OptionalJson<T>, Fault> {
        let (parts, body) = request.into_parts();
        let bytes = read_bytes(&parts.headers, body, BODY_BYTES_MAX).await?;
        let bytes: &[u8] = if bytes.trim_ascii().is_empty() { b"{}" } else { &bytes };
        parse(bytes).map(OptionalJson)
    }
}

/// The body as it was sent, if it says it is JSON and is not too large.
pub async fn read_bytes(headers: &HeaderMap, body: Body, bytes_max: usize) -> Result<Bytes, Fault> {
    check_content_type(headers)?;
    to_bytes(body, bytes_max).await.map_err(|error| {
        let too_large = std::error::Error::source(&error)
            .is_some_and(|source| source.is::<http_body_util::LengthLimitError>());
        match too_large {
            true => {
                let detail = format!("the body is larger than {} KiB", bytes_max / 1024);
                Fault::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", detail)
            }
            false => Fault::malformed("the body could not be read to its end"),
        }
    })
}

/// Nothing said is taken for JSON: many clients forget it, and nothing else is understood anyway.
fn check_content_type(headers: &HeaderMap) -> Result<(), Fault> {
    let Some(value) = headers.get(CONTENT_TYPE) else { return Ok(()) };
    let media_type = value.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim();
    let is_json = media_type.eq_ignore_ascii_case("application/json")
        || media_type.to_ascii_lowercase().ends_with("+json");
    if is_json {
        return Ok(());
    }
    let detail = format!("`{media_type}` is not understood");
    Err(Fault::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported-media-type", detail)
        .hint("send `Content-Type: application/json`"))
}

/// Read a body.
pub fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Fault> {
    if bytes.trim_ascii().is_empty() {
        return Err(Fault::malformed("the request has no body").hint("send a JSON object"));
    }
    // serde would also fill the fields from a list, in the order in which we happen to write them.
    if bytes.trim_ascii().starts_with(b"[") && muster_json::from_slice::<serde_json::Value>(bytes).is_ok() {
        return Err(Fault::malformed("the body must be a JSON object"));
    }
    muster_json::from_slice(bytes).map_err(|error| explain::<T>(bytes, &error.to_string()))
}

/// Say which field is wrong: the one that alone gives the same error.
fn explain<T: DeserializeOwned>(bytes: &[u8], message: &str) -> Fault {
    if let Some(fault) = unknown_field(message) {
        return fault;
    }
    let members = match muster_json::from_slice::<serde_json::Value>(bytes) {
        Ok(serde_json::Value::Object(members)) => members,
        Ok(_) => return Fault::malformed("the body must be a JSON object"),
        Err(_) => return Fault::malformed(format!("the body is not JSON: {}", humane(message))),
    };
    let culprit = members.iter().find(|(name, value)| {
        let alone = serde_json::Map::from_iter([((*name).clone(), (*value).clone())]);
        let alone = muster_json::from_slice::<T>(&muster_json::to_vec(&alone));
        alone.is_err_and(|error| error.to_string() == message)
    });
    match culprit {
        Some((name, _)) => Fault::malformed(format!("{name}: {}", humane(message))),
        None => Fault::malformed(humane(message)),
    }
}

/// A field nobody knows, with the nearest one that is known. serde names them all in its message.
pub fn unknown_field(message: &str) -> Option<Fault> {
    let mut quoted = message.split_once("unknown field `")?.1.split('`');
    let said = quoted.next()?;
    let known: Vec<&str> = quoted.skip(1).step_by(2).collect();
    let fault =
        Fault::new(StatusCode::BAD_REQUEST, "unknown-field", format!("there is no field `{said}` here"));
    Some(match nearest(said, known.iter().copied()) {
        Some(meant) => fault.hint(format!("did you mean `{meant}`?")),
        None => fault.hint(format!("known are {}", known.join(", "))),
    })
}

/// serde speaks of Rust types; people read other words.
fn humane(message: &str) -> String {
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

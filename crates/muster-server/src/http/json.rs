//! JSON bodies. An error names the field; an unknown field gets the nearest known name as a hint.

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{FromRequest, Request};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::http::api_error::ApiError;
use crate::request_json::parse;

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
        Ok(Json(parse(&bytes)?))
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
        Ok(OptionalJson(parse(bytes)?))
    }
}

/// The bytes of a body, if its content type is JSON and it is not too large.
pub async fn read_bytes(headers: &HeaderMap, body: Body, bytes_max: usize) -> Result<Bytes, ApiError> {
    check_content_type(headers)?;
    to_bytes(body, bytes_max).await.map_err(|error| {
        let too_large =
            std::error::Error::source(&error).is_some_and(|source| source.is::<http_body_util::LengthLimitError>());
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
    let is_json =
        media_type.eq_ignore_ascii_case("application/json") || media_type.to_ascii_lowercase().ends_with("+json");
    if is_json {
        return Ok(());
    }
    let detail = format!("media type `{media_type}` is not supported");
    Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported-media-type", detail)
        .hint("send `Content-Type: application/json`"))
}

//! Request tracing: each request has an id in its span, in the log and in the response, and a time limit.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::extract::Request;
use axum::http::header::X_CONTENT_TYPE_OPTIONS;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::time::timeout;
use tracing::{Instrument, debug, info_span, warn};

use crate::http::api_error::ApiError;

/// The header with the id of a request, in requests and responses.
pub const REQUEST_ID_HEADER: HeaderName = HeaderName::from_static("x-request-id");

/// Longest request id that a client may choose.
const CLIENT_REQUEST_ID_BYTES_MAX: usize = 64;

/// Bytes of a path in the log. Every log line of a request repeats the path.
const LOGGED_PATH_BYTES_MAX: usize = 200;

/// Time limit until a response begins, as the specification sets it.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);

/// Give the request an id, run it within the time limit, and log its status and duration.
pub async fn trace_request(request: Request, next: Next) -> Response {
    let id = client_request_id(&request).unwrap_or_else(next_request_id);
    let span = info_span!("request", %id, method = %request.method(), path = logged_path(request.uri().path()));
    let started = Instant::now();
    let answer = timeout(RESPONSE_TIMEOUT, next.run(request).instrument(span.clone()));
    let mut response = answer.await.unwrap_or_else(|_| timed_out().into_response());
    let (status, elapsed_ms) = (response.status(), started.elapsed().as_millis());
    span.in_scope(|| match status.is_server_error() && status != StatusCode::SERVICE_UNAVAILABLE {
        true => warn!(%status, elapsed_ms, "request completed"),
        false => debug!(%status, elapsed_ms, "request completed"),
    });
    if let Ok(id) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID_HEADER, id);
    }
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// The path, shortened for the log.
fn logged_path(path: &str) -> &str {
    // A path is ASCII, so every byte is a boundary.
    path.get(..LOGGED_PATH_BYTES_MAX).unwrap_or(path)
}

fn timed_out() -> ApiError {
    ApiError::unavailable("the request timed out; the command may still take effect, so check before you retry")
}

/// The id that the client chose for its request, if it is short and plain enough for the log.
fn client_request_id(request: &Request) -> Option<String> {
    let id = request.headers().get(REQUEST_ID_HEADER)?.to_str().ok()?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    ((1..=CLIENT_REQUEST_ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(plain)).then(|| id.to_string())
}

/// Contains the process id, so ids differ after a restart.
fn next_request_id() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("r{:x}-{number}", std::process::id())
}

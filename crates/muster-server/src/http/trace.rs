//! Each request has a number: in its span, in the log, and in the answer.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::extract::Request;
use axum::http::header::X_CONTENT_TYPE_OPTIONS;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::time::timeout;
use tracing::{Instrument, debug, info_span, warn};

use crate::http::fault::Fault;

/// The header that carries the id of a request, both ways.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Longest id that a client may give its request.
const GIVEN_LENGTH_MAX: usize = 64;

/// Bytes of a path in the log. Every line of a request carries it.
const PATH_LENGTH_MAX: usize = 200;

/// How long anyone waits for an answer to begin; the seed's figure.
const PATIENCE: Duration = Duration::from_secs(60);

/// Give the request its number, and say how it went.
pub async fn follow(request: Request, next: Next) -> Response {
    let id = given_id(&request).unwrap_or_else(next_id);
    let span = info_span!("request", %id, method = %request.method(), path = beginning(request.uri().path()));
    let started = Instant::now();
    let answer = timeout(PATIENCE, next.run(request).instrument(span.clone()));
    let mut response = answer.await.unwrap_or_else(|_| too_long().into_response());
    let (status, elapsed_ms) = (response.status(), started.elapsed().as_millis());
    span.in_scope(|| match status.is_server_error() && status != StatusCode::SERVICE_UNAVAILABLE {
        true => warn!(%status, elapsed_ms, "answered"),
        false => debug!(%status, elapsed_ms, "answered"),
    });
    if let Ok(id) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// As much of a path as a log line has room for.
fn beginning(path: &str) -> &str {
    // A path is ASCII, so every byte is a boundary.
    path.get(..PATH_LENGTH_MAX).unwrap_or(path)
}

fn too_long() -> Fault {
    Fault::unavailable("no answer in time; what was asked may still happen, so look before you repeat it")
}

/// A client may name its requests to find them again; only plain words are taken over.
fn given_id(request: &Request) -> Option<String> {
    let id = request.headers().get(REQUEST_ID)?.to_str().ok()?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    ((1..=GIVEN_LENGTH_MAX).contains(&id.len()) && id.bytes().all(plain)).then(|| id.to_string())
}

/// Different after a restart as well.
fn next_id() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("r{:x}-{number}", std::process::id())
}

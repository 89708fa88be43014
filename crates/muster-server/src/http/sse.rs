//! Server-sent events: a response body that is written while the client reads it.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use serde::Serialize;
use tokio::sync::mpsc;

use crate::http::rate_limit::StreamPermit;

/// Events buffered for a slow client.
const BUFFERED_EVENTS_MAX: usize = 64;

/// Silence after which a comment is sent, so that no proxy closes the connection.
pub const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// How often a stream checks its token. Revocation and expiry end the stream within this time.
pub const TOKEN_CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Writes events to a client. Writing fails once the client has disconnected.
pub struct SseWriter {
    sender: mpsc::Sender<Bytes>,
    _permit: StreamPermit,
}

pub struct ClientDisconnected;

impl SseWriter {
    pub async fn send<T: Serialize>(&self, name: &str, id: Option<u64>, data: &T) -> Result<(), ClientDisconnected> {
        let id = id.map_or_else(String::new, |id| format!("id: {id}\n"));
        let text = format!("{id}event: {name}\ndata: {}\n\n", muster_json::to_string(data));
        self.write(text).await
    }

    /// Write a comment that keeps the connection open.
    pub async fn keep_alive(&self) -> Result<(), ClientDisconnected> {
        self.write(": still here\n\n".to_string()).await
    }

    async fn write(&self, text: String) -> Result<(), ClientDisconnected> {
        self.sender.send(Bytes::from(text)).await.map_err(|_| ClientDisconnected)
    }
}

/// A writer, and the response that reads from it.
pub fn open_sse(permit: StreamPermit) -> (SseWriter, Response) {
    let (sender, receiver) = mpsc::channel(BUFFERED_EVENTS_MAX);
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    (SseWriter { sender, _permit: permit }, (headers, Body::new(SseBody(receiver))).into_response())
}

struct SseBody(mpsc::Receiver<Bytes>);

impl hyper::body::Body for SseBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}

//! Server-sent events: a body that is written while it is read.

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

use crate::http::rate::StreamPermit;

/// Events that may wait for a slow reader.
const WAITING_MAX: usize = 64;

/// Silence after which a comment is sent, so that nobody in between hangs up.
pub const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// How often a stream looks whether its token still counts. Revocation and expiry end it within this time.
pub const TOKEN_CHECKED_EVERY: Duration = Duration::from_millis(500);

/// Where events are written. Writing fails when the reader has gone.
pub struct Writer {
    sender: mpsc::Sender<Bytes>,
    _permit: StreamPermit,
}

/// The reader has gone.
pub struct Gone;

impl Writer {
    /// Write one event.
    pub async fn send<T: Serialize>(&self, name: &str, id: Option<u64>, data: &T) -> Result<(), Gone> {
        let id = id.map_or_else(String::new, |id| format!("id: {id}\n"));
        let text = format!("{id}event: {name}\ndata: {}\n\n", muster_json::to_string(data));
        self.write(text).await
    }

    /// Say that we are still there.
    pub async fn keep_alive(&self) -> Result<(), Gone> {
        self.write(": still here\n\n".to_string()).await
    }

    async fn write(&self, text: String) -> Result<(), Gone> {
        self.sender.send(Bytes::from(text)).await.map_err(|_| Gone)
    }
}

/// A writer, and the response that reads from it.
pub fn open(permit: StreamPermit) -> (Writer, Response) {
    let (sender, receiver) = mpsc::channel(WAITING_MAX);
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    (Writer { sender, _permit: permit }, (headers, Body::new(Reader(receiver))).into_response())
}

struct Reader(mpsc::Receiver<Bytes>);

impl hyper::body::Body for Reader {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}

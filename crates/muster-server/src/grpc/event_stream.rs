//! Server-sent events of REST as a stream of messages.
//!
//! If the message has a field with the name of the event, the data of the event is that field; otherwise it is the
//! message. `problem` and `lagged` end the stream with an error.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::{Body, HttpBody, to_bytes};
use axum::http::{Response, StatusCode};
use muster_protocol::event::Lagged;
use muster_protocol::problem::Problem;
use prost_reflect::{DynamicMessage, MessageDescriptor, Value};
use tokio_stream::Stream;
use tonic::metadata::MetadataMap;
use tonic::{Response as Reply, Status};

use super::answer::message;
use super::status::{metadata, status_of_error, status_of_problem, status_of_response};
use crate::http::ApiError;

/// The field and the event that ends an output.
const END_EVENT: &str = "end";

/// The messages of an event stream.
pub struct EventMessages {
    body: Body,
    /// Bytes of an event that is not complete.
    buffer: Vec<u8>,
    output: MessageDescriptor,
    /// `end` events to come. The stream is complete after the last one; without any it never is.
    ends_left: Option<usize>,
    ended: bool,
}

/// The response of a method that is a stream. `outputs` is how many outputs a caller follows.
pub async fn stream_reply(
    response: Response<Body>,
    output: MessageDescriptor,
    outputs: usize,
) -> Result<Reply<EventMessages>, Status> {
    let (parts, body) = response.into_parts();
    if !parts.status.is_success() {
        let bytes = to_bytes(body, usize::MAX).await.unwrap_or_default();
        return Err(status_of_response(parts.status, &parts.headers, &bytes));
    }
    let ends_left = output.get_field_by_name(END_EVENT).map(|_| outputs);
    let mut reply = Reply::new(EventMessages { body, buffer: Vec::new(), output, ends_left, ended: false });
    *reply.metadata_mut() = metadata(&parts.headers);
    Ok(reply)
}

impl Stream for EventMessages {
    type Item = Result<DynamicMessage, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        while !self.ended {
            if let Some(event) = self.take_event() {
                if let Some(item) = self.item(&event) {
                    self.ended = item.is_err();
                    return Poll::Ready(Some(item));
                }
                continue;
            }
            match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => self.buffer.extend(frame.into_data().unwrap_or_default()),
                Some(Err(_)) | None => {
                    self.ended = true;
                    return Poll::Ready((self.ends_left != Some(0)).then(|| Err(interrupted())));
                }
            }
        }
        Poll::Ready(None)
    }
}

impl EventMessages {
    /// The first complete event of the buffer.
    fn take_event(&mut self) -> Option<String> {
        let end = self.buffer.windows(2).position(|pair| pair == b"\n\n")?;
        let event: Vec<u8> = self.buffer.drain(..end + 2).collect();
        Some(String::from_utf8_lossy(&event).into_owned())
    }

    /// `None` for a comment.
    fn item(&mut self, event: &str) -> Option<Result<DynamicMessage, Status>> {
        let line = |field: &str| event.lines().find_map(|line| line.strip_prefix(field));
        let (name, data) = (line("event: ")?, line("data: ")?);
        let field = self.output.get_field_by_name(name);
        Some(match (name, field) {
            ("problem", _) => Err(problem_status(data)),
            ("lagged", _) => Err(lagged_status(data)),
            (name, Some(field)) => {
                if name == END_EVENT {
                    self.ends_left = self.ends_left.map(|left| left.saturating_sub(1));
                }
                let inner = field.kind().as_message().cloned();
                let inner = inner.ok_or_else(|| Status::internal("an event is no message"));
                inner.and_then(|inner| message(data.as_bytes(), inner)).map(|inner| {
                    let mut outer = DynamicMessage::new(self.output.clone());
                    outer.set_field(&field, Value::Message(inner));
                    outer
                })
            }
            (_, None) => message(data.as_bytes(), self.output.clone()),
        })
    }
}

fn problem_status(data: &str) -> Status {
    match muster_json::from_str::<Problem>(data) {
        Ok(problem) => status_of_problem(problem, MetadataMap::new()),
        Err(error) => Status::unknown(error.to_string()),
    }
}

fn lagged_status(data: &str) -> Status {
    let Ok(Lagged { after, .. }) = muster_json::from_str(data) else {
        return Status::unknown("the client is too slow");
    };
    let detail = format!("the client is too slow; the last event that was sent is {after}");
    status_of_error(
        &ApiError::new(StatusCode::CONFLICT, "lagged", detail).hint(format!("call again with after = {after}")),
    )
}

fn interrupted() -> Status {
    let error = ApiError::unavailable("the server stops, and has closed the stream");
    status_of_error(&error.hint("call again, and go on after the last message"))
}

#[cfg(test)]
mod tests {
    use axum::body::Bytes;
    use tokio_stream::StreamExt;
    use tonic::Code;

    use super::*;

    /// The `seq` of each message of the stream of events, and the status that ends it.
    async fn read(chunks: &[&'static str]) -> (Vec<u64>, Option<Status>) {
        let pool = prost_reflect::DescriptorPool::decode(muster_wire::FILE_DESCRIPTOR_SET).unwrap();
        let output = pool.get_message_by_name("muster.v1.Event").unwrap();
        let chunks: Vec<Result<Bytes, std::io::Error>> = chunks.iter().map(|chunk| Ok(Bytes::from(*chunk))).collect();
        let body = Body::from_stream(tokio_stream::iter(chunks));
        let reply = stream_reply(Response::new(body), output, 1).await.unwrap();
        let (mut numbers, mut stream) = (Vec::new(), reply.into_inner());
        while let Some(item) = stream.next().await {
            match item {
                Ok(event) => numbers.push(event.get_field_by_name("seq").unwrap().as_u64().unwrap()),
                Err(status) => {
                    assert!(stream.next().await.is_none(), "the status is the end");
                    return (numbers, Some(status));
                }
            }
        }
        (numbers, None)
    }

    #[tokio::test]
    async fn events_in_any_pieces_are_messages_and_comments_are_not() {
        let chunks = [
            ": still here\n\nid: 1\nevent: Jo",
            "bSubmitted\ndata: {\"seq\":1,\"new\":[]}\n",
            "\nid: 2\nevent: JobPlaced\ndata: {\"seq\":2}\n\n: still here\n\nid: 3\nevent: X\ndata: {",
        ];
        let (numbers, end) = read(&chunks).await;
        assert_eq!(numbers, [1, 2]);
        assert_eq!(end.unwrap().code(), Code::Unavailable, "the third event was interrupted");
    }

    #[tokio::test]
    async fn a_client_that_is_too_slow_learns_where_to_go_on() {
        let lagged =
            "event: lagged\ndata: {\"after\":7,\"message\":\"too slow\"}\n\nid: 9\nevent: X\ndata: {\"seq\":9}\n\n";
        let (numbers, end) = read(&[lagged]).await;
        let end = end.unwrap();
        assert_eq!((numbers, end.code()), (Vec::new(), Code::Aborted));
        assert_eq!(end.metadata().get("muster-code").unwrap(), "lagged");
        assert!(end.message().contains('7'), "{}", end.message());
    }
}

//! Server-sent events: a body that is read piece by piece until the server ends it.

use http_body_util::BodyExt;
use hyper::Response;
use hyper::body::Incoming;

use crate::error::{CliError, Exit};

/// One event of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Message {
    /// What kind it is; `message` when the server does not say.
    pub event: String,
    /// What it says; several lines are joined.
    pub data: String,
}

/// A stream that is being followed.
pub struct Stream {
    body: Incoming,
    reader: Reader,
}

impl Stream {
    pub(super) fn new(response: Response<Incoming>) -> Stream {
        Stream { body: response.into_body(), reader: Reader::default() }
    }

    /// The next event; `None` when the server has ended the stream. May be dropped and called again.
    pub async fn next(&mut self) -> Result<Option<Message>, CliError> {
        loop {
            if let Some(message) = self.reader.pop() {
                return Ok(Some(message));
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(Ok(frame)) => self.reader.push(frame.data_ref().map(AsRef::as_ref).unwrap_or_default()),
                Some(Err(error)) => {
                    return Err(CliError::new(Exit::Unreachable, format!("the stream broke: {error}")));
                }
            }
        }
    }
}

/// Cuts bytes into events.
#[derive(Debug, Default)]
struct Reader {
    bytes: Vec<u8>,
}

impl Reader {
    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole event. Comments, which keep the connection awake, are events without data and skipped.
    fn pop(&mut self) -> Option<Message> {
        while let Some(end) = end_of_event(&self.bytes) {
            let block: Vec<u8> = self.bytes.drain(..end).collect();
            if let Some(message) = message_of(&String::from_utf8_lossy(&block)) {
                return Some(message);
            }
        }
        None
    }
}

/// Where the first event ends: after an empty line.
fn end_of_event(bytes: &[u8]) -> Option<usize> {
    let mut line_is_empty = true;
    for (place, byte) in bytes.iter().enumerate() {
        match byte {
            b'\n' if line_is_empty => return Some(place + 1),
            b'\n' => line_is_empty = true,
            b'\r' => {}
            _ => line_is_empty = false,
        }
    }
    None
}

fn message_of(block: &str) -> Option<Message> {
    let mut message = Message { event: "message".to_string(), data: String::new() };
    let mut data: Vec<&str> = Vec::new();
    for line in block.lines() {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => message.event = value.to_string(),
            "data" => data.push(value),
            _ => {}
        }
    }
    message.data = data.join("\n");
    (!data.is_empty()).then_some(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(event: &str, data: &str) -> Message {
        Message { event: event.to_string(), data: data.to_string() }
    }

    #[test]
    fn events_are_cut_wherever_the_pieces_break() {
        let text = ": hello\n\nevent: log\nid: 7\ndata: {\"a\":1}\n\ndata: one\r\ndata:two\r\n\r\n";
        for cut in 0..text.len() {
            let mut reader = Reader::default();
            let mut seen = Vec::new();
            for piece in [&text[..cut], &text[cut..]] {
                reader.push(piece.as_bytes());
                seen.extend(std::iter::from_fn(|| reader.pop()));
            }
            assert_eq!(seen, [message("log", "{\"a\":1}"), message("message", "one\ntwo")], "cut at {cut}");
        }
    }

    #[test]
    fn half_an_event_waits_for_the_rest() {
        let mut reader = Reader::default();
        reader.push(b"data: half\n");
        assert_eq!(reader.pop(), None);
    }
}

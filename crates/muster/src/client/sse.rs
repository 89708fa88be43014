//! Server-sent events: a response body that is parsed in chunks until the server ends it.

use http_body_util::BodyExt;
use hyper::Response;
use hyper::body::Incoming;

use crate::error::{CliError, Exit};

/// One event of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SseEvent {
    /// The event type; `message` if the server names none.
    pub event: String,
    /// The lines of data, joined.
    pub data: String,
}

pub struct EventStream {
    body: Incoming,
    reader: SseParser,
}

impl EventStream {
    pub(super) fn new(response: Response<Incoming>) -> EventStream {
        EventStream { body: response.into_body(), reader: SseParser::default() }
    }

    /// The next event; `None` if the server has ended the stream. Cancel-safe.
    pub async fn next(&mut self) -> Result<Option<SseEvent>, CliError> {
        loop {
            if let Some(event) = self.reader.next_event() {
                return Ok(Some(event));
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(Ok(frame)) => self.reader.push_bytes(frame.data_ref().map(AsRef::as_ref).unwrap_or_default()),
                Some(Err(error)) => {
                    return Err(CliError::new(Exit::Unreachable, format!("the stream broke: {error}")));
                }
            }
        }
    }
}

#[derive(Debug, Default)]
struct SseParser {
    bytes: Vec<u8>,
}

impl SseParser {
    fn push_bytes(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next complete event. Keep-alive comments have no data and are skipped.
    fn next_event(&mut self) -> Option<SseEvent> {
        while let Some(end) = end_of_event(&self.bytes) {
            let block: Vec<u8> = self.bytes.drain(..end).collect();
            if let Some(event) = parse_event(&String::from_utf8_lossy(&block)) {
                return Some(event);
            }
        }
        None
    }
}

/// The length of the first event: it ends after an empty line.
fn end_of_event(bytes: &[u8]) -> Option<usize> {
    let mut line_is_empty = true;
    for (index, byte) in bytes.iter().enumerate() {
        match byte {
            b'\n' if line_is_empty => return Some(index + 1),
            b'\n' => line_is_empty = true,
            b'\r' => {}
            _ => line_is_empty = false,
        }
    }
    None
}

fn parse_event(block: &str) -> Option<SseEvent> {
    let mut parsed = SseEvent { event: "message".to_string(), data: String::new() };
    let mut data: Vec<&str> = Vec::new();
    for line in block.lines() {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => parsed.event = value.to_string(),
            "data" => data.push(value),
            _ => {}
        }
    }
    parsed.data = data.join("\n");
    (!data.is_empty()).then_some(parsed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(event: &str, data: &str) -> SseEvent {
        SseEvent { event: event.to_string(), data: data.to_string() }
    }

    #[test]
    fn events_are_parsed_from_arbitrary_chunks() {
        let text = ": hello\n\nevent: log\nid: 7\ndata: {\"a\":1}\n\ndata: one\r\ndata:two\r\n\r\n";
        for cut in 0..text.len() {
            let mut reader = SseParser::default();
            let mut seen = Vec::new();
            for piece in [&text[..cut], &text[cut..]] {
                reader.push_bytes(piece.as_bytes());
                seen.extend(std::iter::from_fn(|| reader.next_event()));
            }
            assert_eq!(seen, [event("log", "{\"a\":1}"), event("message", "one\ntwo")], "cut at {cut}");
        }
    }

    #[test]
    fn an_incomplete_event_is_not_returned() {
        let mut reader = SseParser::default();
        reader.push_bytes(b"data: half\n");
        assert_eq!(reader.next_event(), None);
    }
}

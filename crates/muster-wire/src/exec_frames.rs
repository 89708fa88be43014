//! The messages between a person and a program inside a job (`muster_protocol::exec`) as frames, and as bytes on an upgraded
//! HTTP connection: the length of a frame in four bytes, most significant first, then the `ExecFrame`.

use muster_protocol::exec::{ExecEnd, ExecMessage, ExecStream};
use prost::Message;

use crate::v1::exec_frame::Body;
use crate::v1::{self, ExecEnded, ExecResize};

/// The protocol in the header `Upgrade`.
pub const UPGRADE: &str = "muster-exec";
/// Far above every frame that either side sends.
const FRAME_BYTES_MAX: usize = 1 << 20;
const LENGTH_BYTES: usize = 4;

/// The frame of a message on a connection with several streams; `stream` is 0 where there is one only.
pub fn to_frame(stream: u64, message: ExecMessage) -> v1::ExecFrame {
    let body = match message {
        ExecMessage::Started => Body::Started(true),
        ExecMessage::Data { stream, bytes } => match stream {
            ExecStream::Input => Body::Input(bytes),
            ExecStream::Output => Body::Output(bytes),
            ExecStream::Error => Body::Error(bytes),
        },
        ExecMessage::EndOfInput => Body::EndOfInput(true),
        ExecMessage::Credit(bytes) => Body::Credit(bytes),
        ExecMessage::Resize { rows, columns } => {
            Body::Resize(ExecResize { rows: rows.into(), columns: columns.into() })
        }
        ExecMessage::Signal(number) => Body::Signal(number),
        ExecMessage::Ended(end) => Body::Ended(match end {
            ExecEnd::Exited(exit_code) => ExecEnded { exit_code, ..ExecEnded::default() },
            ExecEnd::Killed(signal) => ExecEnded { signal, ..ExecEnded::default() },
            ExecEnd::Failed { code, why } => ExecEnded { failure: code, why, ..ExecEnded::default() },
        }),
    };
    v1::ExecFrame { stream, body: Some(body) }
}

/// The message of a frame; `None` for a frame that opens or closes a stream, or of a later release.
pub fn to_message(frame: v1::ExecFrame) -> Option<ExecMessage> {
    let data = |stream, bytes| ExecMessage::Data { stream, bytes };
    Some(match frame.body? {
        Body::Started(_) => ExecMessage::Started,
        Body::Input(bytes) => data(ExecStream::Input, bytes),
        Body::Output(bytes) => data(ExecStream::Output, bytes),
        Body::Error(bytes) => data(ExecStream::Error, bytes),
        Body::EndOfInput(_) => ExecMessage::EndOfInput,
        Body::Credit(bytes) => ExecMessage::Credit(bytes),
        Body::Resize(ExecResize { rows, columns }) => {
            let clamped = |size: u32| u16::try_from(size).unwrap_or(u16::MAX);
            ExecMessage::Resize { rows: clamped(rows), columns: clamped(columns) }
        }
        Body::Signal(number) => ExecMessage::Signal(number),
        Body::Ended(ended) => ExecMessage::Ended(match ended {
            ExecEnded { failure, why, .. } if !failure.is_empty() => ExecEnd::Failed { code: failure, why },
            ExecEnded { signal, .. } if signal != 0 => ExecEnd::Killed(signal),
            ExecEnded { exit_code, .. } => ExecEnd::Exited(exit_code),
        }),
        Body::Open(_) | Body::Close(_) => return None,
    })
}

/// The bytes of a message on a connection of its own.
pub fn encode(message: ExecMessage) -> Vec<u8> {
    let frame = to_frame(0, message);
    let length = u32::try_from(frame.encoded_len()).unwrap_or(u32::MAX);
    let mut bytes = Vec::with_capacity(LENGTH_BYTES + frame.encoded_len());
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(&frame.encode_to_vec());
    bytes
}

/// The other side does not speak this protocol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a frame of {0} bytes cannot be read")]
pub struct BadFrame(usize);

/// Takes messages out of a stream of bytes.
#[derive(Debug, Default)]
pub struct MessageReader {
    bytes: Vec<u8>,
    /// Bytes of messages that were taken.
    taken: usize,
}

impl MessageReader {
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..std::mem::take(&mut self.taken));
        self.bytes.extend_from_slice(bytes);
    }

    /// The next complete message. Frames of a later release are skipped.
    pub fn next_message(&mut self) -> Result<Option<ExecMessage>, BadFrame> {
        loop {
            let Some((length, rest)) = self.bytes[self.taken..].split_first_chunk::<LENGTH_BYTES>() else {
                return Ok(None);
            };
            let length = u32::from_be_bytes(*length) as usize;
            if length > FRAME_BYTES_MAX {
                return Err(BadFrame(length));
            }
            let Some(frame) = rest.get(..length) else { return Ok(None) };
            let frame = v1::ExecFrame::decode(frame).map_err(|_| BadFrame(length))?;
            self.taken += LENGTH_BYTES + length;
            if let Some(message) = to_message(frame) {
                return Ok(Some(message));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages() -> Vec<ExecMessage> {
        let data = |stream| ExecMessage::Data { stream, bytes: b"\xff\0x".to_vec() };
        vec![
            ExecMessage::Started,
            data(ExecStream::Input),
            data(ExecStream::Output),
            data(ExecStream::Error),
            ExecMessage::Data { stream: ExecStream::Output, bytes: Vec::new() },
            ExecMessage::EndOfInput,
            ExecMessage::Credit(7),
            ExecMessage::Resize { rows: 50, columns: 132 },
            ExecMessage::Signal(2),
            ExecMessage::Ended(ExecEnd::Exited(0)),
            ExecMessage::Ended(ExecEnd::Exited(3)),
            ExecMessage::Ended(ExecEnd::Killed(9)),
            ExecMessage::Ended(ExecEnd::failed("attempt-ended", "over")),
        ]
    }

    #[test]
    fn messages_survive_any_cut() {
        let bytes: Vec<u8> = messages().into_iter().flat_map(encode).collect();
        for step in [1, 2, 3, 7, bytes.len()] {
            let (mut reader, mut seen) = (MessageReader::default(), Vec::new());
            for part in bytes.chunks(step) {
                reader.push(part);
                while let Some(message) = reader.next_message().unwrap() {
                    seen.push(message);
                }
            }
            assert_eq!(seen, messages(), "in parts of {step}");
        }
    }

    #[test]
    fn other_protocols_are_noticed() {
        let mut reader = MessageReader::default();
        reader.push(b"GET / HTTP/1.1\r\n");
        assert!(reader.next_message().is_err());
    }
}

//! The protocol between a worker and its server: messages with a length prefix. The first byte distinguishes JSON from
//! calls and their answers, which are encoded by [`super::wire`].

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::wire::{Reader, RecordDecoding, Writer};
use super::{Confinement, LoadedBundle};
use crate::call_batch::CallBatch;
use crate::error::PolicyError;
use crate::policy_value::PolicyValue;

/// First byte of a JSON message.
const JSON_TAG: u8 = b'J';
/// First byte of a message with calls or their answers.
const CALLS_TAG: u8 = b'C';

/// A request to a worker.
#[derive(Debug)]
pub enum Request {
    Control(ControlRequest),
    /// Calls of a function of the bundle.
    Call(CallRequest),
}

/// A request that calls no function.
#[derive(Debug, Serialize, Deserialize)]
pub enum ControlRequest {
    /// The first request, sent once: the limits that the worker sets on itself.
    Confine(Confinement),
    /// Load a bundle, given as files by name.
    Load { files: BTreeMap<String, String> },
    /// Run the tests of a bundle, given as files by name.
    Test { files: BTreeMap<String, String> },
}

/// Some calls of a batch.
#[derive(Debug)]
pub struct CallRequest {
    /// The file that defines the function.
    pub file: String,
    pub function: String,
    /// The batch, unless the worker has cached it. The worker keeps a batch until the next one, so that a batch that is
    /// split over messages or called in several files is sent once.
    pub calls: Option<CallBatch>,
    /// Indexes of the calls to make.
    pub range: Range<usize>,
}

/// The reply of a worker.
#[derive(Debug)]
pub enum Reply {
    Control(ControlReply),
    /// The answer of each call.
    Values(Vec<Result<PolicyValue, PolicyError>>),
}

/// A reply to a [`ControlRequest`], or the error of any request.
#[derive(Debug, Serialize, Deserialize)]
pub enum ControlReply {
    /// The limits are set.
    Confined,
    Loaded(LoadedBundle),
    /// One line for each failed test.
    Tested(Vec<String>),
    /// The request failed, and the worker can serve the next one.
    Failed(PolicyError),
}

impl ControlRequest {
    pub fn encode(&self) -> Vec<u8> {
        encode_json(self)
    }
}

/// Encode a [`CallRequest`]. The batch is included unless the worker has cached it.
pub fn encode_calls(
    (file, function): (&str, &str),
    (calls, is_cached): (&CallBatch, bool),
    range: &Range<usize>,
) -> Vec<u8> {
    let mut writer = Writer::new(CALLS_TAG);
    writer.text(file);
    writer.text(function);
    writer.number(range.start);
    writer.number(range.end);
    writer.byte(u8::from(!is_cached));
    if !is_cached {
        writer.calls(calls);
    }
    writer.into_bytes()
}

impl Request {
    /// `None` if the message is malformed.
    pub fn decode(message: &[u8]) -> Option<Request> {
        let (tag, rest) = message.split_first()?;
        match *tag {
            JSON_TAG => muster_json::from_slice(rest).ok().map(Request::Control),
            CALLS_TAG => {
                let mut reader = Reader::new(rest, RecordDecoding::Accept);
                let (file, function) = (reader.text()?.to_string(), reader.text()?.to_string());
                let range = reader.number()?..reader.number()?;
                let calls = if reader.byte()? == 1 { Some(reader.calls()?) } else { None };
                reader.is_at_end().then_some(Request::Call(CallRequest { file, function, calls, range }))
            }
            _ => None,
        }
    }
}

impl Reply {
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Reply::Control(reply) => encode_json(reply),
            Reply::Values(values) => {
                let mut writer = Writer::new(CALLS_TAG);
                writer.number(values.len());
                values.iter().for_each(|value| writer.answer(value));
                writer.into_bytes()
            }
        }
    }

    /// `None` if the message is malformed. A worker is not trusted: records are rejected, because their field names
    /// would be interned.
    pub fn decode(message: &[u8]) -> Option<Reply> {
        let (tag, rest) = message.split_first()?;
        match *tag {
            JSON_TAG => muster_json::from_slice(rest).ok().map(Reply::Control),
            CALLS_TAG => {
                let mut reader = Reader::new(rest, RecordDecoding::Reject);
                let count = reader.number().filter(|count| *count <= rest.len())?;
                let values = (0..count).map(|_| reader.answer()).collect::<Option<_>>()?;
                reader.is_at_end().then_some(Reply::Values(values))
            }
            _ => None,
        }
    }
}

fn encode_json(value: &impl Serialize) -> Vec<u8> {
    let mut message = vec![JSON_TAG];
    message.extend(muster_json::to_vec(value));
    message
}

/// Write a message with its length prefix.
pub fn write_frame(to: &mut impl Write, message: &[u8]) -> io::Result<()> {
    let length = u32::try_from(message.len()).map_err(|_| io::Error::other("the message exceeds 4 GiB"))?;
    // A single write wakes the reader once.
    let mut frame = Vec::with_capacity(message.len() + 4);
    frame.extend_from_slice(&length.to_le_bytes());
    frame.extend_from_slice(message);
    to.write_all(&frame)?;
    to.flush()
}

/// Read a message; `None` at the end of the stream.
pub fn read_frame(from: &mut impl Read, bytes_max: usize) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    if let Err(error) = from.read_exact(&mut length) {
        return if error.kind() == io::ErrorKind::UnexpectedEof { Ok(None) } else { Err(error) };
    }
    let length = u32::from_le_bytes(length) as usize;
    if length > bytes_max {
        return Err(io::Error::other(format!("the message has {length} bytes; the limit is {bytes_max}")));
    }
    let mut message = vec![0; length];
    from.read_exact(&mut message)?;
    Ok(Some(message))
}

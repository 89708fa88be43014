//! What a worker and its server say to each other: letters with their length before them. The first byte tells JSON from
//! calls and their answers, which are bytes of [`super::wire`].

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::wire::{Reader, RecordDecoding, Writer};
use super::{Confinement, LoadedBundle};
use crate::call_batch::CallBatch;
use crate::error::PolicyError;
use crate::policy_value::PolicyValue;

/// The letter is JSON.
const JSON_TAG: u8 = b'J';
/// The letter is calls or their answers.
const CALLS_TAG: u8 = b'C';

/// What a worker is asked.
#[derive(Debug)]
pub enum Request {
    /// To prepare.
    Control(ControlRequest),
    /// Call a function of the bundle.
    Call(CallRequest),
}

/// What is asked before the first call.
#[derive(Debug, Serialize, Deserialize)]
pub enum ControlRequest {
    /// Comes first, and once: the bounds to set on itself.
    Confine(Confinement),
    /// Load a bundle.
    Load {
        /// The files by name.
        files: BTreeMap<String, String>,
    },
    /// Run the tests of a bundle.
    Test {
        /// The files by name.
        files: BTreeMap<String, String>,
    },
}

/// Some calls of a function.
#[derive(Debug)]
pub struct CallRequest {
    /// In which file it stands.
    pub file: String,
    pub function: String,
    /// Values and calls that the worker does not hold yet. It keeps them until others come, so that the files and the
    /// letters of one batch are sent them once.
    pub calls: Option<CallBatch>,
    /// Which of the calls are made.
    pub which: Range<usize>,
}

/// What it answers.
#[derive(Debug)]
pub enum Reply {
    /// To what is not a call.
    Control(ControlReply),
    /// What each call gave.
    Values(Vec<Result<PolicyValue, PolicyError>>),
}

/// Answers to what is not a call.
#[derive(Debug, Serialize, Deserialize)]
pub enum ControlReply {
    /// The bounds are set.
    Confined,
    /// The bundle is loaded.
    Loaded(LoadedBundle),
    /// The tests that fail, each in a line.
    Tested(Vec<String>),
    /// What was asked went wrong, and the worker is well.
    Failed(PolicyError),
}

impl ControlRequest {
    pub fn encode(&self) -> Vec<u8> {
        encode_json(self)
    }
}

/// Some calls of a function as a letter, with their values where the worker does not hold them.
pub fn encode_calls(
    (file, function): (&str, &str),
    (calls, is_held): (&CallBatch, bool),
    which: &Range<usize>,
) -> Vec<u8> {
    let mut writer = Writer::new(CALLS_TAG);
    writer.text(file);
    writer.text(function);
    writer.number(which.start);
    writer.number(which.end);
    writer.byte(u8::from(!is_held));
    if !is_held {
        writer.calls(calls);
    }
    writer.into_bytes()
}

impl Request {
    /// What a letter asks; nothing where nobody could have written it.
    pub fn decode(letter: &[u8]) -> Option<Request> {
        let (tag, rest) = letter.split_first()?;
        match *tag {
            JSON_TAG => muster_json::from_slice(rest).ok().map(Request::Control),
            CALLS_TAG => {
                let mut reader = Reader::new(rest, RecordDecoding::Accept);
                let (file, function) = (reader.text()?.to_string(), reader.text()?.to_string());
                let which = reader.number()?..reader.number()?;
                let calls = if reader.byte()? == 1 { Some(reader.calls()?) } else { None };
                reader.is_at_end().then_some(Request::Call(CallRequest { file, function, calls, which }))
            }
            _ => None,
        }
    }
}

impl Reply {
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Reply::Control(prepared) => encode_json(prepared),
            Reply::Values(values) => {
                let mut writer = Writer::new(CALLS_TAG);
                writer.number(values.len());
                values.iter().for_each(|value| writer.answer(value));
                writer.into_bytes()
            }
        }
    }

    /// What a letter answers; nothing where nobody can read it. A worker is not trusted: no record is read.
    pub fn decode(letter: &[u8]) -> Option<Reply> {
        let (tag, rest) = letter.split_first()?;
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
    let mut letter = vec![JSON_TAG];
    letter.extend(muster_json::to_vec(value));
    letter
}

/// Write a letter.
pub fn write_frame(to: &mut impl Write, letter: &[u8]) -> io::Result<()> {
    let length = u32::try_from(letter.len()).map_err(|_| io::Error::other("a letter of more than 4 GiB"))?;
    // One write: the reader wakes up once.
    let mut whole = Vec::with_capacity(letter.len() + 4);
    whole.extend_from_slice(&length.to_le_bytes());
    whole.extend_from_slice(letter);
    to.write_all(&whole)?;
    to.flush()
}

/// Read a letter; nothing where there is none any more.
pub fn read_frame(from: &mut impl Read, most_bytes: usize) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    if let Err(error) = from.read_exact(&mut length) {
        return if error.kind() == io::ErrorKind::UnexpectedEof { Ok(None) } else { Err(error) };
    }
    let length = u32::from_le_bytes(length) as usize;
    if length > most_bytes {
        return Err(io::Error::other("a letter that is too long"));
    }
    let mut letter = vec![0; length];
    from.read_exact(&mut letter)?;
    Ok(Some(letter))
}

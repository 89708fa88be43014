//! What a worker and its server say to each other: letters with their length before them. The first byte tells JSON from
//! calls and their answers, which are bytes of [`super::wire`].

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::wire::{Reader, Records, Writer};
use super::{Confinement, Loaded};
use crate::calls::Calls;
use crate::error::PolicyError;
use crate::plain::Plain;

/// The letter is JSON.
const JSON: u8 = b'J';
/// The letter is calls or their answers.
const CALLS: u8 = b'C';

/// What a worker is asked.
#[derive(Debug)]
pub enum Request {
    /// To prepare.
    Prepare(Prepare),
    /// Call a function of the bundle.
    Call(Call),
}

/// What is asked before the first call.
#[derive(Debug, Serialize, Deserialize)]
pub enum Prepare {
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
pub struct Call {
    /// In which file it stands.
    pub file: String,
    pub function: String,
    /// Values and calls that the worker does not hold yet. It keeps them until others come, so that the files and the
    /// letters of one batch are sent them once.
    pub calls: Option<Calls>,
    /// Which of the calls are made.
    pub which: Range<usize>,
}

/// What it answers.
#[derive(Debug)]
pub enum Answer {
    /// To what is not a call.
    Prepared(Prepared),
    /// What each call gave.
    Values(Vec<Result<Plain, PolicyError>>),
}

/// Answers to what is not a call.
#[derive(Debug, Serialize, Deserialize)]
pub enum Prepared {
    /// The bounds are set.
    Confined,
    /// The bundle is loaded.
    Loaded(Loaded),
    /// The tests that fail, each in a line.
    Tested(Vec<String>),
    /// What was asked went wrong, and the worker is well.
    Wrong(PolicyError),
}

impl Prepare {
    pub fn written(&self) -> Vec<u8> {
        json(self)
    }
}

/// Some calls of a function as a letter, with their values where the worker does not hold them.
pub fn written_calls(
    (file, function): (&str, &str),
    (calls, is_held): (&Calls, bool),
    which: &Range<usize>,
) -> Vec<u8> {
    let mut writer = Writer::new(CALLS);
    writer.text(file);
    writer.text(function);
    writer.number(which.start);
    writer.number(which.end);
    writer.byte(u8::from(!is_held));
    if !is_held {
        writer.calls(calls);
    }
    writer.done()
}

impl Request {
    /// What a letter asks; nothing where nobody could have written it.
    pub fn read(letter: &[u8]) -> Option<Request> {
        let (tag, rest) = letter.split_first()?;
        match *tag {
            JSON => muster_json::from_slice(rest).ok().map(Request::Prepare),
            CALLS => {
                let mut reader = Reader::new(rest, Records::Read);
                let (file, function) = (reader.text()?.to_string(), reader.text()?.to_string());
                let which = reader.number()?..reader.number()?;
                let calls = if reader.byte()? == 1 { Some(reader.calls()?) } else { None };
                reader.is_at_end().then_some(Request::Call(Call { file, function, calls, which }))
            }
            _ => None,
        }
    }
}

impl Answer {
    pub fn written(&self) -> Vec<u8> {
        match self {
            Answer::Prepared(prepared) => json(prepared),
            Answer::Values(values) => {
                let mut writer = Writer::new(CALLS);
                writer.number(values.len());
                values.iter().for_each(|value| writer.answer(value));
                writer.done()
            }
        }
    }

    /// What a letter answers; nothing where nobody can read it. A worker is not trusted: no record is read.
    pub fn read(letter: &[u8]) -> Option<Answer> {
        let (tag, rest) = letter.split_first()?;
        match *tag {
            JSON => muster_json::from_slice(rest).ok().map(Answer::Prepared),
            CALLS => {
                let mut reader = Reader::new(rest, Records::Refused);
                let count = reader.number().filter(|count| *count <= rest.len())?;
                let values = (0..count).map(|_| reader.answer()).collect::<Option<_>>()?;
                reader.is_at_end().then_some(Answer::Values(values))
            }
            _ => None,
        }
    }
}

fn json(value: &impl Serialize) -> Vec<u8> {
    let mut letter = vec![JSON];
    letter.extend(muster_json::to_vec(value));
    letter
}

/// Write a letter.
pub fn write(to: &mut impl Write, letter: &[u8]) -> io::Result<()> {
    let length = u32::try_from(letter.len()).map_err(|_| io::Error::other("a letter of more than 4 GiB"))?;
    // One write: the reader wakes up once.
    let mut whole = Vec::with_capacity(letter.len() + 4);
    whole.extend_from_slice(&length.to_le_bytes());
    whole.extend_from_slice(letter);
    to.write_all(&whole)?;
    to.flush()
}

/// Read a letter; nothing where there is none any more.
pub fn read(from: &mut impl Read, most_bytes: usize) -> io::Result<Option<Vec<u8>>> {
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

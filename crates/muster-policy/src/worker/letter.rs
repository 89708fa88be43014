//! What a worker and the one who asks it say to each other: JSON, with its length before it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use super::{Confinement, Loaded};
use crate::calls::{Calls, Manner};
use crate::error::PolicyError;
use crate::plain::Plain;

/// What a worker is asked.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    /// Comes first, and once: the bounds to set on itself.
    Confine(Confinement),
    /// Load a bundle.
    Load {
        /// The files by name.
        files: BTreeMap<String, String>,
    },
    /// Call a function of the bundle, once or several times.
    CallEach {
        /// In which file it stands.
        file: String,
        /// Which.
        function: String,
        /// What some call is given.
        values: Vec<Sent>,
        /// Which of the values each call is given.
        manner: Manner,
    },
}

/// What it answers.
#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    /// The bounds are set.
    Confined,
    /// The bundle is loaded.
    Loaded(Loaded),
    /// What each call gave.
    Values(Vec<Result<Sent, PolicyError>>),
    /// What was asked went wrong, and the worker is well.
    Wrong(PolicyError),
}

impl Request {
    /// Calls of a function.
    pub fn calls(file: &str, function: &str, calls: &Calls) -> Request {
        let (file, function) = (file.to_string(), function.to_string());
        let values = calls.values().iter().map(Sent::from).collect();
        Request::CallEach { file, function, values, manner: calls.manner() }
    }
}

/// A plain value on its way. JSON has no tuples, no keys but texts, and not every float.
#[derive(Debug, Serialize, Deserialize)]
pub enum Sent {
    /// Nothing.
    None,
    /// Yes or no.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// The bits of any other number, so that it arrives as it was.
    Float(u64),
    /// A text.
    Text(String),
    /// Several.
    List(Vec<Sent>),
    /// Several that cannot be changed.
    Tuple(Vec<Sent>),
    /// By key, in order.
    Dict(Vec<(Sent, Sent)>),
    /// By name.
    Record(Vec<(String, Sent)>),
}

impl From<&Plain> for Sent {
    fn from(plain: &Plain) -> Sent {
        let all = |items: &[Plain]| items.iter().map(Sent::from).collect();
        match plain {
            Plain::None => Sent::None,
            Plain::Bool(flag) => Sent::Bool(*flag),
            Plain::Int(number) => Sent::Int(*number),
            Plain::Float(number) => Sent::Float(number.to_bits()),
            Plain::Text(text) => Sent::Text(text.clone()),
            Plain::List(items) => Sent::List(all(items)),
            Plain::Tuple(items) => Sent::Tuple(all(items)),
            Plain::Dict(entries) => {
                Sent::Dict(entries.iter().map(|(key, value)| (Sent::from(key), Sent::from(value))).collect())
            }
            Plain::Record(fields) => {
                let field = |(name, value): &(&'static str, Plain)| (name.to_string(), Sent::from(value));
                Sent::Record(fields.iter().map(field).collect())
            }
        }
    }
}

impl Sent {
    /// The value, as a worker reads it. Names of records are kept for ever: there are only those that we wrote.
    pub fn given(self) -> Plain {
        self.plain(&|name| Some(kept(name))).unwrap_or(Plain::None)
    }

    /// The value, as the one who asked reads it: no records, because policies give none.
    pub fn received(self) -> Option<Plain> {
        self.plain(&|_| None)
    }

    fn plain(self, named: &dyn Fn(String) -> Option<&'static str>) -> Option<Plain> {
        let all = |items: Vec<Sent>| items.into_iter().map(|item| item.plain(named)).collect::<Option<_>>();
        Some(match self {
            Sent::None => Plain::None,
            Sent::Bool(flag) => Plain::Bool(flag),
            Sent::Int(number) => Plain::Int(number),
            Sent::Float(bits) => Plain::Float(f64::from_bits(bits)),
            Sent::Text(text) => Plain::Text(text),
            Sent::List(items) => Plain::List(all(items)?),
            Sent::Tuple(items) => Plain::Tuple(all(items)?),
            Sent::Dict(entries) => {
                let entry = |(key, value): (Sent, Sent)| Some((key.plain(named)?, value.plain(named)?));
                Plain::Dict(entries.into_iter().map(entry).collect::<Option<_>>()?)
            }
            Sent::Record(fields) => {
                let field = |(name, value): (String, Sent)| Some((named(name)?, value.plain(named)?));
                Plain::Record(fields.into_iter().map(field).collect::<Option<_>>()?)
            }
        })
    }
}

/// The same name for as long as the process lives.
fn kept(name: String) -> &'static str {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = names.get(name.as_str()) {
        return known;
    }
    let known: &'static str = Box::leak(name.into_boxed_str());
    names.insert(known);
    known
}

/// Write a letter.
pub fn write(to: &mut impl Write, letter: &[u8]) -> io::Result<()> {
    let length = u32::try_from(letter.len()).map_err(|_| io::Error::other("a letter of more than 4 GiB"))?;
    to.write_all(&length.to_le_bytes())?;
    to.write_all(letter)?;
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

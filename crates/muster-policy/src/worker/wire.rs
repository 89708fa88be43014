//! Plain values as bytes, on their way to a worker and back.
//!
//! A batch of questions holds thousands of values, so they are not JSON: each is a tag and its contents. The names of a
//! record are written the first time a record has them; later records with the same names refer to that list.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use crate::calls::{Calls, Manner};
use crate::error::PolicyError;
use crate::plain::Plain;

/// More than views and answers are nested: the reader follows each level with its own stack.
const DEPTH_MAX: usize = 64;

const NONE: u8 = 0;
const FALSE: u8 = 1;
const TRUE: u8 = 2;
const INT: u8 = 3;
const FLOAT: u8 = 4;
const TEXT: u8 = 5;
const LIST: u8 = 6;
const TUPLE: u8 = 7;
const DICT: u8 = 8;
/// A record, with its names.
const RECORD: u8 = 9;
/// A record whose names came before.
const SAME_RECORD: u8 = 10;

/// Writes values one after the other.
#[derive(Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
    /// Each list of names that was written.
    names: Vec<Vec<&'static str>>,
}

impl Writer {
    /// One whose letter begins with a tag.
    pub fn new(tag: u8) -> Writer {
        Writer { bytes: vec![tag], ..Writer::default() }
    }

    /// The letter.
    pub fn done(self) -> Vec<u8> {
        self.bytes
    }

    pub fn byte(&mut self, byte: u8) {
        self.bytes.push(byte);
    }

    pub fn number(&mut self, number: usize) {
        self.bytes.extend_from_slice(&(number as u64).to_le_bytes());
    }

    pub fn text(&mut self, text: &str) {
        self.number(text.len());
        self.bytes.extend_from_slice(text.as_bytes());
    }

    /// The values of calls, and which of them each is given.
    pub fn calls(&mut self, calls: &Calls) {
        let (tag, first, second) = match calls.manner() {
            Manner::InTurn { calls, each } => (0, calls, each),
            Manner::Pairs { firsts } => (1, firsts, 0),
        };
        self.byte(tag);
        self.number(first);
        self.number(second);
        self.values(calls.values());
    }

    /// What a call gave.
    pub fn answer(&mut self, answer: &Result<Plain, PolicyError>) {
        match answer {
            Ok(value) => {
                self.byte(1);
                self.value(value);
            }
            Err(error) => {
                self.byte(0);
                self.text(&muster_json::to_string(error));
            }
        }
    }

    pub fn value(&mut self, value: &Plain) {
        match value {
            Plain::None => self.byte(NONE),
            Plain::Bool(false) => self.byte(FALSE),
            Plain::Bool(true) => self.byte(TRUE),
            Plain::Int(number) => {
                self.byte(INT);
                self.bytes.extend_from_slice(&number.to_le_bytes());
            }
            Plain::Float(number) => {
                self.byte(FLOAT);
                self.bytes.extend_from_slice(&number.to_bits().to_le_bytes());
            }
            Plain::Text(text) => {
                self.byte(TEXT);
                self.text(text);
            }
            Plain::List(items) => {
                self.byte(LIST);
                self.values(items);
            }
            Plain::Tuple(items) => {
                self.byte(TUPLE);
                self.values(items);
            }
            Plain::Dict(entries) => {
                self.byte(DICT);
                self.number(entries.len());
                for (key, value) in entries {
                    self.value(key);
                    self.value(value);
                }
            }
            Plain::Record(fields) => self.record(fields),
        }
    }

    fn values(&mut self, values: &[Plain]) {
        self.number(values.len());
        values.iter().for_each(|value| self.value(value));
    }

    fn record(&mut self, fields: &[(&'static str, Plain)]) {
        let are_these = |names: &Vec<&'static str>| {
            names.len() == fields.len() && names.iter().zip(fields).all(|(name, (field, _))| name == field)
        };
        match self.names.iter().position(are_these) {
            Some(place) => {
                self.byte(SAME_RECORD);
                self.number(place);
            }
            None => {
                self.byte(RECORD);
                self.number(fields.len());
                fields.iter().for_each(|(name, _)| self.text(name));
                self.names.push(fields.iter().map(|(name, _)| *name).collect());
            }
        }
        fields.iter().for_each(|(_, value)| self.value(value));
    }
}

/// Whether records may be read. A worker is given them; its answers hold none, so their names are never kept by the one
/// that asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Records {
    Read,
    Refused,
}

/// Reads what a [`Writer`] wrote. Every method answers nothing where the bytes are not that.
#[derive(Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    records: Records,
    names: Vec<Vec<&'static str>>,
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8], records: Records) -> Reader<'a> {
        Reader { bytes, records, names: Vec::new() }
    }

    pub fn is_at_end(&self) -> bool {
        self.bytes.is_empty()
    }

    pub fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(*first)
    }

    pub fn number(&mut self) -> Option<usize> {
        usize::try_from(u64::from_le_bytes(self.eight()?)).ok()
    }

    pub fn text(&mut self) -> Option<&'a str> {
        let length = self.number()?;
        let (text, rest) = self.bytes.split_at_checked(length)?;
        self.bytes = rest;
        std::str::from_utf8(text).ok()
    }

    pub fn calls(&mut self) -> Option<Calls> {
        let (tag, first, second) = (self.byte()?, self.number()?, self.number()?);
        let manner = match tag {
            0 => Manner::InTurn { calls: first, each: second },
            1 => Manner::Pairs { firsts: first },
            _ => return None,
        };
        Calls::told(self.values(DEPTH_MAX)?, manner)
    }

    pub fn answer(&mut self) -> Option<Result<Plain, PolicyError>> {
        match self.byte()? {
            1 => self.value(DEPTH_MAX).map(Ok),
            0 => muster_json::from_str(self.text()?).ok().map(Err),
            _ => None,
        }
    }

    fn eight(&mut self) -> Option<[u8; 8]> {
        let (eight, rest) = self.bytes.split_first_chunk()?;
        self.bytes = rest;
        Some(*eight)
    }

    fn value(&mut self, depth: usize) -> Option<Plain> {
        let depth = depth.checked_sub(1)?;
        Some(match self.byte()? {
            NONE => Plain::None,
            FALSE => Plain::Bool(false),
            TRUE => Plain::Bool(true),
            INT => Plain::Int(i64::from_le_bytes(self.eight()?)),
            FLOAT => Plain::Float(f64::from_bits(u64::from_le_bytes(self.eight()?))),
            TEXT => Plain::text(self.text()?),
            LIST => Plain::List(self.values(depth)?),
            TUPLE => Plain::Tuple(self.values(depth)?),
            DICT => {
                let count = self.count()?;
                let entry = |_| Some((self.value(depth)?, self.value(depth)?));
                Plain::Dict((0..count).map(entry).collect::<Option<_>>()?)
            }
            RECORD if self.records == Records::Read => {
                let count = self.count()?;
                let names = (0..count).map(|_| self.text().map(kept)).collect::<Option<Vec<_>>>()?;
                self.names.push(names.clone());
                self.record(&names, depth)?
            }
            SAME_RECORD => {
                let place = self.number()?;
                let names = self.names.get(place)?.clone();
                self.record(&names, depth)?
            }
            _ => return None,
        })
    }

    fn record(&mut self, names: &[&'static str], depth: usize) -> Option<Plain> {
        let field = |name: &&'static str| Some((*name, self.value(depth)?));
        names.iter().map(field).collect::<Option<_>>().map(Plain::Record)
    }

    fn values(&mut self, depth: usize) -> Option<Vec<Plain>> {
        let count = self.count()?;
        (0..count).map(|_| self.value(depth)).collect()
    }

    /// How many follow. Each takes at least a byte: a count beyond that reserves no memory.
    fn count(&mut self) -> Option<usize> {
        self.number().filter(|count| *count <= self.bytes.len())
    }
}

/// The same name for as long as the process lives. Only workers read names, and only those that their server wrote.
fn kept(name: &str) -> &'static str {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = names.get(name) {
        return known;
    }
    let known: &'static str = Box::leak(name.to_string().into_boxed_str());
    names.insert(known);
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(gpus: i64) -> Plain {
        let labels = Plain::Dict(vec![("team".into(), "a\0b".into())]);
        Plain::Record(vec![("gpus", Plain::Int(gpus)), ("share", Plain::Float(-0.1)), ("labels", labels)])
    }

    fn written(calls: &Calls) -> Vec<u8> {
        let mut writer = Writer::new(7);
        writer.calls(calls);
        writer.done()
    }

    #[test]
    fn calls_arrive_as_they_were_and_names_are_sent_once() {
        let nested =
            Plain::List(vec![Plain::Tuple(vec![Plain::None, Plain::Bool(true), Plain::Bool(false)])]);
        for calls in [
            Calls::of_pairs(vec![job(1), job(i64::MIN)], vec![nested, job(3)]),
            Calls::of_rows([[job(1), Plain::text("")], [job(2), Plain::Float(f64::INFINITY)]]),
        ] {
            let letter = written(&calls);
            let mut reader = Reader::new(&letter[1..], Records::Read);
            let read = reader.calls().unwrap();
            assert_eq!((read.values(), read.manner()), (calls.values(), calls.manner()));
            assert!(reader.is_at_end());
            assert_eq!(letter.windows(5).filter(|five| five == b"share").count(), 1);
        }
    }

    /// What a worker sends may be anything: no bytes make the one that asks panic or reserve memory.
    #[test]
    fn bytes_that_nobody_wrote_are_nothing() {
        let letter = written(&Calls::of_rows([[job(1)], [job(2)]]));
        for end in 1..letter.len() {
            assert!(Reader::new(&letter[1..end], Records::Read).calls().is_none(), "{end}");
        }
        for place in 1..letter.len() {
            for byte in [0, 1, 9, 10, 0x7f, 0xff] {
                let mut wrong = letter.clone();
                wrong[place] = byte;
                let _ = Reader::new(&wrong[1..], Records::Read).calls();
                let _ = Reader::new(&wrong[1..], Records::Refused).calls();
            }
        }
        assert!(Reader::new(&letter[1..], Records::Refused).calls().is_none(), "answers hold no records");
        let deep = [[LIST, 1, 0, 0, 0, 0, 0, 0, 0].repeat(1_000), vec![NONE]].concat();
        assert_eq!(Reader::new(&deep, Records::Read).value(DEPTH_MAX), None);
    }
}

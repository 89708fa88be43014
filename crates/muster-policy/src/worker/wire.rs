//! The binary encoding of policy values between a worker and its server.
//!
//! A batch has thousands of values, so they are not JSON: each is a tag and its contents. The field names of a record
//! are written once; later records with the same names refer to that list.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use crate::call_batch::{ArgumentLayout, CallBatch};
use crate::error::PolicyError;
use crate::policy_value::PolicyValue;

/// The most levels of nested values, which is more than views and answers have. The reader recurses once per level.
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
/// A record with its field names.
const RECORD: u8 = 9;
/// A record whose field names were written before.
const SAME_RECORD: u8 = 10;

/// Encodes one message.
#[derive(Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
    /// The lists of field names written so far.
    names: Vec<Vec<&'static str>>,
}

impl Writer {
    /// A message that begins with this tag.
    pub fn new(tag: u8) -> Writer {
        Writer { bytes: vec![tag], ..Writer::default() }
    }

    pub fn into_bytes(self) -> Vec<u8> {
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

    /// The values of a batch, and which of them each call uses.
    pub fn calls(&mut self, calls: &CallBatch) {
        let (tag, first, second) = match calls.layout() {
            ArgumentLayout::Rows { calls, args_per_call } => (0, calls, args_per_call),
            ArgumentLayout::Pairs { firsts } => (1, firsts, 0),
        };
        self.byte(tag);
        self.number(first);
        self.number(second);
        self.values(calls.values());
    }

    /// The answer of a call.
    pub fn answer(&mut self, answer: &Result<PolicyValue, PolicyError>) {
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

    pub fn value(&mut self, value: &PolicyValue) {
        match value {
            PolicyValue::None => self.byte(NONE),
            PolicyValue::Bool(false) => self.byte(FALSE),
            PolicyValue::Bool(true) => self.byte(TRUE),
            PolicyValue::Int(number) => {
                self.byte(INT);
                self.bytes.extend_from_slice(&number.to_le_bytes());
            }
            PolicyValue::Float(number) => {
                self.byte(FLOAT);
                self.bytes.extend_from_slice(&number.to_bits().to_le_bytes());
            }
            PolicyValue::Text(text) => {
                self.byte(TEXT);
                self.text(text);
            }
            PolicyValue::List(items) => {
                self.byte(LIST);
                self.values(items);
            }
            PolicyValue::Tuple(items) => {
                self.byte(TUPLE);
                self.values(items);
            }
            PolicyValue::Dict(entries) => {
                self.byte(DICT);
                self.number(entries.len());
                for (key, value) in entries {
                    self.value(key);
                    self.value(value);
                }
            }
            PolicyValue::Record(fields) => self.record(fields),
        }
    }

    fn values(&mut self, values: &[PolicyValue]) {
        self.number(values.len());
        values.iter().for_each(|value| self.value(value));
    }

    fn record(&mut self, fields: &[(&'static str, PolicyValue)]) {
        let has_names = |names: &Vec<&'static str>| {
            names.len() == fields.len() && names.iter().zip(fields).all(|(name, (field, _))| name == field)
        };
        match self.names.iter().position(has_names) {
            Some(index) => {
                self.byte(SAME_RECORD);
                self.number(index);
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

/// Whether records are decoded. Workers accept them as arguments. The server rejects them in answers, so that a worker
/// cannot make it intern names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordDecoding {
    Accept,
    Reject,
}

/// Decodes what a [`Writer`] encoded. Every method returns `None` on malformed bytes.
#[derive(Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    records: RecordDecoding,
    names: Vec<Vec<&'static str>>,
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8], records: RecordDecoding) -> Reader<'a> {
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
        usize::try_from(u64::from_le_bytes(self.take_eight_bytes()?)).ok()
    }

    pub fn text(&mut self) -> Option<&'a str> {
        let length = self.number()?;
        let (text, rest) = self.bytes.split_at_checked(length)?;
        self.bytes = rest;
        std::str::from_utf8(text).ok()
    }

    pub fn calls(&mut self) -> Option<CallBatch> {
        let (tag, first, second) = (self.byte()?, self.number()?, self.number()?);
        let layout = match tag {
            0 => ArgumentLayout::Rows { calls: first, args_per_call: second },
            1 => ArgumentLayout::Pairs { firsts: first },
            _ => return None,
        };
        CallBatch::from_wire(self.values(DEPTH_MAX)?, layout)
    }

    pub fn answer(&mut self) -> Option<Result<PolicyValue, PolicyError>> {
        match self.byte()? {
            1 => self.value(DEPTH_MAX).map(Ok),
            0 => muster_json::from_str(self.text()?).ok().map(Err),
            _ => None,
        }
    }

    fn take_eight_bytes(&mut self) -> Option<[u8; 8]> {
        let (eight, rest) = self.bytes.split_first_chunk()?;
        self.bytes = rest;
        Some(*eight)
    }

    fn value(&mut self, depth: usize) -> Option<PolicyValue> {
        let depth = depth.checked_sub(1)?;
        Some(match self.byte()? {
            NONE => PolicyValue::None,
            FALSE => PolicyValue::Bool(false),
            TRUE => PolicyValue::Bool(true),
            INT => PolicyValue::Int(i64::from_le_bytes(self.take_eight_bytes()?)),
            FLOAT => PolicyValue::Float(f64::from_bits(u64::from_le_bytes(self.take_eight_bytes()?))),
            TEXT => PolicyValue::text(self.text()?),
            LIST => PolicyValue::List(self.values(depth)?),
            TUPLE => PolicyValue::Tuple(self.values(depth)?),
            DICT => {
                let count = self.count()?;
                let entry = |_| Some((self.value(depth)?, self.value(depth)?));
                PolicyValue::Dict((0..count).map(entry).collect::<Option<_>>()?)
            }
            RECORD if self.records == RecordDecoding::Accept => {
                let count = self.count()?;
                let names = (0..count).map(|_| self.text().map(intern_name)).collect::<Option<Vec<_>>>()?;
                self.names.push(names.clone());
                self.record(&names, depth)?
            }
            SAME_RECORD => {
                let index = self.number()?;
                let names = self.names.get(index)?.clone();
                self.record(&names, depth)?
            }
            _ => return None,
        })
    }

    fn record(&mut self, names: &[&'static str], depth: usize) -> Option<PolicyValue> {
        let field = |name: &&'static str| Some((*name, self.value(depth)?));
        names.iter().map(field).collect::<Option<_>>().map(PolicyValue::Record)
    }

    fn values(&mut self, depth: usize) -> Option<Vec<PolicyValue>> {
        let count = self.count()?;
        (0..count).map(|_| self.value(depth)).collect()
    }

    /// The number of items that follow. Each takes at least a byte, so a larger count is malformed and reserves no
    /// memory.
    fn count(&mut self) -> Option<usize> {
        self.number().filter(|count| *count <= self.bytes.len())
    }
}

/// Intern a name for the life of the process. Only workers decode names, and only those that their server wrote.
fn intern_name(name: &str) -> &'static str {
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

    fn job(gpus: i64) -> PolicyValue {
        let labels = PolicyValue::Dict(vec![("team".into(), "a\0b".into())]);
        PolicyValue::Record(vec![
            ("gpus", PolicyValue::Int(gpus)),
            ("share", PolicyValue::Float(-0.1)),
            ("labels", labels),
        ])
    }

    fn encoded(calls: &CallBatch) -> Vec<u8> {
        let mut writer = Writer::new(7);
        writer.calls(calls);
        writer.into_bytes()
    }

    #[test]
    fn call_batches_round_trip_and_field_names_are_sent_once() {
        let nested = PolicyValue::List(vec![PolicyValue::Tuple(vec![
            PolicyValue::None,
            PolicyValue::Bool(true),
            PolicyValue::Bool(false),
        ])]);
        for calls in [
            CallBatch::from_pairs(vec![job(1), job(i64::MIN)], vec![nested, job(3)]),
            CallBatch::from_rows([[job(1), PolicyValue::text("")], [job(2), PolicyValue::Float(f64::INFINITY)]]),
        ] {
            let message = encoded(&calls);
            let mut reader = Reader::new(&message[1..], RecordDecoding::Accept);
            let read = reader.calls().unwrap();
            assert_eq!((read.values(), read.layout()), (calls.values(), calls.layout()));
            assert!(reader.is_at_end());
            assert_eq!(message.windows(5).filter(|window| window == b"share").count(), 1);
        }
    }

    /// A worker may send anything: no bytes make the server panic or reserve memory.
    #[test]
    fn malformed_bytes_decode_to_none() {
        let message = encoded(&CallBatch::from_rows([[job(1)], [job(2)]]));
        for end in 1..message.len() {
            assert!(Reader::new(&message[1..end], RecordDecoding::Accept).calls().is_none(), "{end}");
        }
        for index in 1..message.len() {
            for byte in [0, 1, 9, 10, 0x7f, 0xff] {
                let mut corrupt = message.clone();
                corrupt[index] = byte;
                let _ = Reader::new(&corrupt[1..], RecordDecoding::Accept).calls();
                let _ = Reader::new(&corrupt[1..], RecordDecoding::Reject).calls();
            }
        }
        assert!(Reader::new(&message[1..], RecordDecoding::Reject).calls().is_none(), "answers have no records");
        let deep = [[LIST, 1, 0, 0, 0, 0, 0, 0, 0].repeat(1_000), vec![NONE]].concat();
        assert_eq!(Reader::new(&deep, RecordDecoding::Accept).value(DEPTH_MAX), None);
    }
}

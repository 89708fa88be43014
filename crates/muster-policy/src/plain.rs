//! Values that go into a policy and come out of it: plain data, without the interpreter.

use std::cell::Cell;
use std::fmt;

use starlark::values::dict::{AllocDict, DictRef};
use starlark::values::float::UnpackFloat;
use starlark::values::list::{AllocList, ListRef};
use starlark::values::structs::{AllocStruct, StructRef};
use starlark::values::tuple::{AllocTuple, TupleRef};
use starlark::values::{FrozenHeap, FrozenValue, UnpackValue, Value};

/// How deep values may lie inside each other: what follows them uses its own stack.
const DEPTH_MAX: usize = 32;
/// How much one answer may hold: a value counts as one, and a text as its bytes besides. One list that lies in another
/// many times is small for the interpreter, and each time it is met it is large for us.
const SIZE_MAX: usize = 1 << 20;

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub enum Plain {
    /// Nothing.
    None,
    /// Yes or no.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// Any other number.
    Float(f64),
    /// A text.
    Text(String),
    /// Several.
    List(Vec<Plain>),
    /// Several that cannot be changed.
    Tuple(Vec<Plain>),
    /// By key, in order: `job["gpus"]`.
    Dict(Vec<(Plain, Plain)>),
    /// By name: `job.gpus`. Nobody can change one.
    Record(Vec<(&'static str, Plain)>),
}

impl Plain {
    /// A text.
    pub fn text(text: impl Into<String>) -> Plain {
        Plain::Text(text.into())
    }

    /// What is there, or nothing.
    pub fn maybe<T: Into<Plain>>(value: Option<T>) -> Plain {
        value.map_or(Plain::None, Into::into)
    }

    /// What Starlark calls its kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Plain::None => "NoneType",
            Plain::Bool(_) => "bool",
            Plain::Int(_) => "int",
            Plain::Float(_) => "float",
            Plain::Text(_) => "string",
            Plain::List(_) => "list",
            Plain::Tuple(_) => "tuple",
            Plain::Dict(_) => "dict",
            Plain::Record(_) => "struct",
        }
    }

    /// The same as a value of the interpreter that nobody can change.
    pub(crate) fn alloc(&self, heap: &FrozenHeap) -> FrozenValue {
        match self {
            Plain::None => FrozenValue::new_none(),
            Plain::Bool(flag) => FrozenValue::new_bool(*flag),
            Plain::Int(number) => heap.alloc(*number),
            Plain::Float(number) => heap.alloc(*number),
            Plain::Text(text) => heap.alloc(text.as_str()),
            Plain::List(items) => heap.alloc(AllocList(items.iter().map(|item| item.alloc(heap)))),
            Plain::Tuple(items) => heap.alloc(AllocTuple(items.iter().map(|item| item.alloc(heap)))),
            Plain::Record(fields) => {
                heap.alloc(AllocStruct(fields.iter().map(|(name, value)| (*name, value.alloc(heap)))))
            }
            Plain::Dict(entries) => {
                // A key that cannot be one is left out: only a caller could have made it.
                let entries = entries.iter().filter(|(key, _)| key.is_key());
                heap.alloc(AllocDict(entries.map(|(key, value)| (key.alloc(heap), value.alloc(heap)))))
            }
        }
    }

    /// Whether something can be found by it in a dict.
    fn is_key(&self) -> bool {
        match self {
            Plain::None | Plain::Bool(_) | Plain::Int(_) | Plain::Float(_) | Plain::Text(_) => true,
            Plain::Tuple(items) => items.iter().all(Plain::is_key),
            Plain::Record(fields) => fields.iter().all(|(_, value)| value.is_key()),
            Plain::List(_) | Plain::Dict(_) => false,
        }
    }

    /// What a value of the interpreter is as plain data.
    pub(crate) fn of(value: Value) -> Result<Plain, NotPlain> {
        Plain::within(value, DEPTH_MAX, &Cell::new(SIZE_MAX))
    }

    fn within(value: Value, depth: usize, room: &Cell<usize>) -> Result<Plain, NotPlain> {
        let Some(depth) = depth.checked_sub(1) else { return Err(NotPlain::TooDeep) };
        let size = 1 + value.unpack_str().map_or(0, str::len);
        room.set(room.get().checked_sub(size).ok_or(NotPlain::TooLarge)?);
        if value.is_none() {
            return Ok(Plain::None);
        }
        if let Some(flag) = value.unpack_bool() {
            return Ok(Plain::Bool(flag));
        }
        if let Some(text) = value.unpack_str() {
            return Ok(Plain::text(text));
        }
        // Before what holds others: most answers are numbers.
        if let Some(number) = number(value) {
            return Ok(number);
        }
        let all = |items: &mut dyn Iterator<Item = Value>| {
            items.map(|item| Plain::within(item, depth, room)).collect::<Result<Vec<Plain>, NotPlain>>()
        };
        if let Some(list) = ListRef::from_value(value) {
            return Ok(Plain::List(all(&mut list.iter())?));
        }
        if let Some(tuple) = TupleRef::from_value(value) {
            return Ok(Plain::Tuple(all(&mut tuple.iter())?));
        }
        if let Some(dict) = DictRef::from_value(value) {
            let entry =
                |(key, value)| Ok((Plain::within(key, depth, room)?, Plain::within(value, depth, room)?));
            return dict.iter().map(entry).collect::<Result<_, _>>().map(Plain::Dict);
        }
        if let Some(record) = StructRef::from_value(value) {
            let entry = |(name, value): (starlark::values::StringValue, Value)| {
                Ok((Plain::text(name.as_str()), Plain::within(value, depth, room)?))
            };
            return record.iter().map(entry).collect::<Result<_, _>>().map(Plain::Dict);
        }
        Err(NotPlain::Kind(value.get_type()))
    }
}

/// A number; a whole one that is too large for us is a float, as it would be in JSON.
fn number(value: Value) -> Option<Plain> {
    if let Ok(Some(whole)) = i64::unpack_value(value) {
        return Some(Plain::Int(whole));
    }
    let UnpackFloat(number) = UnpackFloat::unpack_value(value).ok()??;
    Some(Plain::Float(number))
}

/// Why a value is not plain data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NotPlain {
    /// It holds itself, or nearly.
    TooDeep,
    /// It holds more than anyone asked for.
    TooLarge,
    /// It is a function or the like.
    Kind(&'static str),
}

impl fmt::Display for NotPlain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotPlain::TooDeep => write!(f, "it is nested more than {DEPTH_MAX} deep"),
            NotPlain::TooLarge => write!(f, "it holds more than {SIZE_MAX} values and letters"),
            NotPlain::Kind(kind) => write!(f, "a {kind} is no plain value"),
        }
    }
}

impl From<bool> for Plain {
    fn from(flag: bool) -> Plain {
        Plain::Bool(flag)
    }
}

impl From<i64> for Plain {
    fn from(number: i64) -> Plain {
        Plain::Int(number)
    }
}

impl From<u32> for Plain {
    fn from(number: u32) -> Plain {
        Plain::Int(i64::from(number))
    }
}

/// More than any count of ours is as much as there is.
impl From<u64> for Plain {
    fn from(number: u64) -> Plain {
        Plain::Int(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<f64> for Plain {
    fn from(number: f64) -> Plain {
        Plain::Float(number)
    }
}

impl From<&str> for Plain {
    fn from(text: &str) -> Plain {
        Plain::text(text)
    }
}

impl From<String> for Plain {
    fn from(text: String) -> Plain {
        Plain::Text(text)
    }
}

/// As Starlark writes it.
impl fmt::Display for Plain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = |items: &[Plain]| items.iter().map(Plain::to_string).collect::<Vec<_>>().join(", ");
        match self {
            Plain::None => f.write_str("None"),
            Plain::Bool(true) => f.write_str("True"),
            Plain::Bool(false) => f.write_str("False"),
            Plain::Int(number) => number.fmt(f),
            Plain::Float(number) => write!(f, "{number:?}"),
            Plain::Text(text) => write!(f, "{text:?}"),
            Plain::List(items) => write!(f, "[{}]", all(items)),
            Plain::Tuple(items) if items.len() == 1 => write!(f, "({},)", items[0]),
            Plain::Tuple(items) => write!(f, "({})", all(items)),
            Plain::Dict(entries) => {
                let entries = entries.iter().map(|(key, value)| format!("{key}: {value}"));
                write!(f, "{{{}}}", entries.collect::<Vec<_>>().join(", "))
            }
            Plain::Record(fields) => {
                let fields = fields.iter().map(|(name, value)| format!("{name} = {value}"));
                write!(f, "struct({})", fields.collect::<Vec<_>>().join(", "))
            }
        }
    }
}

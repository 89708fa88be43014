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
const ANSWER_SIZE_MAX: usize = 1 << 20;

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub enum PolicyValue {
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
    List(Vec<PolicyValue>),
    /// Several that cannot be changed.
    Tuple(Vec<PolicyValue>),
    /// By key, in order: `job["gpus"]`.
    Dict(Vec<(PolicyValue, PolicyValue)>),
    /// By name: `job.gpus`. Nobody can change one.
    Record(Vec<(&'static str, PolicyValue)>),
}

impl PolicyValue {
    /// A text.
    pub fn text(text: impl Into<String>) -> PolicyValue {
        PolicyValue::Text(text.into())
    }

    /// What is there, or nothing.
    pub fn from_option<T: Into<PolicyValue>>(value: Option<T>) -> PolicyValue {
        value.map_or(PolicyValue::None, Into::into)
    }

    /// What Starlark calls its kind.
    pub fn type_name(&self) -> &'static str {
        match self {
            PolicyValue::None => "NoneType",
            PolicyValue::Bool(_) => "bool",
            PolicyValue::Int(_) => "int",
            PolicyValue::Float(_) => "float",
            PolicyValue::Text(_) => "string",
            PolicyValue::List(_) => "list",
            PolicyValue::Tuple(_) => "tuple",
            PolicyValue::Dict(_) => "dict",
            PolicyValue::Record(_) => "struct",
        }
    }

    /// The same as a value of the interpreter that nobody can change.
    pub(crate) fn alloc(&self, heap: &FrozenHeap) -> FrozenValue {
        match self {
            PolicyValue::None => FrozenValue::new_none(),
            PolicyValue::Bool(flag) => FrozenValue::new_bool(*flag),
            PolicyValue::Int(number) => heap.alloc(*number),
            PolicyValue::Float(number) => heap.alloc(*number),
            PolicyValue::Text(text) => heap.alloc(text.as_str()),
            PolicyValue::List(items) => heap.alloc(AllocList(items.iter().map(|item| item.alloc(heap)))),
            PolicyValue::Tuple(items) => heap.alloc(AllocTuple(items.iter().map(|item| item.alloc(heap)))),
            PolicyValue::Record(fields) => {
                heap.alloc(AllocStruct(fields.iter().map(|(name, value)| (*name, value.alloc(heap)))))
            }
            PolicyValue::Dict(entries) => {
                // A key that cannot be one is left out: only a caller could have made it.
                let entries = entries.iter().filter(|(key, _)| key.is_hashable());
                heap.alloc(AllocDict(entries.map(|(key, value)| (key.alloc(heap), value.alloc(heap)))))
            }
        }
    }

    /// Whether something can be found by it in a dict.
    fn is_hashable(&self) -> bool {
        match self {
            PolicyValue::None | PolicyValue::Bool(_) | PolicyValue::Int(_) | PolicyValue::Float(_) | PolicyValue::Text(_) => true,
            PolicyValue::Tuple(items) => items.iter().all(PolicyValue::is_hashable),
            PolicyValue::Record(fields) => fields.iter().all(|(_, value)| value.is_hashable()),
            PolicyValue::List(_) | PolicyValue::Dict(_) => false,
        }
    }

    /// What a value of the interpreter is as plain data.
    pub(crate) fn from_starlark(value: Value) -> Result<PolicyValue, ConversionError> {
        PolicyValue::convert_bounded(value, DEPTH_MAX, &Cell::new(ANSWER_SIZE_MAX))
    }

    fn convert_bounded(value: Value, depth: usize, room: &Cell<usize>) -> Result<PolicyValue, ConversionError> {
        let Some(depth) = depth.checked_sub(1) else { return Err(ConversionError::TooDeep) };
        let size = 1 + value.unpack_str().map_or(0, str::len);
        room.set(room.get().checked_sub(size).ok_or(ConversionError::TooLarge)?);
        if value.is_none() {
            return Ok(PolicyValue::None);
        }
        if let Some(flag) = value.unpack_bool() {
            return Ok(PolicyValue::Bool(flag));
        }
        if let Some(text) = value.unpack_str() {
            return Ok(PolicyValue::text(text));
        }
        // Before what holds others: most answers are numbers.
        if let Some(number) = unpack_number(value) {
            return Ok(number);
        }
        let all = |items: &mut dyn Iterator<Item = Value>| {
            items.map(|item| PolicyValue::convert_bounded(item, depth, room)).collect::<Result<Vec<PolicyValue>, ConversionError>>()
        };
        if let Some(list) = ListRef::from_value(value) {
            return Ok(PolicyValue::List(all(&mut list.iter())?));
        }
        if let Some(tuple) = TupleRef::from_value(value) {
            return Ok(PolicyValue::Tuple(all(&mut tuple.iter())?));
        }
        if let Some(dict) = DictRef::from_value(value) {
            let entry =
                |(key, value)| Ok((PolicyValue::convert_bounded(key, depth, room)?, PolicyValue::convert_bounded(value, depth, room)?));
            return dict.iter().map(entry).collect::<Result<_, _>>().map(PolicyValue::Dict);
        }
        if let Some(record) = StructRef::from_value(value) {
            let entry = |(name, value): (starlark::values::StringValue, Value)| {
                Ok((PolicyValue::text(name.as_str()), PolicyValue::convert_bounded(value, depth, room)?))
            };
            return record.iter().map(entry).collect::<Result<_, _>>().map(PolicyValue::Dict);
        }
        Err(ConversionError::UnsupportedType(value.get_type()))
    }
}

/// A number; a whole one that is too large for us is a float, as it would be in JSON.
fn unpack_number(value: Value) -> Option<PolicyValue> {
    if let Ok(Some(whole)) = i64::unpack_value(value) {
        return Some(PolicyValue::Int(whole));
    }
    let UnpackFloat(number) = UnpackFloat::unpack_value(value).ok()??;
    Some(PolicyValue::Float(number))
}

/// Why a value is not plain data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ConversionError {
    /// It holds itself, or nearly.
    TooDeep,
    /// It holds more than anyone asked for.
    TooLarge,
    /// It is a function or the like.
    UnsupportedType(&'static str),
}

impl fmt::Display for ConversionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConversionError::TooDeep => write!(f, "it is nested more than {DEPTH_MAX} deep"),
            ConversionError::TooLarge => write!(f, "it holds more than {ANSWER_SIZE_MAX} values and letters"),
            ConversionError::UnsupportedType(kind) => write!(f, "a {kind} is no plain value"),
        }
    }
}

impl From<bool> for PolicyValue {
    fn from(flag: bool) -> PolicyValue {
        PolicyValue::Bool(flag)
    }
}

impl From<i64> for PolicyValue {
    fn from(number: i64) -> PolicyValue {
        PolicyValue::Int(number)
    }
}

impl From<u32> for PolicyValue {
    fn from(number: u32) -> PolicyValue {
        PolicyValue::Int(i64::from(number))
    }
}

/// More than any count of ours is as much as there is.
impl From<u64> for PolicyValue {
    fn from(number: u64) -> PolicyValue {
        PolicyValue::Int(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<f64> for PolicyValue {
    fn from(number: f64) -> PolicyValue {
        PolicyValue::Float(number)
    }
}

impl From<&str> for PolicyValue {
    fn from(text: &str) -> PolicyValue {
        PolicyValue::text(text)
    }
}

impl From<String> for PolicyValue {
    fn from(text: String) -> PolicyValue {
        PolicyValue::Text(text)
    }
}

/// As Starlark writes it.
impl fmt::Display for PolicyValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = |items: &[PolicyValue]| items.iter().map(PolicyValue::to_string).collect::<Vec<_>>().join(", ");
        match self {
            PolicyValue::None => f.write_str("None"),
            PolicyValue::Bool(true) => f.write_str("True"),
            PolicyValue::Bool(false) => f.write_str("False"),
            PolicyValue::Int(number) => number.fmt(f),
            PolicyValue::Float(number) => write!(f, "{number:?}"),
            PolicyValue::Text(text) => write!(f, "{text:?}"),
            PolicyValue::List(items) => write!(f, "[{}]", all(items)),
            PolicyValue::Tuple(items) if items.len() == 1 => write!(f, "({},)", items[0]),
            PolicyValue::Tuple(items) => write!(f, "({})", all(items)),
            PolicyValue::Dict(entries) => {
                let entries = entries.iter().map(|(key, value)| format!("{key}: {value}"));
                write!(f, "{{{}}}", entries.collect::<Vec<_>>().join(", "))
            }
            PolicyValue::Record(fields) => {
                let fields = fields.iter().map(|(name, value)| format!("{name} = {value}"));
                write!(f, "struct({})", fields.collect::<Vec<_>>().join(", "))
            }
        }
    }
}

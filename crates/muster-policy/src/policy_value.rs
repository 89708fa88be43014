//! Arguments and answers of policy functions as plain data, independent of the interpreter.

use std::cell::Cell;
use std::fmt;

use starlark::values::dict::{AllocDict, DictRef};
use starlark::values::float::UnpackFloat;
use starlark::values::list::{AllocList, ListRef};
use starlark::values::structs::{AllocStruct, StructRef};
use starlark::values::tuple::{AllocTuple, TupleRef};
use starlark::values::{FrozenHeap, FrozenValue, UnpackValue, Value};

/// The most levels of nested values. The conversion recurses once per level.
const DEPTH_MAX: usize = 32;
/// The largest answer: each value counts as one, a string also counts its bytes. The interpreter stores a list that
/// several others contain once; the conversion copies it each time.
const ANSWER_SIZE_MAX: usize = 1 << 20;

/// An argument or answer of a policy function.
#[derive(Debug, Clone, PartialEq)]
pub enum PolicyValue {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    List(Vec<PolicyValue>),
    Tuple(Vec<PolicyValue>),
    /// Entries by key, in order: `job["gpus"]`.
    Dict(Vec<(PolicyValue, PolicyValue)>),
    /// A Starlark `struct`: `job.gpus`. In answers it becomes a dict.
    Record(Vec<(&'static str, PolicyValue)>),
}

impl PolicyValue {
    pub fn text(text: impl Into<String>) -> PolicyValue {
        PolicyValue::Text(text.into())
    }

    pub fn from_option<T: Into<PolicyValue>>(value: Option<T>) -> PolicyValue {
        value.map_or(PolicyValue::None, Into::into)
    }

    /// The name of its Starlark type.
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

    /// The value on a frozen heap of the interpreter: policies cannot change it.
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
                // A key that is not hashable is dropped. No policy can create one; only a caller of this crate can.
                let entries = entries.iter().filter(|(key, _)| key.is_hashable());
                heap.alloc(AllocDict(entries.map(|(key, value)| (key.alloc(heap), value.alloc(heap)))))
            }
        }
    }

    /// True if the value can be a key of a dict.
    fn is_hashable(&self) -> bool {
        match self {
            PolicyValue::None
            | PolicyValue::Bool(_)
            | PolicyValue::Int(_)
            | PolicyValue::Float(_)
            | PolicyValue::Text(_) => true,
            PolicyValue::Tuple(items) => items.iter().all(PolicyValue::is_hashable),
            PolicyValue::Record(fields) => fields.iter().all(|(_, value)| value.is_hashable()),
            PolicyValue::List(_) | PolicyValue::Dict(_) => false,
        }
    }

    /// Convert a value of the interpreter.
    pub(crate) fn from_starlark(value: Value) -> Result<PolicyValue, ConversionError> {
        PolicyValue::convert_bounded(value, DEPTH_MAX, &Cell::new(ANSWER_SIZE_MAX))
    }

    fn convert_bounded(value: Value, depth: usize, size_left: &Cell<usize>) -> Result<PolicyValue, ConversionError> {
        let Some(depth) = depth.checked_sub(1) else { return Err(ConversionError::TooDeep) };
        let size = 1 + value.unpack_str().map_or(0, str::len);
        size_left.set(size_left.get().checked_sub(size).ok_or(ConversionError::TooLarge)?);
        if value.is_none() {
            return Ok(PolicyValue::None);
        }
        if let Some(flag) = value.unpack_bool() {
            return Ok(PolicyValue::Bool(flag));
        }
        if let Some(text) = value.unpack_str() {
            return Ok(PolicyValue::text(text));
        }
        // Numbers before containers: most answers are numbers.
        if let Some(number) = unpack_number(value) {
            return Ok(number);
        }
        let all = |items: &mut dyn Iterator<Item = Value>| {
            items
                .map(|item| PolicyValue::convert_bounded(item, depth, size_left))
                .collect::<Result<Vec<PolicyValue>, ConversionError>>()
        };
        if let Some(list) = ListRef::from_value(value) {
            return Ok(PolicyValue::List(all(&mut list.iter())?));
        }
        if let Some(tuple) = TupleRef::from_value(value) {
            return Ok(PolicyValue::Tuple(all(&mut tuple.iter())?));
        }
        if let Some(dict) = DictRef::from_value(value) {
            let entry = |(key, value)| {
                Ok((
                    PolicyValue::convert_bounded(key, depth, size_left)?,
                    PolicyValue::convert_bounded(value, depth, size_left)?,
                ))
            };
            return dict.iter().map(entry).collect::<Result<_, _>>().map(PolicyValue::Dict);
        }
        if let Some(record) = StructRef::from_value(value) {
            let entry = |(name, value): (starlark::values::StringValue, Value)| {
                Ok((PolicyValue::text(name.as_str()), PolicyValue::convert_bounded(value, depth, size_left)?))
            };
            return record.iter().map(entry).collect::<Result<_, _>>().map(PolicyValue::Dict);
        }
        Err(ConversionError::UnsupportedType(value.get_type()))
    }
}

/// A number. An int beyond 64 bits becomes a float, as in JSON.
fn unpack_number(value: Value) -> Option<PolicyValue> {
    if let Ok(Some(whole)) = i64::unpack_value(value) {
        return Some(PolicyValue::Int(whole));
    }
    let UnpackFloat(number) = UnpackFloat::unpack_value(value).ok()??;
    Some(PolicyValue::Float(number))
}

/// Why a value cannot be converted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ConversionError {
    /// Nested more than [`DEPTH_MAX`] levels deep, or contains itself.
    TooDeep,
    /// Larger than [`ANSWER_SIZE_MAX`].
    TooLarge,
    /// A function or another type that is no data.
    UnsupportedType(&'static str),
}

impl fmt::Display for ConversionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConversionError::TooDeep => write!(f, "it is nested more than {DEPTH_MAX} levels deep"),
            ConversionError::TooLarge => write!(f, "it exceeds {ANSWER_SIZE_MAX} values and bytes"),
            ConversionError::UnsupportedType(kind) => {
                write!(f, "a value of type {kind} cannot be passed between muster and a policy")
            }
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

/// Saturates at [`i64::MAX`], which is above every count of a view.
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

/// As Starlark prints it.
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

//! A value on its way into a table or out of it.

use muster_core::{JobId, NodeId, TenantId, Timestamp};

use crate::error::StoreError;

/// What a column can hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Nothing.
    Null,
    /// A whole number.
    Int(i64),
    /// A text.
    Text(String),
    /// Yes or no.
    Bool(bool),
}

impl From<i64> for Value {
    fn from(number: i64) -> Value {
        Value::Int(number)
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Value {
        Value::Int(i64::from(number))
    }
}

impl From<i32> for Value {
    fn from(number: i32) -> Value {
        Value::Int(i64::from(number))
    }
}

impl From<u8> for Value {
    fn from(number: u8) -> Value {
        Value::Int(i64::from(number))
    }
}

impl From<u64> for Value {
    /// Databases have no unsigned numbers. What does not fit is someone's way to say "more than there is".
    fn from(number: u64) -> Value {
        Value::Int(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<bool> for Value {
    fn from(truth: bool) -> Value {
        Value::Bool(truth)
    }
}

impl From<Timestamp> for Value {
    fn from(at: Timestamp) -> Value {
        Value::Int(at.0)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(clean(text))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        if text.contains('\0') { Value::Text(clean(&text)) } else { Value::Text(text) }
    }
}

impl From<JobId> for Value {
    fn from(job: JobId) -> Value {
        Value::Text(job.to_string())
    }
}

impl From<&NodeId> for Value {
    fn from(node: &NodeId) -> Value {
        Value::Text(node.to_string())
    }
}

impl From<&TenantId> for Value {
    fn from(tenant: &TenantId) -> Value {
        Value::Text(tenant.to_string())
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Value {
        value.map_or(Value::Null, Into::into)
    }
}

/// PostgreSQL cannot store a zero character in a text; a name that holds one must not stop the server.
pub fn clean(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

/// The cells of one row, read from left to right.
pub struct Cells(std::vec::IntoIter<Value>);

impl Cells {
    /// Begin at the left.
    pub fn new(row: Vec<Value>) -> Cells {
        Cells(row.into_iter())
    }

    /// The next cell, of whatever type the column of the row struct has.
    pub fn take<T: FromCell>(&mut self) -> Result<T, StoreError> {
        let value =
            self.0.next().ok_or_else(|| StoreError::broken("a row has fewer cells than its reader"))?;
        T::from_cell(value)
    }
}

/// A type that a cell can be read as.
pub trait FromCell: Sized {
    /// Read it.
    fn from_cell(value: Value) -> Result<Self, StoreError>;
}

fn unexpected<T>(value: &Value, wanted: &str) -> Result<T, StoreError> {
    Err(StoreError::broken(format!("a table holds {value:?} where {wanted} should be")))
}

impl FromCell for i64 {
    fn from_cell(value: Value) -> Result<i64, StoreError> {
        match value {
            Value::Int(number) => Ok(number),
            other => unexpected(&other, "a number"),
        }
    }
}

impl FromCell for String {
    fn from_cell(value: Value) -> Result<String, StoreError> {
        match value {
            Value::Text(text) => Ok(text),
            other => unexpected(&other, "a text"),
        }
    }
}

impl<T: FromCell> FromCell for Option<T> {
    fn from_cell(value: Value) -> Result<Option<T>, StoreError> {
        match value {
            Value::Null => Ok(None),
            value => T::from_cell(value).map(Some),
        }
    }
}

macro_rules! narrow_cell {
    ($($type:ty),*) => {$(
        impl FromCell for $type {
            fn from_cell(value: Value) -> Result<$type, StoreError> {
                let number = i64::from_cell(value)?;
                <$type>::try_from(number).or_else(|_| unexpected(&Value::Int(number), stringify!($type)))
            }
        }
    )*};
}
narrow_cell!(u64, u32, u8, i32);

impl FromCell for JobId {
    fn from_cell(value: Value) -> Result<JobId, StoreError> {
        let text = String::from_cell(value)?;
        text.parse().or_else(|_| unexpected(&Value::Text(text), "a job id"))
    }
}

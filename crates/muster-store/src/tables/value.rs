//! Values of table columns, and their conversion from and to Rust types.

use muster_core::{JobId, NodeId, TenantId, Timestamp};

use crate::error::StoreError;

/// Value of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Null,
    Int(i64),
    Text(String),
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
    /// The databases have no unsigned 64-bit integers. A larger number is a limit that means "unlimited", so it is
    /// clamped.
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
        Value::Text(replace_nul(text))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        if text.contains('\0') { Value::Text(replace_nul(&text)) } else { Value::Text(text) }
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

/// PostgreSQL cannot store NUL in a text, and a name that contains one must not stop the server.
pub fn replace_nul(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

/// Cells of one row, decoded from left to right.
pub struct RowCells(std::vec::IntoIter<Value>);

impl RowCells {
    pub fn new(row: Vec<Value>) -> RowCells {
        RowCells(row.into_iter())
    }

    /// The next cell.
    pub fn take<T: FromCell>(&mut self) -> Result<T, StoreError> {
        let value = self
            .0
            .next()
            .ok_or_else(|| StoreError::invariant_violated("a row has fewer columns than its decoder reads"))?;
        T::from_cell(value)
    }
}

/// A type that a cell can be decoded as.
pub trait FromCell: Sized {
    fn from_cell(value: Value) -> Result<Self, StoreError>;
}

fn unexpected<T>(value: &Value, expected: &str) -> Result<T, StoreError> {
    Err(StoreError::invariant_violated(format!("a table holds {value:?} instead of {expected}")))
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

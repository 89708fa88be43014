//! Conversion of values to and from PostgreSQL, singly or as arrays for bulk statements.

use std::error::Error;

use tokio_postgres::Row;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

use crate::error::StoreError;
use crate::tables::Value;

impl Value {
    /// Parameter type, for queries without a prepared statement.
    pub fn postgres_type(&self) -> Type {
        match self {
            Value::Int(_) => Type::INT8,
            Value::Bool(_) => Type::BOOL,
            Value::Text(_) | Value::Null => Type::TEXT,
        }
    }
}

impl ToSql for Value {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match self {
            Value::Null => Ok(IsNull::Yes),
            Value::Int(number) => number.to_sql_checked(ty, out),
            Value::Text(text) => text.to_sql_checked(ty, out),
            Value::Bool(truth) => truth.to_sql_checked(ty, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

/// One parameter of many changes, as an array.
#[derive(Debug)]
pub struct ArrayParameter<'a>(pub Vec<&'a Value>);

impl ToSql for ArrayParameter<'_> {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        if *ty == Type::INT8_ARRAY { self.numbers()?.to_sql(ty, out) } else { self.texts()?.to_sql(ty, out) }
    }

    fn accepts(ty: &Type) -> bool {
        matches!(*ty, Type::INT8_ARRAY | Type::TEXT_ARRAY)
    }

    to_sql_checked!();
}

impl ArrayParameter<'_> {
    fn numbers(&self) -> Result<Vec<Option<i64>>, String> {
        let number = |value: &&Value| match value {
            Value::Int(number) => Ok(Some(*number)),
            Value::Null => Ok(None),
            other => Err(format!("{other:?} in an array of numbers")),
        };
        self.0.iter().map(number).collect()
    }

    fn texts(&self) -> Result<Vec<Option<&str>>, String> {
        self.0
            .iter()
            .map(|value| match value {
                Value::Text(text) => Ok(Some(text.as_str())),
                Value::Null => Ok(None),
                other => Err(format!("{other:?} in an array of texts")),
            })
            .collect()
    }
}

pub fn row_values(row: &Row) -> Result<Vec<Value>, StoreError> {
    (0..row.len()).map(|column| column_value(row, column)).collect()
}

fn column_value(row: &Row, column: usize) -> Result<Value, StoreError> {
    let value = match *row.columns()[column].type_() {
        Type::INT8 => row.try_get::<_, Option<i64>>(column).map(Value::from),
        Type::INT4 => row.try_get::<_, Option<i32>>(column).map(Value::from),
        Type::BOOL => row.try_get::<_, Option<bool>>(column).map(Value::from),
        _ => row.try_get::<_, Option<String>>(column).map(|text| text.map_or(Value::Null, Value::Text)),
    };
    value.map_err(|error| StoreError::invariant_violated(format!("a column cannot be decoded: {error}")))
}

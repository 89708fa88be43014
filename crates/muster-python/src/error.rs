//! Converts errors of policies into `starlark_engine.PolicyError`, and reports wrong arguments as `muster-policy` does.

use muster_policy::PolicyError;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

static POLICY_ERROR: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// The exception for an error of a policy. Its class is defined in Python, where exception classes are short.
pub fn policy_error(py: Python, error: PolicyError) -> PyErr {
    let class = match POLICY_ERROR.import(py, "starlark_engine.error", "PolicyError") {
        Ok(class) => class,
        Err(error) => return error,
    };
    let (file, line, column, message) = match error {
        PolicyError::Unreadable { path, reason } => {
            (path.display().to_string(), None, None, format!("cannot be read: {reason}"))
        }
        PolicyError::InvalidAt { file, line, column, message } => (file, Some(line), Some(column), message),
        PolicyError::Invalid { file, message } => (file, None, None, message),
        PolicyError::WorkerFailed { message } => ("policy".to_string(), None, None, message),
    };
    match class.call1((file, line, column, message)) {
        Ok(raised) => PyErr::from_value(raised),
        Err(error) => error,
    }
}

/// The `TypeError` for an argument of a wrong type.
pub fn wrong_type(name: &str, value: &Bound<PyAny>, expected: &str) -> PyErr {
    PyTypeError::new_err(argument_message(name, value, expected))
}

/// The `ValueError` for an argument of the right type with a value that is not accepted.
pub fn wrong_value(name: &str, value: &Bound<PyAny>, expected: &str) -> PyErr {
    PyValueError::new_err(argument_message(name, value, expected))
}

fn argument_message(name: &str, value: &Bound<PyAny>, expected: &str) -> String {
    /// A longer repr is left out.
    const REPR_CHARS_MAX: usize = 80;
    let shown = value.repr().map(|repr| repr.to_string_lossy().into_owned()).unwrap_or_default();
    let shown = if shown.chars().count() > REPR_CHARS_MAX { String::new() } else { format!("{shown} ") };
    let kind = value.get_type().name().map(|name| name.to_string()).unwrap_or_default();
    format!("{name} is {shown}({kind}); it must be {expected}")
}

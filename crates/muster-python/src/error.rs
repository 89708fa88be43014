//! What is wrong with a policy, as `starlark_engine.PolicyError`; and with an argument, in the words of the policies.

use muster_policy::PolicyError;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

static POLICY_ERROR: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// The exception for an error of a policy. Its class is written in Python, where classes of exceptions are short.
pub fn policy_error(py: Python, error: PolicyError) -> PyErr {
    let class = match POLICY_ERROR.import(py, "starlark_engine.error", "PolicyError") {
        Ok(class) => class,
        Err(error) => return error,
    };
    let (file, line, column, what) = match error {
        PolicyError::Unreadable { path, why } => {
            (path.display().to_string(), None, None, format!("cannot be read: {why}"))
        }
        PolicyError::Wrong { file, line, column, what } => (file, Some(line), Some(column), what),
        PolicyError::Somewhere { file, what } => (file, None, None, what),
        PolicyError::Ended { what } => ("policy".to_string(), None, None, what),
    };
    match class.call1((file, line, column, what)) {
        Ok(raised) => PyErr::from_value(raised),
        Err(error) => error,
    }
}

/// An argument of the wrong kind.
pub fn wrong_type(name: &str, value: &Bound<PyAny>, wanted: &str) -> PyErr {
    PyTypeError::new_err(complaint(name, value, wanted))
}

/// An argument of the right kind that cannot be.
pub fn wrong_value(name: &str, value: &Bound<PyAny>, wanted: &str) -> PyErr {
    PyValueError::new_err(complaint(name, value, wanted))
}

fn complaint(name: &str, value: &Bound<PyAny>, wanted: &str) -> String {
    /// Longer ones say no more about what is wrong.
    const SHOWN_MAX: usize = 80;
    let shown = value.repr().map(|repr| repr.to_string_lossy().into_owned()).unwrap_or_default();
    let shown = if shown.chars().count() > SHOWN_MAX { String::new() } else { format!("{shown} ") };
    let kind = value.get_type().name().map(|name| name.to_string()).unwrap_or_default();
    format!("{name} is {shown}({kind}); it must be {wanted}")
}

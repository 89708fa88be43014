//! Converts arguments from Python values, and answers to Python values.

use muster_policy::PolicyValue;
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

use crate::error::{wrong_type, wrong_value};

/// The most levels of nested values, as for answers of policies.
const DEPTH_MAX: usize = 32;
/// The most values of one call. The depth limit alone does not bound a list that contains itself twice.
const VALUES_MAX: usize = 1_000_000;

/// Converts the arguments of one call, within [`VALUES_MAX`].
pub struct ArgumentReader {
    values_left: usize,
}

impl ArgumentReader {
    pub fn new() -> ArgumentReader {
        ArgumentReader { values_left: VALUES_MAX }
    }

    pub fn read(&mut self, value: &Bound<PyAny>) -> PyResult<PolicyValue> {
        self.read_bounded(value, DEPTH_MAX)
    }

    // The most frequent types come first; `bool` is a subclass of `int` and comes before it.
    fn read_bounded(&mut self, value: &Bound<PyAny>, depth: usize) -> PyResult<PolicyValue> {
        if let Ok(text) = value.cast_exact::<PyString>() {
            return read_text(text);
        }
        if let Ok(flag) = value.cast_exact::<PyBool>() {
            return Ok(PolicyValue::Bool(flag.is_true()));
        }
        if let Ok(number) = value.cast::<PyInt>() {
            let int = number.extract().map(PolicyValue::Int);
            return int.map_err(|_| wrong_value("an argument", value, "a whole number of 64 bits"));
        }
        if let Ok(number) = value.cast::<PyFloat>() {
            return Ok(PolicyValue::Float(number.value()));
        }
        if value.is_none() {
            return Ok(PolicyValue::None);
        }
        self.read_container(value, depth)
    }

    fn read_container(&mut self, value: &Bound<PyAny>, depth: usize) -> PyResult<PolicyValue> {
        let Some(depth) = depth.checked_sub(1) else {
            let message = format!("an argument is nested more than {DEPTH_MAX} levels deep or contains itself");
            return Err(PyValueError::new_err(message));
        };
        if let Ok(dict) = value.cast::<PyDict>() {
            return self.read_dict(dict, depth);
        }
        if let Ok(list) = value.cast::<PyList>() {
            return self.read_items(list.iter(), depth).map(PolicyValue::List);
        }
        if let Ok(tuple) = value.cast::<PyTuple>() {
            return self.read_items(tuple.iter(), depth).map(PolicyValue::Tuple);
        }
        if let Ok(text) = value.cast::<PyString>() {
            return read_text(text);
        }
        Err(wrong_type("an argument", value, "a dict, list, tuple, str, int, float, bool or None"))
    }

    // Here and below the vector is allocated up front: `collect` into a `Result` does not know the length.
    fn read_dict(&mut self, dict: &Bound<PyDict>, depth: usize) -> PyResult<PolicyValue> {
        self.charge_values(dict.len())?;
        let mut entries = Vec::with_capacity(dict.len());
        // No Python code runs in this loop, so the dict cannot change while it is read.
        for (key, value) in dict.iter() {
            entries.push((self.read_key(&key, depth)?, self.read_bounded(&value, depth)?));
        }
        Ok(PolicyValue::Dict(entries))
    }

    fn read_items<'py>(
        &mut self,
        items: impl ExactSizeIterator<Item = Bound<'py, PyAny>>,
        depth: usize,
    ) -> PyResult<Vec<PolicyValue>> {
        self.charge_values(items.len())?;
        let mut values = Vec::with_capacity(items.len());
        for item in items {
            values.push(self.read_bounded(&item, depth)?);
        }
        Ok(values)
    }

    /// A key that is hashable in Starlark too.
    fn read_key(&mut self, key: &Bound<PyAny>, depth: usize) -> PyResult<PolicyValue> {
        match self.read_bounded(key, depth)? {
            PolicyValue::List(_) | PolicyValue::Dict(_) => Err(wrong_type("a key", key, "a string or a number")),
            hashable => Ok(hashable),
        }
    }

    fn charge_values(&mut self, values: usize) -> PyResult<()> {
        let left = self.values_left.checked_sub(values);
        let too_many = || PyValueError::new_err(format!("the arguments have more than {VALUES_MAX} values"));
        self.values_left = left.ok_or_else(too_many)?;
        Ok(())
    }
}

fn read_text(text: &Bound<PyString>) -> PyResult<PolicyValue> {
    let text = text.to_str().map_err(|_| PyValueError::new_err("a string is not valid UTF-8"))?;
    Ok(PolicyValue::text(text))
}

/// The answer of a policy as a Python value.
pub fn to_python<'py>(py: Python<'py>, value: &PolicyValue) -> PyResult<Bound<'py, PyAny>> {
    let all = |items: &[PolicyValue]| items.iter().map(|item| to_python(py, item)).collect::<PyResult<Vec<_>>>();
    match value {
        PolicyValue::None => Ok(py.None().into_bound(py)),
        PolicyValue::Bool(flag) => flag.into_bound_py_any(py),
        PolicyValue::Int(number) => number.into_bound_py_any(py),
        PolicyValue::Float(number) => number.into_bound_py_any(py),
        PolicyValue::Text(text) => text.into_bound_py_any(py),
        PolicyValue::List(items) => PyList::new(py, all(items)?).map(Bound::into_any),
        PolicyValue::Tuple(items) => PyTuple::new(py, all(items)?).map(Bound::into_any),
        PolicyValue::Dict(entries) => {
            let dict = PyDict::new(py);
            for (key, value) in entries {
                dict.set_item(to_python(py, key)?, to_python(py, value)?)?;
            }
            Ok(dict.into_any())
        }
        PolicyValue::Record(fields) => {
            let dict = PyDict::new(py);
            for (name, value) in fields {
                dict.set_item(*name, to_python(py, value)?)?;
            }
            Ok(dict.into_any())
        }
    }
}

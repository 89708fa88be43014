//! Values from Python into a policy, and back.

use muster_policy::Plain;
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

use crate::error::{wrong_type, wrong_value};

/// How deep values may lie inside each other, as deep as those that come out of a policy.
const DEPTH_MAX: usize = 32;
/// Values of one call. A list that holds itself twice would never end by its depth alone.
const VALUES_MAX: usize = 1_000_000;

/// What may still be read of the arguments of one call.
pub struct Reader {
    values_left: usize,
}

impl Reader {
    /// For one call.
    pub fn new() -> Reader {
        Reader { values_left: VALUES_MAX }
    }

    /// A value of Python as plain data.
    pub fn read(&mut self, value: &Bound<PyAny>) -> PyResult<Plain> {
        self.within(value, DEPTH_MAX)
    }

    // In the order in which arguments have them most often; `True` is a number too, so it is asked first.
    fn within(&mut self, value: &Bound<PyAny>, depth: usize) -> PyResult<Plain> {
        if let Ok(text) = value.cast_exact::<PyString>() {
            return read_text(text);
        }
        if let Ok(flag) = value.cast_exact::<PyBool>() {
            return Ok(Plain::Bool(flag.is_true()));
        }
        if let Ok(number) = value.cast::<PyInt>() {
            let whole = number.extract().map(Plain::Int);
            return whole.map_err(|_| wrong_value("an argument", value, "a whole number of 64 bits"));
        }
        if let Ok(number) = value.cast::<PyFloat>() {
            return Ok(Plain::Float(number.value()));
        }
        if value.is_none() {
            return Ok(Plain::None);
        }
        self.read_several(value, depth)
    }

    fn read_several(&mut self, value: &Bound<PyAny>, depth: usize) -> PyResult<Plain> {
        let Some(depth) = depth.checked_sub(1) else {
            let what = format!("an argument is nested more than {DEPTH_MAX} deep, or holds itself");
            return Err(PyValueError::new_err(what));
        };
        if let Ok(dict) = value.cast::<PyDict>() {
            return self.read_dict(dict, depth);
        }
        if let Ok(list) = value.cast::<PyList>() {
            return self.read_items(list.iter(), depth).map(Plain::List);
        }
        if let Ok(tuple) = value.cast::<PyTuple>() {
            return self.read_items(tuple.iter(), depth).map(Plain::Tuple);
        }
        if let Ok(text) = value.cast::<PyString>() {
            return read_text(text);
        }
        Err(wrong_type("an argument", value, "a dict, list, tuple, str, int, float, bool or None"))
    }

    // Here and below room is made before: collecting results does not know how many there are.
    fn read_dict(&mut self, dict: &Bound<PyDict>, depth: usize) -> PyResult<Plain> {
        self.spend(dict.len())?;
        let mut entries = Vec::with_capacity(dict.len());
        // Nothing of Python runs in between, so nobody changes the dict while it is read.
        for (key, value) in dict.iter() {
            entries.push((self.read_key(&key, depth)?, self.within(&value, depth)?));
        }
        Ok(Plain::Dict(entries))
    }

    fn read_items<'py>(
        &mut self,
        items: impl ExactSizeIterator<Item = Bound<'py, PyAny>>,
        depth: usize,
    ) -> PyResult<Vec<Plain>> {
        self.spend(items.len())?;
        let mut read = Vec::with_capacity(items.len());
        for item in items {
            read.push(self.within(&item, depth)?);
        }
        Ok(read)
    }

    /// Only what can be a key in a policy as well.
    fn read_key(&mut self, key: &Bound<PyAny>, depth: usize) -> PyResult<Plain> {
        let read = self.within(key, depth)?;
        match read {
            Plain::List(_) | Plain::Dict(_) => Err(wrong_type("a key", key, "a text or a number")),
            read => Ok(read),
        }
    }

    fn spend(&mut self, values: usize) -> PyResult<()> {
        let left = self.values_left.checked_sub(values);
        let too_many = || PyValueError::new_err(format!("the arguments hold more than {VALUES_MAX} values"));
        self.values_left = left.ok_or_else(too_many)?;
        Ok(())
    }
}

fn read_text(text: &Bound<PyString>) -> PyResult<Plain> {
    let text = text.to_str().map_err(|_| PyValueError::new_err("a text has letters that UTF-8 has not"))?;
    Ok(Plain::text(text))
}

/// What a policy answered, as Python has it.
pub fn written<'py>(py: Python<'py>, plain: &Plain) -> PyResult<Bound<'py, PyAny>> {
    let all = |items: &[Plain]| items.iter().map(|item| written(py, item)).collect::<PyResult<Vec<_>>>();
    match plain {
        Plain::None => Ok(py.None().into_bound(py)),
        Plain::Bool(flag) => flag.into_bound_py_any(py),
        Plain::Int(number) => number.into_bound_py_any(py),
        Plain::Float(number) => number.into_bound_py_any(py),
        Plain::Text(text) => text.into_bound_py_any(py),
        Plain::List(items) => PyList::new(py, all(items)?).map(Bound::into_any),
        Plain::Tuple(items) => PyTuple::new(py, all(items)?).map(Bound::into_any),
        Plain::Dict(entries) => {
            let dict = PyDict::new(py);
            for (key, value) in entries {
                dict.set_item(written(py, key)?, written(py, value)?)?;
            }
            Ok(dict.into_any())
        }
        Plain::Record(fields) => {
            let dict = PyDict::new(py);
            for (name, value) in fields {
                dict.set_item(*name, written(py, value)?)?;
            }
            Ok(dict.into_any())
        }
    }
}

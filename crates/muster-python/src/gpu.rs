//! Converts GPUs and requirements from Python objects.

use muster_policy::{Gpu, Requirements};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyFrozenSet, PyInt, PyList, PySet, PyString, PyTuple};

use crate::error::{wrong_type, wrong_value};

/// A GPU from an object with the fields of `GPUInfo`.
pub fn gpu_from_python(object: &Bound<PyAny>) -> PyResult<Gpu> {
    let field = |name: &str| {
        let missing = |_| wrong_type("gpu", object, "a GPUInfo");
        object.getattr(name).map(|value| (format!("GPUInfo.{name}"), value)).map_err(missing)
    };
    let text = |name| field(name).and_then(|(name, value)| text(&name, &value));
    let number = |name| field(name).and_then(|(name, value)| number(&name, &value));
    let flag = |name| field(name).and_then(|(name, value)| flag(&name, &value));
    Ok(Gpu {
        id: field("id").and_then(|(name, value)| count(&name, &value))?,
        name: text("name")?,
        uuid: text("uuid")?,
        memory_gb: number("memory_gb")?,
        temperature_c: number("temperature_c")?,
        power_w: number("power_w")?,
        online: flag("online")?,
        registered: flag("registered")?,
        pool: text("pool")?,
        tags: field("tags").and_then(|(name, value)| texts(&name, &value))?,
    })
}

/// Requirements from a dict. Unknown keys and values of `None` are ignored.
pub fn requirements_from_python(object: &Bound<PyAny>) -> PyResult<Requirements> {
    let dict = object.cast::<PyDict>().map_err(|_| wrong_type("requirements", object, "a dict"))?;
    let entry = |name: &str| {
        let value = dict.get_item(name)?.filter(|value| !value.is_none());
        Ok::<_, PyErr>(value.map(|value| (format!("requirements[{name:?}]"), value)))
    };
    let limit = |name| entry(name)?.map(|(name, value)| number(&name, &value)).transpose();
    let tags = entry("tags")?.map(|(name, value)| texts(&name, &value)).transpose()?;
    Ok(Requirements { min_memory: limit("min_memory")?, max_temp: limit("max_temp")?, tags: tags.unwrap_or_default() })
}

fn text(name: &str, value: &Bound<PyAny>) -> PyResult<String> {
    let text = value.cast::<PyString>().map_err(|_| wrong_type(name, value, "a string"))?;
    text.to_str().map(str::to_string).map_err(|_| wrong_value(name, value, "a string in UTF-8"))
}

fn flag(name: &str, value: &Bound<PyAny>) -> PyResult<bool> {
    value.cast::<PyBool>().map(|flag| flag.is_true()).map_err(|_| wrong_type(name, value, "True or False"))
}

/// A number. `bool` is a subclass of `int` in Python and is rejected.
fn number(name: &str, value: &Bound<PyAny>) -> PyResult<f64> {
    let is_number = value.is_instance_of::<PyFloat>() || value.is_instance_of::<PyInt>();
    if !is_number || value.is_instance_of::<PyBool>() {
        return Err(wrong_type(name, value, "a number"));
    }
    let number = value.extract::<f64>().ok().filter(|number| number.is_finite());
    number.ok_or_else(|| wrong_value(name, value, "a finite number"))
}

fn count(name: &str, value: &Bound<PyAny>) -> PyResult<u32> {
    if !value.is_instance_of::<PyInt>() || value.is_instance_of::<PyBool>() {
        return Err(wrong_type(name, value, "a whole number"));
    }
    value.extract().map_err(|_| wrong_value(name, value, "a whole number from 0 to 4294967295"))
}

/// A collection of strings. A single string is rejected: Python would iterate over its characters.
fn texts(name: &str, value: &Bound<PyAny>) -> PyResult<Vec<String>> {
    let is_collection = value.is_instance_of::<PyList>()
        || value.is_instance_of::<PyTuple>()
        || value.is_instance_of::<PySet>()
        || value.is_instance_of::<PyFrozenSet>();
    if !is_collection {
        return Err(wrong_type(name, value, "a list of strings"));
    }
    value.try_iter()?.map(|item| text(&format!("an item of {name}"), &item?)).collect()
}

//! Compiled policies whose functions Python can call.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use muster_policy::{CallBatch, Limits, POLICY_EXTENSION, PolicyError, Program as Compiled};
use pyo3::exceptions::PyAttributeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::error::policy_error;
use crate::rules::{pools, schedules};
use crate::value::{ArgumentReader, to_python};

/// The time limit of a call. It is longer than that of the server: no planning round waits for the call, and other
/// Python threads may delay it. The step limit is that of the server.
const CALL_TIME: Duration = Duration::from_secs(2);

/// Compiled policies.
#[pyclass(module = "starlark_engine", frozen)]
pub struct Program {
    program: Compiled,
    /// The first file that defines each function, so that a call need not search for it.
    functions: BTreeMap<String, String>,
}

#[pymethods]
impl Program {
    /// Compile sources by file name.
    #[new]
    fn new(py: Python, files: BTreeMap<String, String>) -> PyResult<Program> {
        let limits = Limits { call_time: CALL_TIME, ..Limits::default() };
        let program = py.detach(|| Compiled::compile_files(&files, limits));
        let program = program.map_err(|error| policy_error(py, error))?;
        let first = |(name, files): (String, Vec<String>)| Some((name, files.into_iter().next()?));
        let functions = program.functions().into_iter().filter_map(first).collect();
        Ok(Program { program, functions })
    }

    /// Compile the policies of a folder.
    #[staticmethod]
    fn from_dir(py: Python, path: PathBuf) -> PyResult<Program> {
        let files = read_policy_files(&path).map_err(|error| policy_error(py, error))?;
        Program::new(py, files)
    }

    /// The names of the callable functions.
    #[getter]
    fn functions(&self) -> Vec<&str> {
        self.functions.keys().map(String::as_str).collect()
    }

    /// What the policies registered: `pools` and `schedules`.
    #[getter]
    fn rules<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        dict.set_item("pools", pools(py, self.program.rules())?)?;
        dict.set_item("schedules", schedules(py, self.program.rules())?)?;
        Ok(dict)
    }

    /// Call a function with these arguments, and return its answer.
    #[pyo3(signature = (function, *args))]
    fn call<'py>(&self, py: Python<'py>, function: &str, args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
        let Some(file) = self.functions.get(function) else {
            let known: Vec<&str> = self.functions();
            let message = format!("there is no function `{function}`; the functions are {}", known.join(", "));
            return Err(PyAttributeError::new_err(message));
        };
        let mut reader = ArgumentReader::new();
        let call = CallBatch::single(args.iter().map(|arg| reader.read(&arg)).collect::<PyResult<Vec<_>>>()?);
        // Other Python threads may run meanwhile: the call touches no Python object.
        let answer = py.detach(|| self.program.call_each(file, function, &call).into_iter().next());
        match answer {
            Some(Ok(answer)) => to_python(py, &answer),
            Some(Err(error)) => Err(policy_error(py, error)),
            None => Ok(py.None().into_bound(py)),
        }
    }
}

/// Every policy and test file of a folder, by name.
fn read_policy_files(folder: &Path) -> Result<BTreeMap<String, String>, PolicyError> {
    let unreadable = |path: &Path, error: std::io::Error| PolicyError::Unreadable {
        path: path.to_path_buf(),
        reason: error.to_string(),
    };
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(folder).map_err(|error| unreadable(folder, error))? {
        let path = entry.map_err(|error| unreadable(folder, error))?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if path.extension().is_some_and(|extension| extension == POLICY_EXTENSION) && path.is_file() {
            files.insert(name, std::fs::read_to_string(&path).map_err(|error| unreadable(&path, error))?);
        }
    }
    Ok(files)
}

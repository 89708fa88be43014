//! A bundle of policies whose functions Python calls.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use muster_policy::{Calls, ENDING, Limits, PolicyError, Program as Compiled};
use pyo3::exceptions::PyAttributeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::error::policy_error;
use crate::rules::{pools, schedules};
use crate::value::{Reader, written};

/// How long a call may take. No round of a scheduler waits for it, and other threads of Python may hold it up; the
/// bound on its steps is that of the server.
const CALL_TIME: Duration = Duration::from_secs(2);

/// Policies that were compiled.
#[pyclass(module = "starlark_engine", frozen)]
pub struct Program {
    program: Compiled,
    /// Each function with the first file that tells it, so that a call need not look for it.
    functions: BTreeMap<String, String>,
}

#[pymethods]
impl Program {
    /// Compile sources by the names of their files.
    #[new]
    fn new(py: Python, files: BTreeMap<String, String>) -> PyResult<Program> {
        let limits = Limits { time: CALL_TIME, ..Limits::default() };
        let program = py.detach(|| Compiled::of_files(&files, limits));
        let program = program.map_err(|error| policy_error(py, error))?;
        let first = |(name, files): (String, Vec<String>)| Some((name, files.into_iter().next()?));
        let functions = program.functions().into_iter().filter_map(first).collect();
        Ok(Program { program, functions })
    }

    /// Compile the policies of a folder.
    #[staticmethod]
    fn from_dir(py: Python, path: PathBuf) -> PyResult<Program> {
        let files = files_of(&path).map_err(|error| policy_error(py, error))?;
        Program::new(py, files)
    }

    /// The functions that can be called.
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

    /// Call a function with these values, and give its answer.
    #[pyo3(signature = (function, *args))]
    fn call<'py>(
        &self,
        py: Python<'py>,
        function: &str,
        args: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let Some(file) = self.functions.get(function) else {
            let known: Vec<&str> = self.functions();
            let what = format!("there is no function `{function}`; there are {}", known.join(", "));
            return Err(PyAttributeError::new_err(what));
        };
        let mut reader = Reader::new();
        let call = Calls::one(args.iter().map(|arg| reader.read(&arg)).collect::<PyResult<Vec<_>>>()?);
        // Others may run meanwhile: nothing here is Python's.
        let said = py.detach(|| self.program.call_each(file, function, &call).into_iter().next());
        match said {
            Some(Ok(answer)) => written(py, &answer),
            Some(Err(error)) => Err(policy_error(py, error)),
            None => Ok(py.None().into_bound(py)),
        }
    }
}

/// Every file of a folder that a policy may be, or load.
fn files_of(folder: &Path) -> Result<BTreeMap<String, String>, PolicyError> {
    let unreadable = |path: &Path, error: std::io::Error| PolicyError::Unreadable {
        path: path.to_path_buf(),
        why: error.to_string(),
    };
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(folder).map_err(|error| unreadable(folder, error))? {
        let path = entry.map_err(|error| unreadable(folder, error))?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if path.extension().is_some_and(|ending| ending == ENDING) && path.is_file() {
            files.insert(name, std::fs::read_to_string(&path).map_err(|error| unreadable(&path, error))?);
        }
    }
    Ok(files)
}

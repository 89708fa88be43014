//! The policy engine of the specification, for Python.

use std::collections::HashMap;
use std::path::PathBuf;

use muster_policy::{Gpu, PolicyEngine as Engine};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::gpu::{gpu_from_python, requirements_from_python};
use crate::rules::{pools, schedules};

/// Loads policies and decides whether a GPU may be allocated.
#[pyclass(module = "starlark_engine")]
pub struct PolicyEngine {
    engine: Engine,
    /// The errors of all policies that did not load.
    errors: Vec<String>,
}

#[pymethods]
impl PolicyEngine {
    /// An engine whose policies are in this folder; `policies` by default.
    #[new]
    #[pyo3(signature = (policy_dir=None))]
    fn new(policy_dir: Option<PathBuf>) -> PolicyEngine {
        let engine = Engine::new(policy_dir.unwrap_or_else(|| PathBuf::from("policies")));
        PolicyEngine { engine, errors: Vec::new() }
    }

    /// Load a policy by its path, or by its path inside the folder. False if it does not load.
    fn load_policy(&mut self, path: PathBuf) -> bool {
        match self.engine.load_policy(&path) {
            Ok(()) => true,
            Err(error) => {
                self.errors.push(error.to_string());
                false
            }
        }
    }

    /// Load every policy of the folder, and return the number that loaded.
    fn load_all_policies(&mut self) -> usize {
        let (loaded, errors) = self.engine.load_all_policies();
        self.errors.extend(errors.iter().map(ToString::to_string));
        loaded
    }

    /// Whether the GPU may be allocated: it is in a pool and meets the requirements.
    fn evaluate_allocation(&self, gpu: &Bound<PyAny>, requirements: &Bound<PyAny>) -> PyResult<bool> {
        Ok(self.engine.evaluate_allocation(&gpu_from_python(gpu)?, &requirements_from_python(requirements)?))
    }

    /// The GPUs that may be allocated, best score first; equal scores keep their order.
    fn get_recommended_gpus<'py>(
        &self,
        py: Python<'py>,
        gpus: &Bound<'py, PyAny>,
        requirements: &Bound<PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        let objects: Vec<Bound<PyAny>> = gpus.try_iter()?.collect::<PyResult<_>>()?;
        let converted: Vec<Gpu> = objects.iter().map(gpu_from_python).collect::<PyResult<_>>()?;
        // Two GPUs may be equal, so the address of the converted one identifies the object.
        let object_of: HashMap<*const Gpu, &Bound<PyAny>> =
            converted.iter().map(std::ptr::from_ref).zip(&objects).collect();
        let best = self.engine.recommended_gpus(&converted, &requirements_from_python(requirements)?);
        PyList::new(py, best.into_iter().filter_map(|gpu| object_of.get(&std::ptr::from_ref(gpu))))
    }

    /// The errors of all policies that did not load, each with its position.
    #[getter]
    fn errors(&self) -> Vec<String> {
        self.errors.clone()
    }

    /// The registered pools, by name.
    #[getter]
    fn pools<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        pools(py, self.engine.rules())
    }

    /// The registered rulesets, by name.
    #[getter]
    fn schedules<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        schedules(py, self.engine.rules())
    }
}

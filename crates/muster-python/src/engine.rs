//! The engine of the commissioning document, for Python.

use std::collections::HashMap;
use std::path::PathBuf;

use muster_policy::{Gpu, PolicyEngine as Engine};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::gpu::{gpu_of, requirements_of};
use crate::rules::{pools, schedules};

/// Loads policies, and says whether a GPU may be given out.
#[pyclass(module = "starlark_engine")]
pub struct PolicyEngine {
    engine: Engine,
    /// What was wrong with policies so far.
    errors: Vec<String>,
}

#[pymethods]
impl PolicyEngine {
    /// One that looks for policies in a folder; `policies` when none is named.
    #[new]
    #[pyo3(signature = (policy_dir=None))]
    fn new(policy_dir: Option<PathBuf>) -> PolicyEngine {
        let engine = Engine::new(policy_dir.unwrap_or_else(|| PathBuf::from("policies")));
        PolicyEngine { engine, errors: Vec::new() }
    }

    /// Load a policy: the path as it is, or inside the folder.
    fn load_policy(&mut self, path: PathBuf) -> bool {
        match self.engine.load_policy(&path) {
            Ok(()) => true,
            Err(error) => {
                self.errors.push(error.to_string());
                false
            }
        }
    }

    /// Load every policy of the folder, and say how many could be.
    fn load_all_policies(&mut self) -> usize {
        let (loaded, errors) = self.engine.load_all_policies();
        self.errors.extend(errors.iter().map(ToString::to_string));
        loaded
    }

    /// Whether a GPU may be given out: some pool has it, and it is what is asked for.
    fn evaluate_allocation(&self, gpu: &Bound<PyAny>, requirements: &Bound<PyAny>) -> PyResult<bool> {
        Ok(self.engine.evaluate_allocation(&gpu_of(gpu)?, &requirements_of(requirements)?))
    }

    /// Those that may be given out, the best first; among equals as they came.
    fn get_recommended_gpus<'py>(
        &self,
        py: Python<'py>,
        gpus: &Bound<'py, PyAny>,
        requirements: &Bound<PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        let objects: Vec<Bound<PyAny>> = gpus.try_iter()?.collect::<PyResult<_>>()?;
        let known: Vec<Gpu> = objects.iter().map(gpu_of).collect::<PyResult<_>>()?;
        // Two GPUs may be equal, so each is known by where it lies.
        let place: HashMap<*const Gpu, &Bound<PyAny>> =
            known.iter().map(std::ptr::from_ref).zip(&objects).collect();
        let best = self.engine.recommended(&known, &requirements_of(requirements)?);
        PyList::new(py, best.into_iter().filter_map(|gpu| place.get(&std::ptr::from_ref(gpu))))
    }

    /// What was wrong with policies so far, each with its place.
    #[getter]
    fn errors(&self) -> Vec<String> {
        self.errors.clone()
    }

    /// The pools that were registered, by name.
    #[getter]
    fn pools<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        pools(py, self.engine.rules())
    }

    /// The rulesets that were registered, by name.
    #[getter]
    fn schedules<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        schedules(py, self.engine.rules())
    }
}

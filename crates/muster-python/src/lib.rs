//! Policies for Python: the native module `starlark_engine._native`.
//!
//! Converts values and errors between Python and `muster-policy`; contains no logic. Code that need not be fast is in
//! Python, in `python/src/starlark_engine`.

#![warn(missing_docs)]

mod engine;
mod error;
mod gpu;
mod program;
mod rules;
mod value;

use std::ffi::OsString;

use pyo3::prelude::*;

#[pymodule]
mod _native {
    #[pymodule_export]
    use super::engine::PolicyEngine;
    #[pymodule_export]
    use super::program::Program;
    #[pymodule_export]
    use super::star;
}

/// Run a command line of `star`, program name first, and return the exit code.
#[pyfunction]
fn star(words: Vec<OsString>) -> u8 {
    muster_policy::star::run(&words)
}

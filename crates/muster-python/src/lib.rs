//! Policies for Python: the native module `starlark_engine._native`.
//!
//! It translates and nothing more: values and errors go from one language to the other here, and `muster-policy` does
//! the work. What needs no speed is in Python, in `python/src/starlark_engine`.

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

/// Do what the words of a command line say, and give the exit code.
#[pyfunction]
fn star(words: Vec<OsString>) -> u8 {
    muster_policy::star::run(&words)
}

//! Policies in Starlark: what they register, and the bounds they keep.
//!
//! A policy is a `.gsky` file. It runs once, without clock, files or network, within [`Limits`], and what it registers
//! becomes [`muster_core::rules::Rules`]: data that the planner and the control of devices read. Nothing outside this
//! crate knows the interpreter.

mod builtins;
mod engine;
mod error;
mod fields;
mod limits;
mod load;
mod recursion;

pub use engine::{Gpu, PolicyEngine, Requirements};
pub use error::PolicyError;
pub use limits::Limits;
pub use load::load_file;

#[cfg(test)]
mod tests;

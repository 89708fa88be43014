//! Policies in Starlark: what they register, what they answer, and the bounds they keep.
//!
//! A policy is a `.gsky` file. It runs once, without clock, files or network, within [`Limits`], and what it registers
//! becomes [`muster_core::rules::Rules`]: data that the planner and the control of devices read. Functions of six names
//! answer questions ([`hooks`]), and files `NAME_test.gsky` beside policies test them ([`test`]). Nothing outside this
//! crate knows the interpreter.

mod attributes;
mod builtins;
mod bundle;
mod calls;
mod engine;
mod error;
mod fields;
pub mod hooks;
mod limits;
mod load;
mod mentions;
mod nesting;
mod plain;
mod program;
mod recursion;
mod relay;
mod samples;
mod signature;
pub mod star;
mod testing;
mod worker;
mod workers;

pub use bundle::{FileFacts, check, compile};
pub use calls::Calls;
pub use engine::{Gpu, PolicyEngine, Requirements};
pub use error::PolicyError;
pub use limits::Limits;
pub use load::{ENDING, is_policy, load_file};
pub use plain::Plain;
pub use program::Program;
pub use samples::Sample;
pub use signature::Takes;
pub use testing::{Coverage, Outcome, Tested, failing, is_test, test};
pub use worker::{Confinement, Launch, Loaded, Worker, worker_main};
pub use workers::{Clock, Guest, Patience, Suspend, Workers};

#[cfg(test)]
mod tests;

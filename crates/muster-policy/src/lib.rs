//! Policies in Starlark: what they register, which hooks they define, and the limits they run under.
//!
//! A policy is a `.gsky` file. It runs once, without clock, files or network and within [`Limits`]; what it registers
//! becomes [`muster_core::objects::policy::rules::Rules`], data that the planner and the device control read. muster
//! calls the policy's functions of seven names at its decisions ([`hooks`]). Files `NAME_test.gsky` in the same folder
//! test the policies ([`run_tests`]). No other crate depends on the interpreter.
//!
//! The modules are layers: a module imports only from the modules declared above it or in its own group. `cargo xtask
//! modules --check` enforces that.

// Values.
mod error;
mod policy_files;
mod policy_value;
mod signature;

// Checks of a source before it runs, and limits while it runs.
mod limits;
mod mentions;
mod printer;
mod recursion;
mod self_application;
mod syntax;
mod syntax_depth;
mod watchdog;

// What policies see: builtins and the arguments of hooks.
mod builtins;
mod call_batch;
mod coverage;
mod keyword_args;
mod samples;
mod test_builtins;
mod unknown_attributes;
mod views;

// Compiling files and calling their functions.
mod load;
mod program;

// Bundles: compiled, called at decisions, tested.
mod bundle;
pub mod hooks;
mod testing;

// Worker processes.
mod worker;
mod worker_pool;

// The engine and the tool of the specification.
mod engine;
pub mod star;

pub use bundle::{FileSummary, check_file, compile};
pub use call_batch::CallBatch;
pub use coverage::Coverage;
pub use engine::{Gpu, PolicyEngine, Requirements};
pub use error::PolicyError;
pub use limits::Limits;
pub use load::load_file;
pub use policy_files::{POLICY_EXTENSION, is_policy_file, is_test_file};
pub use policy_value::PolicyValue;
pub use program::Program;
pub use samples::ViewKind;
pub use signature::Signature;
pub use testing::{TestOutcome, TestReport, failed_tests, run_tests};
pub use worker::{Confinement, LoadedBundle, Worker, WorkerCommand, worker_main};
pub use worker_pool::{SuspensionRule, TimeoutScope, WorkerPool, WorkerPoolSettings, WorkerSession};

#[cfg(test)]
mod tests;

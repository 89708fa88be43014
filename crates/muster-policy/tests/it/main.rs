//! Integration tests of the public interface: conformance with Starlark, one worker, and the worker pool.

// Clippy exempts only functions marked as tests, not their helpers.
#![allow(clippy::unwrap_used)]

mod conformance;
#[path = "../conformance/corpus.rs"]
mod corpus;
mod worker;
mod workers;

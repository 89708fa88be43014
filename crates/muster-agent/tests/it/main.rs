//! The agent from outside: one binary for all integration tests.

// Clippy knows functions marked as tests; the bench they share is not one of them.
#![allow(clippy::unwrap_used)]

mod bench;
mod contract;
mod restart;
mod runner;
mod simulated;
mod stopping;

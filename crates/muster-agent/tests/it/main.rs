//! Integration tests of the agent, in one binary.

// Clippy exempts functions marked as tests, but not the harness that they share.
#![allow(clippy::unwrap_used)]

mod contract;
mod harness;
mod restart;
mod runner;
mod simulated;
mod stopping;

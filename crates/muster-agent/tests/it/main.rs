//! Integration tests of the agent, in one binary.

// Clippy exempts functions marked as tests, but not the harness that they share.
#![allow(clippy::unwrap_used)]

mod contract;
mod events;
mod harness;
mod hostile;
mod images;
mod isolation;
mod restart;
mod runner;
mod secrets;
mod self_fence;
mod simulated;
mod site_programs;
mod stopping;
mod unkillable;

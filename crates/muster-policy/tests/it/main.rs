//! Policies from outside: as the language has it, and as people write them who mean no good.

// Clippy knows functions marked as tests; what they share is not one of them.
#![allow(clippy::unwrap_used)]

mod conformance;
#[path = "../conformance/corpus.rs"]
mod corpus;
mod worker;
mod workers;

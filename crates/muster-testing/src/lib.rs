//! Builders of nodes and jobs for tests, with defaults for everything that a test leaves out, and images for tests of containers.
//!
//! Integration tests of `muster-core` and all tests of the crates above it use them. The unit tests of `muster-core`
//! cannot: for them the types of this crate come from a second copy of the core.

// Test support: an invalid name is a mistake of the test, which may stop at once.
#![allow(clippy::unwrap_used)]

pub mod images;
mod job;
mod node;
mod podman;

pub use job::{JobBuilder, job, submission};
pub use node::{A100, H100, NodeBuilder, gpu, node};
pub use podman::PodmanStore;

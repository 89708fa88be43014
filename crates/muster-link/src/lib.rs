//! The agent's side of the link: how the agent of a node finds the leader, proves who it is, sends reports and receives
//! orders. Steps 9 and 11 of the path of a job, on the node.
//!
//! [`session::Session`] makes all decisions about a connection and touches neither network nor clock. [`link::Link`]
//! performs them over gRPC with mutual TLS. [`identity::Identity`] is the node's key and certificate on disk, and
//! [`enrolment`] obtains and renews the certificate.
//!
//! The modules are layers: a module imports only from the modules declared above it. `cargo xtask modules --check`
//! enforces that.

pub mod error;
mod outbox;
mod programs;

pub mod identity;
pub mod renewal;
pub mod session;

mod tls;

mod channel;

pub mod check;
pub mod enrolment;
pub mod link;

pub use error::LinkError;
pub use identity::Identity;
pub use link::{Link, LinkConfig};

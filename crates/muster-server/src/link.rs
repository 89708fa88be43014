//! The server's side of the agent link: agents of other machines enrol, connect, report and receive orders. Steps 9
//! and 11 of the path of a job.
//!
//! [`admission::LinkView`] judges agents and their frames, and [`switchboard::Switchboard`] decides what each connection is
//! sent, both without network or clock; [`service`] moves the frames over gRPC; [`certificates`] is the CA of the cluster; [`remote`] makes the connected agents usable for dispatch
//! and for readers of logs.

pub mod certificates;
pub mod peer;
pub mod switchboard;

mod report_limits;

pub mod admission;
mod call_limits;
mod exec_streams;

pub mod connections;

pub mod remote;
pub mod service;

pub mod listener;

pub use certificates::LinkCertificates;
pub use connections::LinkConnections;
pub use listener::{LinkAddress, LinkListener};
pub use remote::{RemoteAgents, RemoteLogs, RemotePrograms};

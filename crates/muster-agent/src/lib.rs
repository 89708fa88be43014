//! The node agent: it takes orders, runs attempts and reports what became of them. It never schedules.
//!
//! Modules in the order a job meets them. Two adapters stand behind one port: [`simulated::Simulated`] plays
//! a whole cluster from one thread,
//! and the runner will run real processes on this machine.

pub mod cluster;
pub mod duration;
pub mod error;
pub mod logs;
pub mod port;
pub mod simulated;

mod driver;
mod newest;
mod pace;

pub use cluster::{Cluster, ClusterError};
pub use error::AgentError;
pub use port::{Agent, Mouth};
pub use simulated::{Simulated, SimulatedConfig};

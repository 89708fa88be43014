//! The node agent: it takes orders, runs attempts and reports what became of them. It never schedules.
//!
//! Modules in the order a job meets them. Two adapters stand behind one port: [`simulated::Simulated`] plays
//! a whole cluster from one thread, [`runner::Runner`] runs real processes on this machine.

pub mod cluster;
pub mod duration;
pub mod error;
pub mod inventory;
pub mod logs;
pub mod port;
pub mod runner;
pub mod shim;
pub mod simulated;

mod driver;
mod folder;
mod members;
mod newest;
mod pace;
mod proc;

pub use cluster::{Cluster, ClusterError};
pub use error::AgentError;
pub use port::{Agent, Mouth};
pub use runner::{Runner, RunnerConfig};
pub use shim::shim_main;
pub use simulated::{Simulated, SimulatedConfig};

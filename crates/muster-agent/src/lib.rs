//! The node agent: it takes orders, runs attempts and reports what became of them. It never schedules.
//!
//! Two adapters stand behind one port: [`simulated::Simulated`] plays a whole cluster from one thread,
//! [`runner::Runner`] runs real processes on this machine. What the runner decides is [`desk::Desk`], over
//! the port [`machine::Machine`]. The modules stand in the order in which a job meets them: what there is,
//! who takes the orders, how they are carried out, what is left to read.

pub mod cluster;
pub mod inventory;

pub mod port;

mod driver;
mod newest;
mod pace;

pub mod simulated;

pub mod runner;

mod attempt_key;
pub mod desk;
pub mod machine;
pub mod records;

pub mod shim;

mod folder;
mod members;
mod proc;

pub mod logs;

pub mod duration;
pub mod error;

#[cfg(test)]
mod sample;

pub use cluster::{Cluster, ClusterError};
pub use desk::{Desk, Moment};
pub use error::AgentError;
pub use machine::{AttemptKey, Machine};
pub use port::{Agent, Mouth};
pub use runner::{Runner, RunnerConfig};
pub use shim::shim_main;
pub use simulated::{Simulated, SimulatedConfig};

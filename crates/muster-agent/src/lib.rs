//! The node agent: it takes orders from the server, runs attempts and reports their starts and exits. It never
//! schedules.
//!
//! The port [`agent::Agent`] has two adapters: [`simulated::SimulatedAgents`] simulates the agents of a whole
//! cluster on one thread, and [`runner::Runner`] runs real processes on this machine. The decisions of the runner
//! are made by the [`reconciler::Reconciler`], which acts through the port [`machine::Machine`]. The tasks of an
//! attempt run under a [`shim`], so that they outlive the agent.
//!
//! The modules are layers: a module imports only from the modules declared above it. `cargo xtask modules --check`
//! enforces that.

pub mod clock;
pub mod logs;
mod order_fence;
pub mod records;
mod repeat_timer;

mod attempt_key;
pub mod error;

pub mod cluster;
pub mod inventory;
mod proc;

mod attempt_dir;
mod attempt_processes;

pub mod machine;
pub mod shim;

pub mod reconciler;

pub mod agent;
mod agent_thread;

pub mod runner;
pub mod simulated;

#[cfg(test)]
mod test_fixtures;

pub use agent::{Agent, ReportSink};
pub use clock::ClockReading;
pub use cluster::{Cluster, ClusterError};
pub use error::AgentError;
pub use machine::{AttemptKey, Machine};
pub use reconciler::Reconciler;
pub use runner::{Runner, RunnerConfig};
pub use shim::shim_main;
pub use simulated::{SimulatedAgents, SimulatedAgentsConfig};

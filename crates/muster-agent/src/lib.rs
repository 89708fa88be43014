//! The node agent: it takes orders, runs attempts and reports what became of them. It never schedules.
//!
//! Two adapters stand behind one port: [`simulated::Simulated`] plays a whole cluster from one thread,
//! [`runner::Runner`] runs real processes on this machine. What the runner decides is [`desk::Desk`], over
//! the port [`machine::Machine`]. The modules stand in the order in which a job meets them: what there is,
//! who takes the orders, how they are carried out, what is left to read.

pub mod cluster;
pub mod inventory;

pub mod agent;

mod agent_thread;
mod order_fence;
mod repeat_timer;

pub mod simulated;

pub mod runner;

mod attempt_key;
pub mod reconciler;
pub mod machine;
pub mod records;

pub mod shim;

mod attempt_dir;
mod attempt_processes;
mod proc;

pub mod logs;

pub mod duration;
pub mod error;

#[cfg(test)]
mod test_fixtures;

pub use cluster::{Cluster, ClusterError};
pub use reconciler::{Reconciler, ClockReading};
pub use error::AgentError;
pub use machine::{AttemptKey, Machine};
pub use agent::{Agent, ReportSink};
pub use runner::{Runner, RunnerConfig};
pub use shim::shim_main;
pub use simulated::{SimulatedAgents, SimulatedAgentsConfig};

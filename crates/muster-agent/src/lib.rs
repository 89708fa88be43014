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
pub mod log_times;
pub mod logs;
mod order_fence;
mod pulled_images;
pub mod records;
mod repeat_timer;

mod attempt_key;
pub mod error;

mod cgroup;
pub mod cluster;
pub mod inventory;
mod job_user;
mod proc;

mod container_namespaces;
mod container_runtime;
mod device_filter;
mod private_mounts;
mod secret_files;

mod isolation;
mod passed_files;
mod task_launch;

pub mod file_transfer;

mod attempt_processes;
mod folder_lock;
pub mod site_program;

mod attempt_dir;
pub mod launcher;

mod shim_socket;

pub mod machine;
pub mod shim;
mod shim_exec;

mod exec_keeper;

pub mod exec;

pub mod reconciler;

pub mod agent;
mod agent_thread;
mod health_program;
mod image_cache;
mod reboot;

pub mod runner;
pub mod simulated;

#[cfg(test)]
mod test_fixtures;

pub use agent::{Agent, ReportSink};
pub use clock::ClockReading;
pub use cluster::{Cluster, ClusterError};
pub use container_runtime::ImagePull;
pub use error::AgentError;
pub use exec_keeper::exec_keeper_main;
pub use launcher::{LauncherConfig, SiteProgramsConfig};
pub use machine::{AttemptKey, Machine};
pub use reconciler::Reconciler;
pub use runner::{Runner, RunnerConfig};
pub use shim::shim_main;
pub use shim_exec::shim_exec_main;
pub use simulated::{SimulatedAgents, SimulatedAgentsConfig};

//! The control plane of muster: HTTP API, engine, planner, dispatch.
//!
//! The modules are layers: a module imports only from the modules declared above it. `cargo xtask modules --check`
//! enforces that.

pub mod clock;
pub mod config;
mod conversions;
mod gpu_state;
mod request_json;
pub mod savepoint;

mod data_folder;
pub mod identity;
mod start_error;
mod tenant_config;
pub mod tls;

pub mod cluster;
pub mod engine;
pub mod engine_loop;
pub mod leader_term;
pub mod refusal_audit;

pub mod forecaster;
pub mod planner;
pub mod policies;
pub mod round_stats;
pub mod shadow;
pub mod wait_recorder;

pub mod secrets;

pub mod agents;
pub mod dispatch;
pub mod exec_source;
pub mod log_source;
pub mod power;
pub mod readings;
pub mod silence;

pub mod link;

pub mod evaluations;
pub mod metrics;
pub mod telemetry;
pub mod whatif;

pub mod http;

pub mod grpc;

pub mod server;

//! The control plane. Modules in the order a request meets them.

pub mod config;
pub mod http;
pub mod identity;
pub mod tls;

pub mod clock;
pub mod cluster;
pub mod engine;
pub mod lead;
pub mod refused_acts;
pub mod reign;
pub mod savepoint;

mod data_folder;
mod start_error;

pub mod evaluations;
pub mod forecaster;
pub mod planner;
pub mod policies;
pub mod rounds;
pub mod shadow;
pub mod waits;

pub mod agents;
pub mod dispatch;
pub mod readings;

pub mod metrics;
pub mod telemetry;
pub mod whatif;

pub mod server;

//! The door over real HTTP: a server with a real engine over SQLite and simulated nodes, one for each test.
//!
//! Every answer that a test sees is checked against the OpenAPI document, so the document cannot drift.

#![allow(clippy::unwrap_used, clippy::expect_used)] // A test that panics has failed, which is what is meant.

mod client;
mod test_server;
mod schema;

mod access;
mod bad_input;
mod server_limits;
mod config_keys;
mod response_fields;
mod schema_conformance;
mod jobs;
mod lists;
mod nodes_and_gpus;
mod health_metrics_and_docs;
mod live_usage_and_health;
mod spec_examples;
mod gpu_shares;
mod slow_policy;
mod server_start;
mod streams;
mod tenants;
mod topology;

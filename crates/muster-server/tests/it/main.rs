//! The REST and gRPC APIs over real connections: each test has a server with a real engine on SQLite and simulated nodes.
//!
//! Every response that a test reads is checked against the OpenAPI document, so document and server agree.

#![allow(clippy::unwrap_used, clippy::expect_used)] // A panic is how a test fails.

mod client;
mod grpc_client;
mod schema;
mod test_server;

mod access;
mod bad_input;
mod config_keys;
mod gpu_shares;
mod grpc;
mod grpc_definitions;
mod health_metrics_and_docs;
mod jobs;
mod lists;
mod live_usage_and_health;
mod logs;
mod nodes_and_gpus;
mod response_fields;
mod schema_conformance;
mod server_limits;
mod server_start;
mod slow_policy;
mod spec_examples;
mod streams;
mod tenants;
mod topology;

//! The door over real HTTP: a server with a real engine over SQLite and simulated nodes, one for each test.
//!
//! Every answer that a test sees is checked against the OpenAPI document, so the document cannot drift.

#![allow(clippy::unwrap_used, clippy::expect_used)] // A test that panics has failed, which is what is meant.

mod client;
mod house;
mod schema;

mod access;
mod bad_input;
mod bounds;
mod configured;
mod fields;
mod generated;
mod jobs;
mod lists;
mod machines;
mod pages;
mod running;
mod seed;
mod sharing;
mod slow_policy;
mod start;
mod streams;
mod tenants;
mod topology;

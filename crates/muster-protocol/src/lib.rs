//! The words that command line, server and agent exchange. They behave in no way of their own.
//!
//! The comments on the fields are also the descriptions in the OpenAPI document. What a client sends refuses
//! unknown fields, so that a misspelt one is noticed; what a server answers may grow fields at any time.

pub mod agent;

pub mod allocation;
pub mod amount;
pub mod audit;
pub mod cluster;
pub mod event;
pub mod gpu;
pub mod job;
pub mod moves;
pub mod node;
pub mod outlook;
pub mod policy;
pub mod problem;
pub mod receipt;
pub mod score;
pub mod share;
pub mod submit;
pub mod tenant;
pub mod token;
pub mod usage;
pub mod whatif;
pub mod window;
pub mod written;

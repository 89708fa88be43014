//! Types exchanged by CLI, server and agent: data only, no behaviour.
//!
//! The comments on types and fields are also the descriptions in the OpenAPI document. Request types refuse unknown
//! fields, so that a misspelt field is an error; answers may get new fields in any release.

#![warn(missing_docs)]

pub mod agent;
pub mod secret_value;

pub mod allocation;
pub mod audit;
pub mod cluster;
pub mod event;
pub mod exec;
pub mod explain;
pub mod gpu;
pub mod gpu_amount;
pub mod gpu_share;
pub mod input;
pub mod job;
pub mod moves;
pub mod node;
pub mod policy;
pub mod problem;
pub mod receipt;
pub mod score;
pub mod secret;
pub mod submit;
pub mod tenant;
pub mod token;
pub mod usage;
pub mod whatif;
pub mod window;

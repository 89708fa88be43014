//! End-to-end tests of the binary: transcripts in Markdown, each run against a fresh server, and tests of single features.
//!
//! `BLESS=1 cargo test -p muster` rewrites the expected outputs of the transcripts; read the diff before you keep it.

#![allow(clippy::unwrap_used)] // A panic fails the test, as intended.

mod agents;
mod console;
mod coverage;
mod criteria;
mod dist;
mod docs;
mod exec;
mod exec_access;
mod exec_images;
mod expect;
mod hostile;
mod http;
mod image_gpus;
mod markdown;
mod mixed;
mod operations;
mod placement;
mod policies;
mod policy_bench;
mod policy_worker;
mod replay;
mod restart;
mod secrets;
mod server;
mod session;
mod share;
mod traces;
mod transcripts;
mod whatif;

//! What a person sees: sessions written down in Markdown, run against a fresh server each.
//!
//! `BLESS=1 cargo test -p muster` writes down what was seen instead; read the difference before you keep it.

#![allow(clippy::unwrap_used)] // A test that panics has failed, which is what is meant.

mod console;
mod coverage;
mod criteria;
mod dist;
mod docs;
mod expect;
mod hostile;
mod http;
mod markdown;
mod mixed;
mod placement;
mod policies;
mod policy_bench;
mod policy_worker;
mod replay;
mod restart;
mod server;
mod session;
mod share;
mod traces;
mod transcripts;
mod whatif;

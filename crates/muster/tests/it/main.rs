//! What a person sees: sessions written down in Markdown, run against a fresh server each.
//!
//! `BLESS=1 cargo test -p muster` writes down what was seen instead; read the difference before you keep it.

mod console;
mod docs;
mod expect;
mod markdown;
mod server;
mod transcripts;

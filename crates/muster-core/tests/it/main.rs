//! The tests of the core, in one program: scenarios, laws, and a naive model that must agree.

// A test may stop at once; the lint only knows functions marked as tests.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod adopting;
mod balance;
mod board;
mod charges;
mod devices;
mod judge;
mod laws;
mod limits;
mod model;
mod naive_score;
mod policies;
mod retries;
mod rights;
mod scenarios;
mod script;
mod settings;
mod speaking;
mod start_ranges;
mod story;
mod waiting;
mod wiring;
mod words;
mod world;

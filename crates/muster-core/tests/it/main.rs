//! The tests of the core in one program: scenarios, laws over random stories, and a naive planner that must agree.

// A test may stop at once; the lint only knows functions marked as tests.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod adopting;
mod balance_rules;
mod builders;
mod charges;
mod device_identity;
mod enrolment;
mod law_checker;
mod laws;
mod limits;
mod naive_planner;
mod policy_scopes;
mod queues;
mod recompute;
mod retries;
mod rights;
mod scenarios;
mod settings;
mod start_ranges;
mod story;
mod story_policies;
mod story_runner;
mod topology;
mod world;

//! Arbitrary bytes as the argument of a policy function.
#![no_main]

#[path = "../../crates/muster-policy/tests/fuzz/bodies.rs"]
#[allow(dead_code)] // The other target uses the rest.
mod bodies;

use std::sync::LazyLock;

use muster_policy::Program;

static ECHO: LazyLock<Program> = LazyLock::new(bodies::echo);

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bodies::policy_values(&ECHO, bytes));

//! Arbitrary bytes as a policy source.
#![no_main]

#[path = "../../crates/muster-policy/tests/fuzz/bodies.rs"]
#[allow(dead_code)] // The other target uses the rest.
mod bodies;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bodies::policy_source(bytes));

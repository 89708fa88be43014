//! Bytes as a value that a hook is asked with.
#![no_main]

#[path = "../../crates/muster-policy/tests/fuzz/bodies.rs"]
#[allow(dead_code)] // The other target has the rest.
mod bodies;

use std::cell::LazyCell;

use muster_policy::Program;

thread_local! {
    static ECHO: LazyCell<Program> = LazyCell::new(bodies::echo);
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ECHO.with(|echo| bodies::policy_values(echo, bytes)));

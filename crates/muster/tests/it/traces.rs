//! The folder of traces that tests replay.

use std::path::PathBuf;

use super::docs::root;

/// The folder of traces if it contains this trace; otherwise `None`, or a failure if `CI` is `true`.
pub fn traces(trace: &str) -> Option<PathBuf> {
    let variable = std::env::var_os("MUSTER_TRACES").filter(|dir| !dir.is_empty()).map(PathBuf::from);
    let traces = variable.unwrap_or_else(|| root().join("../shared/traces"));
    if traces.join(trace).is_dir() {
        return Some(traces);
    }
    let on_ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
    assert!(!on_ci, "no traces for tests at {}", traces.display());
    eprintln!("skipped: no traces for tests at {}; set MUSTER_TRACES to their folder", traces.display());
    None
}

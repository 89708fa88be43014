//! Traces that tests read.

use std::path::PathBuf;

use super::docs::root;

/// The folder of traces, where it has this one. `None` where there is none, which is a failure where `CI` is `true`.
pub fn traces(trace: &str) -> Option<PathBuf> {
    let said = std::env::var_os("MUSTER_TRACES").filter(|dir| !dir.is_empty()).map(PathBuf::from);
    let traces = said.unwrap_or_else(|| root().join("../shared/traces"));
    if traces.join(trace).is_dir() {
        return Some(traces);
    }
    let on_ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
    assert!(!on_ci, "no traces for tests at {}", traces.display());
    eprintln!("skipped: no traces for tests at {}; MUSTER_TRACES says where they are", traces.display());
    None
}

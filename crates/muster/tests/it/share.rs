//! `muster bench share` on the measured pairs: the planner needs at most half of the GPUs, and no job exceeds its
//! tolerated slowdown.

use std::process::Command;

use serde::Deserialize;

use super::traces::traces;

#[derive(Debug, Deserialize)]
struct SharingBenchRow {
    policy: String,
    jobs: usize,
    gpus: usize,
    gpus_saved: usize,
    slowdown_mean: f64,
    slowdown_worst: f64,
    beyond_tolerance: usize,
}

/// Standard output, standard error and exit code.
fn bench(args: &[&str]) -> (String, String, Option<i32>) {
    let ran = Command::new(env!("CARGO_BIN_EXE_muster")).args(["bench", "share"]).args(args).output();
    let ran = ran.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(ran.stdout), text(ran.stderr), ran.status.code())
}

#[test]
fn mps_shares_halve_the_gpus_within_every_jobs_slowdown_tolerance() {
    let Some(traces) = traces("h200-interference") else { return };
    for seed in ["7", "8", "9"] {
        let (json, stderr, code) = bench(&["--traces", traces.to_str().unwrap(), "--seed", seed, "-o", "json"]);
        assert_eq!(code, Some(0), "{stderr}");
        let rows: Vec<SharingBenchRow> = muster_json::from_str(&json).unwrap();
        let row = |policy: &str| rows.iter().find(|row| row.policy == policy).unwrap();
        let (whole, ours) = (row("whole"), row("muster"));
        assert_eq!((whole.gpus, whole.slowdown_mean, whole.slowdown_worst), (200, 1.0, 1.0));
        assert_eq!((ours.jobs, ours.gpus + ours.gpus_saved), (200, 200));
        assert!(ours.gpus * 2 <= whole.gpus, "{json}");
        assert_eq!(ours.beyond_tolerance, 0, "{json}");
        // Without limits some jobs exceed their tolerance; otherwise the comparison would show nothing.
        assert!(row("mps").beyond_tolerance > 0 && row("time-slice").beyond_tolerance > 0, "{json}");
        assert!(row("mig-static").gpus >= ours.gpus, "{json}");
    }
}

#[test]
fn a_missing_trace_is_reported_with_a_hint() {
    let (_, stderr, code) = bench(&["--traces", "/nowhere"]);
    assert_eq!(code, Some(1));
    assert_eq!(
        stderr,
        "error: there is no trace at `/nowhere/h200-interference`\n  \
         try: name the traces directory with `--traces DIR` or in MUSTER_TRACES\n"
    );
}

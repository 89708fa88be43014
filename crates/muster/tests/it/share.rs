//! `muster bench share` on the measured pairs: our planner needs half of the GPUs, and nobody gets slower than they
//! tolerate.

use std::process::Command;

use serde::Deserialize;

use super::traces::traces;

#[derive(Debug, Deserialize)]
struct Row {
    policy: String,
    jobs: usize,
    gpus: usize,
    gpus_saved: usize,
    slowdown_mean: f64,
    slowdown_worst: f64,
    beyond_tolerance: usize,
}

fn bench(words: &[&str]) -> (String, String, Option<i32>) {
    let ran = Command::new(env!("CARGO_BIN_EXE_muster")).args(["bench", "share"]).args(words).output();
    let ran = ran.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(ran.stdout), text(ran.stderr), ran.status.code())
}

#[test]
fn shares_within_limits_need_half_of_the_gpus_and_slow_nobody_beyond_what_they_tolerate() {
    let Some(traces) = traces("h200-interference") else { return };
    for seed in ["7", "8", "9"] {
        let (json, talk, code) = bench(&["--traces", traces.to_str().unwrap(), "--seed", seed, "-o", "json"]);
        assert_eq!(code, Some(0), "{talk}");
        let rows: Vec<Row> = muster_json::from_str(&json).unwrap();
        let row = |policy: &str| rows.iter().find(|row| row.policy == policy).unwrap();
        let (whole, ours) = (row("whole"), row("muster"));
        assert_eq!((whole.gpus, whole.slowdown_mean, whole.slowdown_worst), (200, 1.0, 1.0));
        assert_eq!((ours.jobs, ours.gpus + ours.gpus_saved), (200, 200));
        assert!(ours.gpus * 2 <= whole.gpus, "{json}");
        assert_eq!(ours.beyond_tolerance, 0, "{json}");
        // Without limits somebody is: otherwise there would be nothing to show.
        assert!(row("mps").beyond_tolerance > 0 && row("time-slice").beyond_tolerance > 0, "{json}");
        assert!(row("mig-static").gpus >= ours.gpus, "{json}");
    }
}

#[test]
fn a_trace_that_is_not_there_is_said_with_what_to_try() {
    let (_, talk, code) = bench(&["--traces", "/nowhere"]);
    assert_eq!(code, Some(1));
    assert_eq!(
        talk,
        "error: there is no trace at `/nowhere/h200-interference`\n  \
         try: the folder of traces with `--traces DIR`, or in MUSTER_TRACES\n"
    );
}

//! `muster bench replay` on the Muri traces: the published policies reproduce the published figures.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde::Deserialize;

use super::traces::traces;

/// A hundredth of a percent.
const RELATIVE_TOLERANCE: f64 = 1e-4;

#[derive(Debug, Deserialize)]
struct ReplayBenchRow {
    trace: String,
    policy: String,
    avg_jct_s: f64,
    p99_jct_s: f64,
    makespan_s: f64,
    max_slowdown: f64,
    preemptions: u64,
    lost_gpu_s: f64,
}

/// Standard output, standard error and exit code.
fn bench(args: &[&str]) -> (String, String, Option<i32>) {
    let ran = Command::new(env!("CARGO_BIN_EXE_muster")).args(["bench", "replay"]).args(args).output();
    let ran = ran.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(ran.stdout), text(ran.stderr), ran.status.code())
}

fn rows(traces: &Path, args: &[&str]) -> Vec<ReplayBenchRow> {
    let (json, stderr, code) = bench(&[&["--traces", traces.to_str().unwrap(), "-o", "json"], args].concat());
    assert_eq!(code, Some(0), "{stderr}");
    muster_json::from_str(&json).unwrap()
}

/// Mean and 99th percentile of completion times, and makespan, by trace and policy.
fn published(traces: &Path) -> BTreeMap<(String, String), [f64; 3]> {
    let text = std::fs::read_to_string(traces.join("muri/published_sim.csv")).unwrap();
    let line = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        let number = |at: usize| fields[at].parse().unwrap();
        ((fields[0].to_string(), fields[1].to_string()), [number(2), number(3), number(4)])
    };
    text.lines().skip(1).map(line).collect()
}

#[test]
fn the_published_policies_give_the_published_numbers() {
    let Some(traces) = traces("muri") else { return };
    let names = ["--trace", "trace1", "trace3", "trace1_pr", "trace3_pr"];
    let found = rows(&traces, &[&names[..], &["--policy", "srtf", "srsf", "tiresias"]].concat());
    assert_eq!(found.len(), 12);
    let published = published(&traces);
    for row in &found {
        let theirs = match row.policy.as_str() {
            "srtf" => "SRTF",
            "srsf" => "SRSF",
            _ => "Tiresias",
        };
        let figures = published[&(row.trace.clone(), theirs.to_string())];
        for (ours, theirs) in [row.avg_jct_s, row.p99_jct_s, row.makespan_s].into_iter().zip(figures) {
            assert!((ours / theirs - 1.0).abs() <= RELATIVE_TOLERANCE, "{theirs}: {row:?}");
        }
        assert!(row.preemptions > 0 && row.lost_gpu_s > 0.0 && row.max_slowdown > 1.0, "{row:?}");
    }
}

/// On the smallest trace, against the published policies with the same knowledge of runtimes.
#[test]
fn muster_has_a_lower_mean_jct_than_the_published_policies() {
    let Some(traces) = traces("muri") else { return };
    let found = rows(&traces, &["--trace", "trace3", "--policy", "muster", "muster-known"]);
    let published = published(&traces);
    let theirs = |policy: &str| published[&("trace3".to_string(), policy.to_string())][0];
    let mean = |policy: &str| found.iter().find(|row| row.policy == policy).unwrap().avg_jct_s;
    assert!(mean("muster") < theirs("Tiresias").min(theirs("Themis")), "{found:?}");
    assert!(mean("muster-known") < theirs("SRSF"), "{found:?}");
}

#[test]
fn missing_traces_and_policies_are_reported_with_hints() {
    let (_, stderr, code) = bench(&["--traces", "/nowhere"]);
    assert_eq!(code, Some(1));
    assert_eq!(
        stderr,
        "error: there is no trace at `/nowhere/muri`\n  \
         try: name the traces directory with `--traces DIR` or in MUSTER_TRACES\n"
    );
    let (_, stderr, code) = bench(&["--policy", "lottery"]);
    assert_eq!(code, Some(2), "{stderr}");
    assert!(stderr.contains("fifo, sjf"), "{stderr}");
    let Some(traces) = traces("muri") else { return };
    let (_, stderr, code) = bench(&["--traces", traces.to_str().unwrap(), "--trace", "trace9"]);
    assert_eq!(code, Some(3), "{stderr}");
    assert!(stderr.contains("there is no trace `trace9`") && stderr.contains("testbed_400"), "{stderr}");
}

//! `muster bench replay` on the recorded training jobs: the published policies give the published numbers.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde::Deserialize;

use super::traces::traces;

/// A hundredth of a percent.
const WITHIN: f64 = 1e-4;

#[derive(Debug, Deserialize)]
struct Row {
    trace: String,
    policy: String,
    avg_jct_s: f64,
    p99_jct_s: f64,
    makespan_s: f64,
    max_slowdown: f64,
    preemptions: u64,
    lost_gpu_s: f64,
}

fn bench(words: &[&str]) -> (String, String, Option<i32>) {
    let ran = Command::new(env!("CARGO_BIN_EXE_muster")).args(["bench", "replay"]).args(words).output();
    let ran = ran.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(ran.stdout), text(ran.stderr), ran.status.code())
}

fn rows(traces: &Path, words: &[&str]) -> Vec<Row> {
    let (json, talk, code) = bench(&[&["--traces", traces.to_str().unwrap(), "-o", "json"], words].concat());
    assert_eq!(code, Some(0), "{talk}");
    muster_json::from_str(&json).unwrap()
}

/// Mean, 99 of 100, and the last end, by trace and policy.
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
            assert!((ours / theirs - 1.0).abs() <= WITHIN, "{theirs}: {row:?}");
        }
        assert!(row.preemptions > 0 && row.lost_gpu_s > 0.0 && row.max_slowdown > 1.0, "{row:?}");
    }
}

/// The product on the smallest trace: a little above what was measured, below the published policies that know as much.
#[test]
fn ours_is_sooner_than_the_published_policies() {
    let Some(traces) = traces("muri") else { return };
    let found = rows(&traces, &["--trace", "trace3", "--policy", "muster", "muster-known"]);
    let published = published(&traces);
    let theirs = |policy: &str| published[&("trace3".to_string(), policy.to_string())][0];
    let mean = |policy: &str| found.iter().find(|row| row.policy == policy).unwrap().avg_jct_s;
    assert!(mean("muster") < theirs("Tiresias").min(theirs("Themis")), "{found:?}");
    assert!(mean("muster-known") < theirs("SRSF"), "{found:?}");
}

#[test]
fn what_is_not_there_is_said_with_what_to_try() {
    let (_, talk, code) = bench(&["--traces", "/nowhere"]);
    assert_eq!(code, Some(1));
    assert_eq!(
        talk,
        "error: there is no trace at `/nowhere/muri`\n  \
         try: the folder of traces with `--traces DIR`, or in MUSTER_TRACES\n"
    );
    let (_, talk, code) = bench(&["--policy", "lottery"]);
    assert_eq!(code, Some(2), "{talk}");
    assert!(talk.contains("fifo, sjf"), "{talk}");
    let Some(traces) = traces("muri") else { return };
    let (_, talk, code) = bench(&["--traces", traces.to_str().unwrap(), "--trace", "trace9"]);
    assert_eq!(code, Some(3), "{talk}");
    assert!(talk.contains("there is no trace `trace9`") && talk.contains("testbed_400"), "{talk}");
}

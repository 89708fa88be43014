//! `muster bench mixed` on the Gavel measurements: the gain of heterogeneity awareness is the published one.

use std::process::Command;

use serde::Deserialize;

use super::traces::traces;

#[derive(Debug, Deserialize)]
struct MixedBenchRow {
    blind_h: f64,
    aware_h: f64,
    published_blind_h: f64,
    published_ratio: f64,
}

/// Standard output, standard error and exit code.
fn bench(args: &[&str]) -> (String, String, Option<i32>) {
    let ran = Command::new(env!("CARGO_BIN_EXE_muster")).args(["bench", "mixed"]).args(args).output();
    let ran = ran.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(ran.stdout), text(ran.stderr), ran.status.code())
}

#[test]
fn heterogeneity_awareness_gains_match_the_published_results() {
    let Some(traces) = traces("gavel") else { return };
    let args = ["--traces", traces.to_str().unwrap(), "--rate", "2,4.8", "--streams", "20", "-o", "json"];
    let (json, stderr, code) = bench(&args);
    assert_eq!(code, Some(0), "{stderr}");
    let rows: Vec<MixedBenchRow> = muster_json::from_str(&json).unwrap();
    // Without queueing, blind sharing depends on the GPU speeds only and must match the published figure.
    assert!((rows[0].blind_h / rows[0].published_blind_h - 1.0).abs() < 0.05, "{json}");
    let loaded = &rows[1];
    assert!(loaded.blind_h / loaded.aware_h >= 1.8 && loaded.published_ratio > 1.8, "{json}");
}

#[test]
fn an_invalid_rate_is_rejected() {
    let (_, stderr, code) = bench(&["--rate", "0"]);
    assert_eq!(code, Some(2));
    assert!(stderr.contains("`0` is not a rate"), "{stderr}");
}

//! `muster bench mixed` on the measured speeds: who knows them is as much better as was published.

use std::process::Command;

use serde::Deserialize;

use super::traces::traces;

#[derive(Debug, Deserialize)]
struct Row {
    blind_h: f64,
    aware_h: f64,
    published_blind_h: f64,
    published_ratio: f64,
}

fn bench(words: &[&str]) -> (String, String, Option<i32>) {
    let ran = Command::new(env!("CARGO_BIN_EXE_muster")).args(["bench", "mixed"]).args(words).output();
    let ran = ran.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(ran.stdout), text(ran.stderr), ran.status.code())
}

#[test]
fn knowing_how_fast_jobs_are_on_each_kind_of_gpu_is_worth_what_was_published() {
    let Some(traces) = traces("gavel") else { return };
    let words = ["--traces", traces.to_str().unwrap(), "--rate", "2,4.8", "--streams", "20", "-o", "json"];
    let (json, talk, code) = bench(&words);
    assert_eq!(code, Some(0), "{talk}");
    let rows: Vec<Row> = muster_json::from_str(&json).unwrap();
    // Where nobody waits blind shares tell the speeds of the GPUs and nothing else: they must be as published.
    assert!((rows[0].blind_h / rows[0].published_blind_h - 1.0).abs() < 0.05, "{json}");
    let loaded = &rows[1];
    assert!(loaded.blind_h / loaded.aware_h >= 1.8 && loaded.published_ratio > 1.8, "{json}");
}

#[test]
fn what_is_no_rate_is_said() {
    let (_, talk, code) = bench(&["--rate", "0"]);
    assert_eq!(code, Some(2));
    assert!(talk.contains("`0` is no rate"), "{talk}");
}

//! `muster bench policy` at a small size: every row is there, and others that are not there are told.

use std::process::Command;

use serde::Deserialize;

#[derive(Debug, Deserialize)]
struct Row {
    what: String,
    value: Option<f64>,
    times: Option<f64>,
    missing: Option<String>,
}

fn bench(words: &[&str]) -> (String, String, Option<i32>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_muster"));
    let ran =
        command.args(["bench", "policy", "--nodes", "8", "--rounds", "1"]).args(words).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(ran.stdout), text(ran.stderr), ran.status.code())
}

#[test]
fn every_row_is_measured_and_who_is_not_there_is_told() {
    let (json, talk, code) = bench(&["--python", "/no/such/python", "-o", "json"]);
    assert_eq!(code, Some(0), "{talk}");
    let rows: Vec<Row> = muster_json::from_str(&json).unwrap();
    let row = |what: &str| {
        rows.iter().find(|row| row.what.contains(what)).unwrap_or_else(|| panic!("no `{what}` in {json}"))
    };
    for what in ["allow: calls", "score: calls, all arguments made anew", "100 files", "no policies"] {
        assert!(row(what).value.is_some_and(|value| value > 0.0), "{json}");
    }
    for what in ["all asked", "none asked", "asked anew"] {
        assert!(row(what).times.is_some_and(|times| times > 0.0), "{json}");
    }
    for what in ["allow: calls by starlark-go", "score: calls by starlark-pyo3"] {
        let missing = row(what).missing.as_deref().unwrap_or_default();
        assert!(row(what).value.is_none() && missing.contains("name a Python with --python"), "{json}");
    }
}

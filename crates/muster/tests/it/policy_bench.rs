//! `muster bench policy` at a small size: every row is measured, and missing interpreters are reported.

use std::process::Command;

use serde::Deserialize;

#[derive(Debug, Deserialize)]
struct PolicyBenchRow {
    what: String,
    value: Option<f64>,
    times: Option<f64>,
    missing: Option<String>,
}

/// Standard output, standard error and exit code.
fn bench(args: &[&str]) -> (String, String, Option<i32>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_muster"));
    let ran = command.args(["bench", "policy", "--nodes", "8", "--rounds", "1"]).args(args).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(ran.stdout), text(ran.stderr), ran.status.code())
}

#[test]
fn every_row_is_measured_and_missing_interpreters_are_reported() {
    let (json, stderr, code) = bench(&["--python", "/no/such/python", "-o", "json"]);
    assert_eq!(code, Some(0), "{stderr}");
    let rows: Vec<PolicyBenchRow> = muster_json::from_str(&json).unwrap();
    let row =
        |what: &str| rows.iter().find(|row| row.what.contains(what)).unwrap_or_else(|| panic!("no `{what}` in {json}"));
    for what in ["allow: calls", "score: calls, arguments built for each", "100 files", "no policies"] {
        assert!(row(what).value.is_some_and(|value| value > 0.0), "{json}");
    }
    for what in ["all answers cached", "no answers cached", "all answers refreshed"] {
        assert!(row(what).times.is_some_and(|times| times > 0.0), "{json}");
    }
    for what in ["allow: calls by starlark-go", "score: calls by starlark-pyo3"] {
        let missing = row(what).missing.as_deref().unwrap_or_default();
        assert!(row(what).value.is_none() && missing.contains("name a Python with --python"), "{json}");
    }
}

//! Conformance with the Starlark specification: programs with their expected results. `check.py` runs the same programs
//! with starlark-go: the two implementations agree on all of them except those of `differences.txt`.

use std::path::{Path, PathBuf};
use std::process::Command;

use muster_policy::{Limits, PolicyValue, Program};

use crate::corpus::{Case, cases, folder};

/// The result of a program in our engine: the `repr` of `result`, or the error.
fn outcome(case: &Case) -> String {
    let mut files = case.files.clone();
    *files.get_mut("main.gsky").unwrap() += "\ndef shown():\n    return repr(result)\n";
    let shown = Program::compile_files(&files, Limits::default()).and_then(|program| program.call("shown", &[]));
    match shown {
        Ok(PolicyValue::Text(text)) => text,
        Ok(other) => panic!("{}: repr gives {other}", case.title),
        Err(error) => format!("error: {error}"),
    }
}

fn agrees(actual: &str, expected: &str) -> bool {
    match expected.strip_prefix("error:") {
        Some(fragment) => actual.starts_with("error:") && actual.contains(fragment.trim()),
        None => actual == expected,
    }
}

#[test]
fn our_engine_agrees_with_every_program() {
    let cases = cases();
    let mut wrong = Vec::new();
    for case in &cases {
        let actual = outcome(case);
        if !agrees(&actual, &case.outcomes[0]) {
            wrong.push(format!("{}\n  expected {}\n  got      {actual}", case.title, case.outcomes[0]));
        }
    }
    println!("our engine agrees with {} of {} programs", cases.len() - wrong.len(), cases.len());
    assert!(cases.len() >= 500, "found only {} programs", cases.len());
    assert!(wrong.is_empty(), "{} programs differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn listed_differences_between_interpreters_exist() {
    for case in cases() {
        let differs = case.outcomes.first() != case.outcomes.last();
        assert_eq!(differs, case.title.starts_with("differences.txt"), "{}", case.title);
    }
}

/// A Python interpreter with the package starlark-go.
fn python() -> Option<PathBuf> {
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python/.venv/bin/python");
    let configured = std::env::var_os("MUSTER_PYTHON").map(PathBuf::from);
    let has_package = |python: &PathBuf| {
        let tried = Command::new(python).args(["-c", "import starlark_go"]).output();
        tried.is_ok_and(|output| output.status.success())
    };
    configured.into_iter().chain([ours, PathBuf::from("python3")]).find(has_package)
}

#[test]
fn starlark_go_agrees_with_every_program() {
    let Some(python) = python() else {
        assert!(std::env::var_os("CI").is_none(), "no Python interpreter has the package starlark-go");
        println!("skipped: no Python interpreter has the package starlark-go");
        return;
    };
    let output = Command::new(python).arg(folder().join("check.py")).output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    println!("{stdout}");
    assert!(output.status.success(), "{stdout}{}", String::from_utf8_lossy(&output.stderr));
    assert!(stdout.contains(&format!("of {} programs", cases().len())), "it did not run all programs: {stdout}");
}

//! Programs with their results, as the specification of Starlark has them. `check.py` runs the same files with
//! starlark-go, so that the two implementations agree on every program but those of `differences.txt`.

use std::path::{Path, PathBuf};
use std::process::Command;

use muster_policy::{Limits, Plain, Program};

use crate::corpus::{Case, cases, folder};

/// What our engine makes of a program: the text of `result`, or why it fails.
fn outcome(case: &Case) -> String {
    let mut files = case.files.clone();
    *files.get_mut("main.gsky").unwrap() += "\ndef told():\n    return repr(result)\n";
    let told = Program::of_files(&files, Limits::default()).and_then(|program| program.call("told", &[]));
    match told {
        Ok(Plain::Text(text)) => text,
        Ok(other) => panic!("{}: repr gives {other}", case.title),
        Err(error) => format!("error: {error}"),
    }
}

fn agrees(said: &str, expected: &str) -> bool {
    match expected.strip_prefix("error:") {
        Some(fragment) => said.starts_with("error:") && said.contains(fragment.trim()),
        None => said == expected,
    }
}

#[test]
fn our_engine_agrees_with_every_program() {
    let cases = cases();
    let mut wrong = Vec::new();
    for case in &cases {
        let said = outcome(case);
        if !agrees(&said, &case.outcomes[0]) {
            wrong.push(format!("{}\n  expected {}\n  and got  {said}", case.title, case.outcomes[0]));
        }
    }
    println!("our engine agrees with {} of {} programs", cases.len() - wrong.len(), cases.len());
    assert!(cases.len() >= 500, "only {} programs were found", cases.len());
    assert!(wrong.is_empty(), "{} programs differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn what_is_called_a_difference_is_one() {
    for case in cases() {
        let told_apart = case.outcomes.first() != case.outcomes.last();
        assert_eq!(told_apart, case.title.starts_with("differences.txt"), "{}", case.title);
    }
}

/// A Python that has the other implementation.
fn python() -> Option<PathBuf> {
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python/.venv/bin/python");
    let said = std::env::var_os("MUSTER_PYTHON").map(PathBuf::from);
    let has_it = |python: &PathBuf| {
        let tried = Command::new(python).args(["-c", "import starlark_go"]).output();
        tried.is_ok_and(|output| output.status.success())
    };
    said.into_iter().chain([ours, PathBuf::from("python3")]).find(has_it)
}

#[test]
fn starlark_go_agrees_with_every_program() {
    let Some(python) = python() else {
        assert!(std::env::var_os("CI").is_none(), "no Python here has the package starlark-go");
        println!("skipped: no Python here has the package starlark-go");
        return;
    };
    let output = Command::new(python).arg(folder().join("check.py")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    println!("{said}");
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains(&format!("of {} programs", cases().len())), "it did not run all programs: {said}");
}

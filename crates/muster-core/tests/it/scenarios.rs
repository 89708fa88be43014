//! Scenarios: `tests/scenarios/*.txt`, sequences of commands with the expected status of all jobs.
//!
//! A file has lines, then `--`, then the expected status table; `++` continues with lines. The invariants are checked
//! after every line. `BLESS=1 cargo test -p muster-core` rewrites the expected tables: read the diff.

mod gpus;
mod job_spec;
mod line;
mod queries;
mod runner;
mod status_table;

use std::fs;
use std::path::{Path, PathBuf};

use runner::ScenarioRunner;

#[test]
fn every_scenario_shows_the_expected_status() {
    let mut wrong = Vec::new();
    let files = scenario_files();
    assert!(files.len() >= 25, "only {} scenarios found", files.len());
    for file in &files {
        if let Err(problem) = check(file) {
            wrong.push(format!("{}:\n{problem}", file.display()));
        }
    }
    assert!(wrong.is_empty(), "{} of {} scenarios\n\n{}", wrong.len(), files.len(), wrong.join("\n\n"));
}

pub fn scenario_files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|end| end == "txt")).collect();
    files.sort();
    files
}

/// Run a file and compare the status tables with the expected ones.
fn check(file: &Path) -> Result<(), String> {
    let text = fs::read_to_string(file).unwrap();
    let result = std::panic::catch_unwind(|| play(&text));
    let played = result.unwrap_or_else(|_| Err("an invariant was violated, see above".to_string()))?;
    if played == text {
        return Ok(());
    }
    if std::env::var_os("BLESS").is_some() {
        fs::write(file, played).unwrap();
        return Ok(());
    }
    Err(diff(&text, &played))
}

/// The file with the actual status tables.
pub fn play(text: &str) -> Result<String, String> {
    let mut runner = ScenarioRunner::new();
    let mut played = String::new();
    let mut expecting = false;
    for (number, line) in (1..).zip(text.lines()) {
        match line {
            "--" => {
                expecting = true;
                played += "--\n";
                played += &runner.status_table();
            }
            "++" => {
                expecting = false;
                played += "++\n";
            }
            _ if expecting => {}
            _ => {
                runner.line(line).map_err(|problem| format!("line {number}, `{line}`: {problem}"))?;
                played += line;
                played.push('\n');
            }
        }
    }
    runner.finish().map(|()| played)
}

/// The lines that differ, all of them.
fn diff(expected: &str, played: &str) -> String {
    let (expected, played): (Vec<&str>, Vec<&str>) = (expected.lines().collect(), played.lines().collect());
    let mut shown = Vec::new();
    for place in 0..expected.len().max(played.len()) {
        match (expected.get(place), played.get(place)) {
            (Some(a), Some(b)) if a == b => shown.push(format!("  {a}")),
            (a, b) => {
                shown.extend(a.map(|a| format!("- {a}")));
                shown.extend(b.map(|b| format!("+ {b}")));
            }
        }
    }
    shown.join("\n")
}

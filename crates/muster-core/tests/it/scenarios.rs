//! Scenarios: short stories in the project's words, `tests/scenarios/*.txt`. Does each end as we say?
//!
//! A file is a story, then `--`, then the board as it should be; `++` goes on with the story. After every
//! line no law may be broken. `BLESS=1 cargo test -p muster-core` rewrites what is expected: read the diff.

use std::fs;
use std::path::{Path, PathBuf};

use crate::script::Script;

#[test]
fn every_scenario_ends_as_it_says() {
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
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|end| end == "txt")).collect();
    files.sort();
    files
}

/// Play a file and compare what it shows with what it expects.
fn check(file: &Path) -> Result<(), String> {
    let text = fs::read_to_string(file).unwrap();
    let told = std::panic::catch_unwind(|| play(&text));
    let played = told.unwrap_or_else(|_| Err("a law was broken, see above".to_string()))?;
    if played == text {
        return Ok(());
    }
    if std::env::var_os("BLESS").is_some() {
        fs::write(file, played).unwrap();
        return Ok(());
    }
    Err(diff(&text, &played))
}

/// The file as it would be if every board were as expected.
pub fn play(text: &str) -> Result<String, String> {
    let mut script = Script::new();
    let mut played = String::new();
    let mut expecting = false;
    for (number, line) in (1..).zip(text.lines()) {
        match line {
            "--" => {
                expecting = true;
                played += "--\n";
                played += &script.board();
            }
            "++" => {
                expecting = false;
                played += "++\n";
            }
            _ if expecting => {}
            _ => {
                script.line(line).map_err(|problem| format!("line {number}, `{line}`: {problem}"))?;
                played += line;
                played.push('\n');
            }
        }
    }
    script.finish().map(|()| played)
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

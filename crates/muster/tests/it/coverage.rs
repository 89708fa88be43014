//! `docs/coverage.md` keeps its own promises: the counts are right, and what a row calls its test is there.

use std::collections::BTreeMap;
use std::path::Path;

use super::docs::root;

/// Suites that rows name in words rather than by a path.
const SUITES: [&str; 12] = [
    "CI",
    "config tests",
    "everything above",
    "laws",
    "make lint",
    "make python-test",
    "model",
    "scenarios",
    "store contract",
    "store golden journal",
    "telemetry tests",
    "tls tests",
];

struct Row {
    id: String,
    status: String,
    how: String,
    shown_by: String,
}

fn rows() -> Vec<Row> {
    let text = std::fs::read_to_string(root().join("docs/coverage.md")).unwrap();
    let rows = text.lines().filter(|line| line.starts_with("| S") && line.as_bytes()[4] == b'-');
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        assert_eq!(cells.len(), 5, "{line}");
        let cell = |place: usize| cells[place].to_string();
        Row { id: cell(0), status: cell(2), how: cell(3), shown_by: cell(4) }
    };
    rows.map(row).collect()
}

#[test]
fn the_counts_are_those_of_the_rows() {
    let (mut counts, rows) = (BTreeMap::new(), rows());
    for row in &rows {
        *counts.entry(row.status.as_str()).or_insert(0) += 1;
    }
    let count = |status: &str| counts.get(status).copied().unwrap_or(0);
    let line = format!(
        "Today: {} met, {} done, {} partly, {} not adopted, {} not yet, of {}.",
        count("**met**"),
        count("done"),
        count("*partly*"),
        count("*not adopted*"),
        count("not yet"),
        rows.len()
    );
    let text = std::fs::read_to_string(root().join("docs/coverage.md")).unwrap();
    assert!(text.contains(&line), "docs/coverage.md should say\n{line}");
    assert_eq!((counts.len(), rows.len()), (5, 312), "{counts:?}");
}

#[test]
fn a_row_that_is_met_names_a_test_that_is_there() {
    let wrong = |row: &Row| -> Option<String> {
        let found = row.shown_by.split([',', ';']).any(|name| is_there(name.trim()));
        (!found).then(|| format!("{}: nothing of `{}` is there", row.id, row.shown_by))
    };
    let wrong: Vec<String> = rows().iter().filter(|row| row.status == "**met**").filter_map(wrong).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_path_of_a_row_that_is_met_exists() {
    for row in rows().iter().filter(|row| row.status == "**met**") {
        for word in row.shown_by.split([' ', ',', ';', '`', '(', ')']).filter(|word| looks_like_a_path(word))
        {
            assert!(is_there(word), "{}: there is no `{word}`", row.id);
        }
    }
}

#[test]
fn what_is_not_adopted_or_only_partly_there_has_its_reason() {
    let wanting = |row: &&Row| ["*partly*", "*not adopted*"].contains(&row.status.as_str());
    for row in rows().iter().filter(wanting) {
        assert!(row.how.len() > 20, "{} is {} without a reason", row.id, row.status);
    }
}

fn looks_like_a_path(word: &str) -> bool {
    word.contains('/') && !word.contains(['{', '}', '*'])
}

/// A suite, a path below `crates` or the project, or a test by its name.
fn is_there(name: &str) -> bool {
    let name = name.trim_matches('`');
    if let Some((module, test)) = name.split_once("::") {
        return is_test(module, test.trim_end_matches('`'));
    }
    let path = name.split([' ', '{', '*']).next().unwrap_or_default().trim_matches('`').trim_end_matches('_');
    let ends = ["", ".md", ".rs", ".txt"];
    let places = ["crates", "crates/muster/tests", "crates/muster-core/tests/scenarios", "."];
    let exists =
        |place: &&str| ends.iter().any(|end| root().join(place).join(format!("{path}{end}")).exists());
    let begins =
        || Path::new(path).parent().is_some_and(|folder| root().join("crates").join(folder).exists());
    SUITES.iter().any(|suite| name.starts_with(suite))
        || !path.is_empty() && places.iter().any(exists)
        || name.contains(['{', '*']) && begins()
}

/// A test of the suite of the binary, as `criteria::documentation`; `criteria::*` is any of them.
fn is_test(module: &str, test: &str) -> bool {
    let file = root().join(format!("crates/muster/tests/it/{module}.rs"));
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let test = test.split(['`', ' ']).next().unwrap_or_default();
    text.contains("#[test]") && (test == "*" || text.contains(&format!("fn {test}(")))
}

//! `docs/coverage.md` is consistent: its counts match its rows, and the tests and files that its rows name exist.

use std::collections::BTreeMap;
use std::path::Path;

use super::docs::root;

/// Test suites that rows name by a title instead of a path.
const SUITES: [&str; 12] = [
    "CI",
    "config tests",
    "everything above",
    "laws",
    "make lint",
    "make python-test",
    "naive_planner",
    "scenarios",
    "store contract",
    "store golden journal",
    "telemetry tests",
    "tls tests",
];

struct CoverageRow {
    id: String,
    status: String,
    how: String,
    shown_by: String,
}

fn rows() -> Vec<CoverageRow> {
    let text = std::fs::read_to_string(root().join("docs/coverage.md")).unwrap();
    let rows = text.lines().filter(|line| line.starts_with("| S") && line.as_bytes()[4] == b'-');
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        assert_eq!(cells.len(), 5, "{line}");
        let cell = |column: usize| cells[column].to_string();
        CoverageRow { id: cell(0), status: cell(2), how: cell(3), shown_by: cell(4) }
    };
    rows.map(row).collect()
}

#[test]
fn the_summary_counts_match_the_rows() {
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
fn every_met_row_names_an_existing_test() {
    let missing = |row: &CoverageRow| -> Option<String> {
        let found = row.shown_by.split([',', ';']).any(|name| reference_exists(name.trim()));
        (!found).then(|| format!("{}: nothing of `{}` exists", row.id, row.shown_by))
    };
    let missing: Vec<String> = rows().iter().filter(|row| row.status == "**met**").filter_map(missing).collect();
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn every_path_of_a_row_that_is_met_exists() {
    for row in rows().iter().filter(|row| row.status == "**met**") {
        for word in row.shown_by.split([' ', ',', ';', '`', '(', ')']).filter(|word| looks_like_a_path(word)) {
            assert!(reference_exists(word), "{}: there is no `{word}`", row.id);
        }
    }
}

#[test]
fn rows_not_fully_met_state_a_reason() {
    let incomplete = |row: &&CoverageRow| ["*partly*", "*not adopted*"].contains(&row.status.as_str());
    for row in rows().iter().filter(incomplete) {
        assert!(row.how.len() > 20, "{} is {} without a reason", row.id, row.status);
    }
}

fn looks_like_a_path(word: &str) -> bool {
    word.contains('/') && !word.contains(['{', '}', '*'])
}

/// Whether the name is a suite, a path below `crates` or the project, or a test.
fn reference_exists(name: &str) -> bool {
    let name = name.trim_matches('`');
    if let Some((module, test)) = name.split_once("::") {
        return is_test(module, test.trim_end_matches('`'));
    }
    let path = name.split([' ', '{', '*']).next().unwrap_or_default().trim_matches('`').trim_end_matches('_');
    let extensions = ["", ".md", ".rs", ".txt"];
    let folders = ["crates", "crates/muster/tests", "crates/muster-core/tests/scenarios", "."];
    let exists = |folder: &&str| {
        extensions.iter().any(|extension| root().join(folder).join(format!("{path}{extension}")).exists())
    };
    let parent_exists = || Path::new(path).parent().is_some_and(|folder| root().join("crates").join(folder).exists());
    SUITES.iter().any(|suite| name.starts_with(suite))
        || !path.is_empty() && folders.iter().any(exists)
        || name.contains(['{', '*']) && parent_exists()
}

/// Whether it is a test of this suite, such as `criteria::documentation`; `criteria::*` is any test of the module.
fn is_test(module: &str, test: &str) -> bool {
    let file = root().join(format!("crates/muster/tests/it/{module}.rs"));
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let test = test.split(['`', ' ']).next().unwrap_or_default();
    text.contains("#[test]") && (test == "*" || text.contains(&format!("fn {test}(")))
}

//! `muster policy test`: run the tests of policies and measure their line coverage.

use std::path::PathBuf;

use muster_policy::{Coverage, Limits, POLICY_EXTENSION, TestOutcome, is_policy_file, is_test_file, run_tests};
use serde::Serialize;

use crate::commands::{CommandResult, ExitStatus};
use crate::error::CliError;
use crate::options::Options;
use crate::output::{self, Column, ShowArgs};
use crate::policy_dirs::{self, PolicyDir};
use crate::units;

/// `muster policy test`.
#[derive(Debug, clap::Args)]
#[command(before_help = "Examples:\n  muster policy test\n  muster policy test mine --coverage\n  \
                         muster policy test policies/cookbook --min-coverage 90")]
pub struct Args {
    /// Folders, test files, or policies whose tests to run [default: policies]
    paths: Vec<PathBuf>,
    /// Print the line coverage of each policy
    #[arg(long)]
    coverage: bool,
    /// Fail if the line coverage of a policy is below this percentage
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=100))]
    min_coverage: Option<u8>,
    #[command(flatten)]
    show: ShowArgs,
}

/// The output of `-o json`.
#[derive(Debug, Default, Serialize)]
struct PolicyTestReport {
    passed: usize,
    failed: usize,
    tests: Vec<TestLine>,
    coverage: Vec<CoverageLine>,
}

#[derive(Debug, Serialize)]
struct TestLine {
    file: String,
    name: Option<String>,
    line: usize,
    passed: bool,
    took_us: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// The line coverage of one policy.
#[derive(Debug, Serialize)]
struct CoverageLine {
    file: String,
    lines: usize,
    ran: usize,
    percent: usize,
    missed: Vec<usize>,
}

const COLUMNS: [Column<CoverageLine>; 5] = [
    Column::new("POLICY", |line| line.file.as_str().into()),
    Column::new("LINES", |line| line.lines.to_string().into()),
    Column::new("RAN", |line| line.ran.to_string().into()),
    Column::new("PERCENT", |line| line.percent.to_string().into()),
    Column::new("MISSED", |line| line_ranges(&line.missed).into()),
];

/// Runs the tests; fails if one fails.
pub fn run(args: &Args, options: &Options) -> CommandResult {
    let mut report = PolicyTestReport::default();
    for folder in policy_dirs::read_policy_dirs(&args.paths)? {
        test_folder(&folder, &mut report);
    }
    if report.tests.is_empty() {
        return Err(CliError::failed("there is no test").hint(format!(
            "put a file `NAME_test.{POLICY_EXTENSION}` beside the policy, with functions `test_…`: docs/policies.md"
        )));
    }
    let mut text: String = report.tests.iter().map(test_text).collect();
    text += &format!("{}, {} failed\n", units::count_text(report.tests.len() as u64, "test"), report.failed);
    if args.coverage {
        text += &format!("\n{}", output::table(&COLUMNS, &report.coverage, options.color));
    }
    output::print_text(&args.show, &text, "test", &report)?;
    test_result(args, &report)
}

fn test_folder(folder: &PolicyDir, report: &mut PolicyTestReport) {
    let tests: Vec<String> = folder.files.keys().filter(|name| is_selected(folder, name)).cloned().collect();
    let names: Vec<&str> = tests.iter().map(String::as_str).collect();
    let tested = run_tests(&folder.files, &names, &Limits::default());
    for outcome in &tested.outcomes {
        report.passed += usize::from(outcome.error.is_none());
        report.failed += usize::from(outcome.error.is_some());
        report.tests.push(test_line(folder, outcome));
    }
    for (name, coverage) in &tested.coverage {
        report.coverage.push(coverage_line(folder, name, coverage));
    }
    // A policy that no test loads has a coverage of zero.
    let untested = |name: &&String| is_policy_file(name) && !tested.coverage.contains_key(*name);
    for name in folder.selected.iter().filter(untested) {
        let coverage = Coverage::of_unloaded_file(name, &folder.files[name]);
        report.coverage.push(coverage_line(folder, name, &coverage));
    }
    report.coverage.sort_by(|a, b| a.file.cmp(&b.file));
}

/// Whether a test file, or the policy it tests, is selected.
fn is_selected(folder: &PolicyDir, name: &str) -> bool {
    let of_policy =
        name.strip_suffix(&format!("_test.{POLICY_EXTENSION}")).map(|stem| format!("{stem}.{POLICY_EXTENSION}"));
    is_test_file(name)
        && (folder.selected.contains(name) || of_policy.is_some_and(|policy| folder.selected.contains(&policy)))
}

fn test_line(folder: &PolicyDir, outcome: &TestOutcome) -> TestLine {
    TestLine {
        file: folder.display_path(&outcome.file),
        name: outcome.name.clone(),
        line: outcome.line,
        passed: outcome.error.is_none(),
        took_us: u64::try_from(outcome.elapsed.as_micros()).unwrap_or(u64::MAX),
        error: outcome.error.as_ref().map(|error| folder.error_with_source(error)),
    }
}

fn coverage_line(folder: &PolicyDir, name: &str, coverage: &Coverage) -> CoverageLine {
    CoverageLine {
        file: folder.display_path(name),
        lines: coverage.lines.len(),
        ran: coverage.reached_lines.len(),
        percent: coverage.percent(),
        missed: coverage.missed_lines(),
    }
}

/// The result, location and error of a test.
fn test_text(test: &TestLine) -> String {
    let result = if test.passed { "ok  " } else { "FAIL" };
    let name = test.name.as_ref().map(|name| format!(" {name}")).unwrap_or_default();
    let error = test.error.as_ref().map(|error| format!("  {}\n", error.replace('\n', "\n  ")));
    format!("{result} {}:{}{name}\n{}", test.file, test.line, error.unwrap_or_default())
}

fn test_result(args: &Args, report: &PolicyTestReport) -> CommandResult {
    if report.failed > 0 {
        let tests = units::count_text(report.tests.len() as u64, "test");
        return Err(CliError::failed(format!("{} of {tests} failed", report.failed)));
    }
    let minimum = usize::from(args.min_coverage.unwrap_or(0));
    match report.coverage.iter().find(|line| line.percent < minimum) {
        None => Ok(ExitStatus::SUCCESS),
        Some(CoverageLine { file, percent, missed, .. }) => {
            let message = format!("the line coverage of `{file}` is {percent} %; the minimum is {minimum} %");
            Err(CliError::failed(message).hint(format!("test lines {}", line_ranges(missed))))
        }
    }
}

/// `3, 7-9`.
fn line_ranges(lines: &[usize]) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for line in lines {
        match ranges.last_mut() {
            Some((_, end)) if *end + 1 == *line => *end = *line,
            _ => ranges.push((*line, *line)),
        }
    }
    let range = |(from, to): &(usize, usize)| if from == to { from.to_string() } else { format!("{from}-{to}") };
    ranges.iter().map(range).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_lines_are_shown_as_a_range() {
        assert_eq!(line_ranges(&[]), "");
        assert_eq!(line_ranges(&[3, 7, 8, 9, 11]), "3, 7-9, 11");
    }
}

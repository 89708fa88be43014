//! `muster policy test`: run the tests of policies, and say which lines they reach.

use std::path::PathBuf;

use muster_policy::{Coverage, ENDING, Limits, Outcome, is_policy, is_test, test};
use serde::Serialize;

use super::folders::{self, Folder};
use crate::commands::{Code, Ending};
use crate::error::CliError;
use crate::options::Options;
use crate::output::{self, Column, ShowArgs};
use crate::units;

/// `muster policy test`.
#[derive(Debug, clap::Args)]
#[command(before_help = "Examples:\n  muster policy test\n  muster policy test mine --coverage\n  \
                         muster policy test policies/cookbook --min-coverage 90")]
pub struct Args {
    /// Folders, tests, or policies whose tests are meant; `policies` where none is named
    paths: Vec<PathBuf>,
    /// Say which lines of the policies ran
    #[arg(long)]
    coverage: bool,
    /// Fail if less than this part of the lines of a policy ran, in percent
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=100))]
    min_coverage: Option<u8>,
    #[command(flatten)]
    show: ShowArgs,
}

/// What came of all tests.
#[derive(Debug, Default, Serialize)]
struct Report {
    passed: usize,
    failed: usize,
    tests: Vec<TestLine>,
    coverage: Vec<CoverageLine>,
}

/// A test.
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

/// A policy.
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
    Column::new("MISSED", |line| ranges(&line.missed).into()),
];

/// Run them, and fail if one does.
pub fn run(args: &Args, options: &Options) -> Ending {
    let mut report = Report::default();
    for folder in folders::of(&args.paths)? {
        test_folder(&folder, &mut report);
    }
    if report.tests.is_empty() {
        return Err(CliError::failed("there is no test").hint(format!(
            "put a file `NAME_test.{ENDING}` beside the policy, with functions `test_…`: docs/policies.md"
        )));
    }
    let mut text: String = report.tests.iter().map(line).collect();
    text += &format!("{}, {} failed\n", units::count(report.tests.len() as u64, "test"), report.failed);
    if args.coverage {
        text += &format!("\n{}", output::table(&COLUMNS, &report.coverage, options.color));
    }
    output::say(&args.show, &text, "test", &report)?;
    verdict(args, &report)
}

fn test_folder(folder: &Folder, report: &mut Report) {
    let tests: Vec<String> = folder.files.keys().filter(|name| is_asked_for(folder, name)).cloned().collect();
    let names: Vec<&str> = tests.iter().map(String::as_str).collect();
    let tested = test(&folder.files, &names, &Limits::default());
    for outcome in &tested.outcomes {
        report.passed += usize::from(outcome.error.is_none());
        report.failed += usize::from(outcome.error.is_some());
        report.tests.push(test_line(folder, outcome));
    }
    for (name, coverage) in &tested.coverage {
        report.coverage.push(coverage_line(folder, name, coverage));
    }
    // A policy that no test loads is one of which no line ran.
    let forgotten = |name: &&String| is_policy(name) && !tested.coverage.contains_key(*name);
    for name in folder.chosen.iter().filter(forgotten) {
        let coverage = Coverage::unreached(name, &folder.files[name]);
        report.coverage.push(coverage_line(folder, name, &coverage));
    }
    report.coverage.sort_by(|a, b| a.file.cmp(&b.file));
}

/// A test that was named, or the test of a policy that was.
fn is_asked_for(folder: &Folder, name: &str) -> bool {
    let of_policy = name.strip_suffix(&format!("_test.{ENDING}")).map(|stem| format!("{stem}.{ENDING}"));
    is_test(name)
        && (folder.chosen.contains(name) || of_policy.is_some_and(|policy| folder.chosen.contains(&policy)))
}

fn test_line(folder: &Folder, outcome: &Outcome) -> TestLine {
    TestLine {
        file: folder.shown(&outcome.file),
        name: outcome.name.clone(),
        line: outcome.line,
        passed: outcome.error.is_none(),
        took_us: u64::try_from(outcome.took.as_micros()).unwrap_or(u64::MAX),
        error: outcome.error.as_ref().map(|error| folder.told(error)),
    }
}

fn coverage_line(folder: &Folder, name: &str, coverage: &Coverage) -> CoverageLine {
    CoverageLine {
        file: folder.shown(name),
        lines: coverage.lines.len(),
        ran: coverage.ran.len(),
        percent: coverage.percent(),
        missed: coverage.missed(),
    }
}

/// One test: whether it holds, where it is, and what is wrong with it.
fn line(test: &TestLine) -> String {
    let word = if test.passed { "ok  " } else { "FAIL" };
    let name = test.name.as_ref().map(|name| format!(" {name}")).unwrap_or_default();
    let error = test.error.as_ref().map(|error| format!("  {}\n", error.replace('\n', "\n  ")));
    format!("{word} {}:{}{name}\n{}", test.file, test.line, error.unwrap_or_default())
}

fn verdict(args: &Args, report: &Report) -> Ending {
    if report.failed > 0 {
        let tests = units::count(report.tests.len() as u64, "test");
        return Err(CliError::failed(format!("{} of {tests} failed", report.failed)));
    }
    let least = usize::from(args.min_coverage.unwrap_or(0));
    match report.coverage.iter().find(|line| line.percent < least) {
        None => Ok(Code::DONE),
        Some(CoverageLine { file, percent, missed, .. }) => {
            let what = format!("{percent} % of the lines of `{file}` ran, {least} % are the least");
            Err(CliError::failed(what).hint(format!("test lines {}", ranges(missed))))
        }
    }
}

/// `3, 7-9`.
fn ranges(lines: &[usize]) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for line in lines {
        match ranges.last_mut() {
            Some((_, end)) if *end + 1 == *line => *end = *line,
            _ => ranges.push((*line, *line)),
        }
    }
    let told =
        |(from, to): &(usize, usize)| if from == to { from.to_string() } else { format!("{from}-{to}") };
    ranges.iter().map(told).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_in_a_row_are_told_as_one() {
        assert_eq!(ranges(&[]), "");
        assert_eq!(ranges(&[3, 7, 8, 9, 11]), "3, 7-9, 11");
    }
}

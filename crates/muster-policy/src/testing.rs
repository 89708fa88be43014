//! Tests of policies: `NAME_test.gsky` beside them.
//!
//! A test file loads what it tests, and each of its functions `test_…` runs in an interpreter of its own. What it loads
//! are the real functions, compiled once more; nothing a test does reaches another. Then all of it runs a second time
//! with marks in the policies, which say which lines ran: marks would move the columns of messages, so the first run
//! says what is wrong and the second only what was reached.

mod coverage;
mod test_builtins;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use starlark::environment::{FrozenModule, Globals, Module};
use starlark::eval::Evaluator;

pub use coverage::Coverage;
pub(crate) use coverage::CoverageRecorder;

use crate::builtins::{Registry, policy_globals_builder};
use crate::bundle::definition_span;
use crate::error::PolicyError;
use crate::limits::Limits;
use crate::load::{self, POLICY_EXTENSION, LoadMode, Printer};
use crate::signature::Signature;

/// How the names of tests begin.
const TEST_FUNCTION_PREFIX: &str = "test_";

/// What test files find besides what policies find.
pub(crate) static TEST_GLOBALS: LazyLock<Globals> =
    LazyLock::new(|| test_builtins::with_test_builtins(policy_globals_builder()).build());

/// What policies find while their lines are counted.
pub(crate) static COVERAGE_GLOBALS: LazyLock<Globals> =
    LazyLock::new(|| coverage::with_coverage_builtins(policy_globals_builder()).build());

/// How a test ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestOutcome {
    /// The file it stands in.
    pub file: String,
    /// Its name; none where the file itself does not run.
    pub name: Option<String>,
    /// Where it begins, counted from one.
    pub line: usize,
    /// What is wrong, if anything.
    pub error: Option<PolicyError>,
    /// How long it took.
    pub elapsed: Duration,
}

/// What came of the tests of a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TestReport {
    /// Each test, in the order of files and lines.
    pub outcomes: Vec<TestOutcome>,
    /// The policies that were loaded, and which of their lines ran.
    pub coverage: BTreeMap<String, Coverage>,
}

/// Whether a file of this name tests policies.
pub fn is_test_file(name: &str) -> bool {
    name.strip_suffix(POLICY_EXTENSION).is_some_and(|stem| stem.ends_with("_test."))
}

/// Run the tests of these files of a bundle.
pub fn run_tests(files: &BTreeMap<String, String>, tests: &[&str], limits: &Limits) -> TestReport {
    let run = |manner: LoadMode, limits: &Limits| -> Vec<TestOutcome> {
        tests.iter().flat_map(|file| run_test_file(files, file, limits, manner)).collect()
    };
    let outcomes = run(LoadMode::Tests, limits);
    let marker = CoverageRecorder::default();
    run(LoadMode::Coverage(&marker), &coverage_limits(limits));
    TestReport { outcomes, coverage: marker.into_coverage() }
}

/// What is wrong with the tests of a bundle, if anything: each failed test in a line.
pub fn failed_tests(files: &BTreeMap<String, String>, limits: &Limits) -> Vec<String> {
    let tests = files.keys().filter(|file| is_test_file(file));
    let outcomes = tests.flat_map(|file| run_test_file(files, file, limits, LoadMode::Tests));
    let told = |outcome: TestOutcome| {
        let error = outcome.error?;
        let name = outcome.name.map_or(String::new(), |name| format!(" {name}"));
        Some(format!("{}:{}{name}: {error}", outcome.file, outcome.line))
    };
    outcomes.filter_map(told).collect()
}

/// Marks are steps and letters too.
fn coverage_limits(limits: &Limits) -> Limits {
    Limits {
        steps: limits.steps.saturating_mul(4),
        call_time: limits.call_time * 4,
        load_time: limits.load_time * 4,
        source_bytes: limits.source_bytes.saturating_mul(16),
        syntax_depth: limits.syntax_depth.saturating_mul(4),
        ..*limits
    }
}

/// The tests of one file. That it does not run is an outcome as well, and so is that there is nothing to run.
fn run_test_file(files: &BTreeMap<String, String>, file: &str, limits: &Limits, manner: LoadMode) -> Vec<TestOutcome> {
    let began = Instant::now();
    let broken = |error| {
        vec![TestOutcome {
            file: file.to_string(),
            name: None,
            line: 1,
            error: Some(error),
            elapsed: began.elapsed(),
        }]
    };
    let (module, registry) = match load::load_test_file(files, file, limits, manner) {
        Ok(loaded) => loaded,
        Err(error) => return broken(error),
    };
    let tests = test_functions(&module, file, files.get(file).map(String::as_str).unwrap_or_default());
    if tests.is_empty() {
        let what = format!("there is no test in it: a function `{TEST_FUNCTION_PREFIX}…`");
        return broken(PolicyError::Invalid { file: file.to_string(), message: what });
    }
    let one = |(line, name): (usize, String)| {
        let began = Instant::now();
        // What a test registers is gone after it.
        let registry = registry.with_same_rules();
        let ended = run_test(&module, (file, &name), &registry, limits, manner);
        if let LoadMode::Coverage(marker) = manner {
            marker.record_reached(&registry.take_reached_marks());
        }
        TestOutcome { file: file.to_string(), name: Some(name), line, error: ended.err(), elapsed: began.elapsed() }
    };
    tests.into_iter().map(one).collect()
}

/// The tests that a file tells, with their lines, in that order.
fn test_functions(module: &FrozenModule, file: &str, source: &str) -> Vec<(usize, String)> {
    let names = module.names().filter(|name| name.as_str().starts_with(TEST_FUNCTION_PREFIX));
    let line = |name: &str| definition_span(file, source, name).map_or(1, |span| span.resolve().span.begin.line + 1);
    let mut tests: Vec<(usize, String)> =
        names.map(|name| (line(name.as_str()), name.as_str().to_string())).collect();
    tests.sort();
    tests
}

/// Run one test in an interpreter of its own.
fn run_test(
    module: &FrozenModule,
    (file, name): (&str, &str),
    registry: &Registry,
    limits: &Limits,
    manner: LoadMode,
) -> Result<(), PolicyError> {
    let somewhere = |what: String| PolicyError::Invalid { file: file.to_string(), message: what };
    let owned = module.get(name).map_err(|error| somewhere(error.to_string()))?;
    if !Signature::of_value(owned.value()).is_some_and(|takes| takes.accepts(0)) {
        return Err(somewhere(format!("`{name}` must be a function without parameters")));
    }
    let call = || {
        Module::with_temp_heap(|scratch| {
            let printer = Printer::for_mode(manner, limits);
            let mut eval = Evaluator::new(&scratch);
            let unbound = |error| PolicyError::from_starlark(&starlark::Error::new_other(error), file);
            let watch = limits.limit_file_run(&mut eval).map_err(unbound)?;
            eval.set_print_handler(&printer);
            eval.extra = Some(registry);
            let function = scratch.heap().access_owned_frozen_value(&owned);
            let ended = eval.eval_function(function, &[], &[]);
            ended.map(drop).map_err(|error| watch.with_exceeded_limit(PolicyError::from_starlark(&error, file)))
        })
    };
    // The interpreter panics where a value grows beyond what it can count; nothing of ours is left half done by that.
    let ended = catch_unwind(AssertUnwindSafe(call));
    ended.unwrap_or_else(|_| Err(somewhere("a value grows beyond all bounds".to_string())))?;
    match registry.expectation_count() {
        0 => Err(somewhere(format!("`{name}` expects nothing, so it cannot fail"))),
        _ => Ok(()),
    }
}

//! Runs the tests of policies: files `NAME_test.gsky` in the same folder.
//!
//! A test file loads the policies that it tests, and each of its functions `test_…` runs in its own evaluator, so
//! that no test affects another. All tests then run a second time with instrumented policies for line coverage.
//! Instrumentation moves the columns of error messages, so outcomes come from the first run only.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use starlark::environment::{FrozenModule, Module};
use starlark::eval::Evaluator;

use crate::builtins::Registry;
use crate::coverage::{Coverage, CoverageRecorder};
use crate::error::PolicyError;
use crate::limits::Limits;
use crate::load::{self, LoadMode};
use crate::policy_files::is_test_file;
use crate::signature::Signature;
use crate::syntax::definition_span;

/// The prefix of test functions.
const TEST_FUNCTION_PREFIX: &str = "test_";

/// The outcome of one test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestOutcome {
    pub file: String,
    /// The test function; `None` if the file does not load or has no tests.
    pub name: Option<String>,
    /// The first line of the function, counted from one.
    pub line: usize,
    /// `None` if the test passed.
    pub error: Option<PolicyError>,
    pub elapsed: Duration,
}

/// The outcomes of the tests of a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TestReport {
    /// In the order of files and lines.
    pub outcomes: Vec<TestOutcome>,
    /// Line coverage of the policies that the tests loaded, by file.
    pub coverage: BTreeMap<String, Coverage>,
}

/// Run the tests of these files of a bundle, and measure coverage.
pub fn run_tests(files: &BTreeMap<String, String>, tests: &[&str], limits: &Limits) -> TestReport {
    let run = |mode: LoadMode, limits: &Limits| -> Vec<TestOutcome> {
        tests.iter().flat_map(|file| run_test_file(files, file, limits, mode)).collect()
    };
    let outcomes = run(LoadMode::Tests, limits);
    let recorder = CoverageRecorder::default();
    run(LoadMode::Coverage(&recorder), &coverage_limits(limits));
    TestReport { outcomes, coverage: recorder.into_coverage() }
}

/// Run all tests of a bundle, and return one line for each that fails.
pub fn failed_tests(files: &BTreeMap<String, String>, limits: &Limits) -> Vec<String> {
    let tests = files.keys().filter(|file| is_test_file(file));
    let outcomes = tests.flat_map(|file| run_test_file(files, file, limits, LoadMode::Tests));
    let failure_line = |outcome: TestOutcome| {
        let error = outcome.error?;
        let name = outcome.name.map_or(String::new(), |name| format!(" {name}"));
        Some(format!("{}:{}{name}: {error}", outcome.file, outcome.line))
    };
    outcomes.filter_map(failure_line).collect()
}

/// Wider limits: marks take steps, time, source bytes and nesting.
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

/// Run the tests of one file. A file that does not load or has no tests counts as one failed test.
fn run_test_file(files: &BTreeMap<String, String>, file: &str, limits: &Limits, mode: LoadMode) -> Vec<TestOutcome> {
    let started_at = Instant::now();
    let file_failed = |error| {
        vec![TestOutcome {
            file: file.to_string(),
            name: None,
            line: 1,
            error: Some(error),
            elapsed: started_at.elapsed(),
        }]
    };
    let (module, registry) = match load::load_test_file(files, file, limits, mode) {
        Ok(loaded) => loaded,
        Err(error) => return file_failed(error),
    };
    let tests = test_functions(&module, file, files.get(file).map(String::as_str).unwrap_or_default());
    if tests.is_empty() {
        let message = format!("the file defines no function `{TEST_FUNCTION_PREFIX}…`");
        return file_failed(PolicyError::Invalid { file: file.to_string(), message });
    }
    let run = |(line, name): (usize, String)| {
        let started_at = Instant::now();
        // Registrations of one test are not visible to the next.
        let registry = registry.with_same_rules();
        let outcome = run_test(&module, (file, &name), &registry, limits, mode);
        if let LoadMode::Coverage(recorder) = mode {
            recorder.record_reached(&registry.take_reached_marks());
        }
        let elapsed = started_at.elapsed();
        TestOutcome { file: file.to_string(), name: Some(name), line, error: outcome.err(), elapsed }
    };
    tests.into_iter().map(run).collect()
}

/// The test functions of a file with their lines, in the order of lines.
fn test_functions(module: &FrozenModule, file: &str, source: &str) -> Vec<(usize, String)> {
    let names = module.names().filter(|name| name.as_str().starts_with(TEST_FUNCTION_PREFIX));
    let line = |name: &str| definition_span(file, source, name).map_or(1, |span| span.resolve().span.begin.line + 1);
    let mut tests: Vec<(usize, String)> = names.map(|name| (line(name.as_str()), name.as_str().to_string())).collect();
    tests.sort();
    tests
}

/// Run one test in its own evaluator.
fn run_test(
    module: &FrozenModule,
    (file, name): (&str, &str),
    registry: &Registry,
    limits: &Limits,
    mode: LoadMode,
) -> Result<(), PolicyError> {
    let failed = |message: String| PolicyError::Invalid { file: file.to_string(), message };
    let owned = module.get(name).map_err(|error| failed(error.to_string()))?;
    if !Signature::of_value(owned.value()).is_some_and(|signature| signature.accepts(0)) {
        return Err(failed(format!("`{name}` must be a function without parameters")));
    }
    let call = || {
        Module::with_temp_heap(|scratch| {
            let printer = mode.printer(limits);
            let mut eval = Evaluator::new(&scratch);
            let not_limited = |error| PolicyError::from_starlark(&starlark::Error::new_other(error), file);
            let watchdog = limits.limit_file_run(&mut eval).map_err(not_limited)?;
            eval.set_print_handler(&printer);
            eval.extra = Some(registry);
            let function = scratch.heap().access_owned_frozen_value(&owned);
            let outcome = eval.eval_function(function, &[], &[]);
            outcome.map(drop).map_err(|error| watchdog.with_exceeded_limit(PolicyError::from_starlark(&error, file)))
        })
    };
    // The interpreter panics if a value exceeds what it can represent. The panic leaves no state half changed: the
    // evaluator is dropped.
    let outcome = catch_unwind(AssertUnwindSafe(call));
    outcome.unwrap_or_else(|_| Err(failed("a value exceeds what the interpreter can represent".to_string())))?;
    match registry.expectation_count() {
        0 => Err(failed(format!("`{name}` has no expectation, so it cannot fail"))),
        _ => Ok(()),
    }
}

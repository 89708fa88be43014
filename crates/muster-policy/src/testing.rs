//! Tests of policies: `NAME_test.gsky` beside them.
//!
//! A test file loads what it tests, and each of its functions `test_…` runs in an interpreter of its own. What it loads
//! are the real functions, compiled once more; nothing a test does reaches another. Then all of it runs a second time
//! with marks in the policies, which say which lines ran: marks would move the columns of messages, so the first run
//! says what is wrong and the second only what was reached.

mod coverage;
mod expect;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use starlark::environment::{FrozenModule, Globals, Module};
use starlark::eval::Evaluator;

pub use coverage::Coverage;
pub(crate) use coverage::Marker;

use crate::builtins::{Registry, names_of_policies};
use crate::bundle::place_of;
use crate::error::PolicyError;
use crate::limits::Limits;
use crate::load::{self, ENDING, Manner, Printer};
use crate::signature::Takes;

/// How the names of tests begin.
const PREFIX: &str = "test_";

/// What test files find besides what policies find.
pub(crate) static TEST_NAMES: LazyLock<Globals> =
    LazyLock::new(|| expect::names_of_tests(names_of_policies()).build());

/// What policies find while their lines are counted.
pub(crate) static MARKED_NAMES: LazyLock<Globals> =
    LazyLock::new(|| coverage::marks(names_of_policies()).build());

/// How a test ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The file it stands in.
    pub file: String,
    /// Its name; none where the file itself does not run.
    pub name: Option<String>,
    /// Where it begins, counted from one.
    pub line: usize,
    /// What is wrong, if anything.
    pub error: Option<PolicyError>,
    /// How long it took.
    pub took: Duration,
}

/// What came of the tests of a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tested {
    /// Each test, in the order of files and lines.
    pub outcomes: Vec<Outcome>,
    /// The policies that were loaded, and which of their lines ran.
    pub coverage: BTreeMap<String, Coverage>,
}

/// Whether a file of this name tests policies.
pub fn is_test(name: &str) -> bool {
    name.strip_suffix(ENDING).is_some_and(|stem| stem.ends_with("_test."))
}

/// Run the tests of these files of a bundle.
pub fn test(files: &BTreeMap<String, String>, tests: &[&str], limits: &Limits) -> Tested {
    let run = |manner: Manner, limits: &Limits| -> Vec<Outcome> {
        tests.iter().flat_map(|file| test_file(files, file, limits, manner)).collect()
    };
    let outcomes = run(Manner::Tests, limits);
    let marker = Marker::default();
    run(Manner::Marked(&marker), &roomy(limits));
    Tested { outcomes, coverage: marker.into_coverage() }
}

/// What is wrong with the tests of a bundle, if anything: each failed test in a line.
pub fn failing(files: &BTreeMap<String, String>, limits: &Limits) -> Vec<String> {
    let tests = files.keys().filter(|file| is_test(file));
    let outcomes = tests.flat_map(|file| test_file(files, file, limits, Manner::Tests));
    let told = |outcome: Outcome| {
        let error = outcome.error?;
        let name = outcome.name.map_or(String::new(), |name| format!(" {name}"));
        Some(format!("{}:{}{name}: {error}", outcome.file, outcome.line))
    };
    outcomes.filter_map(told).collect()
}

/// Marks are steps and letters too.
fn roomy(limits: &Limits) -> Limits {
    Limits {
        steps: limits.steps.saturating_mul(4),
        time: limits.time * 4,
        load_time: limits.load_time * 4,
        source_bytes: limits.source_bytes.saturating_mul(16),
        nesting: limits.nesting.saturating_mul(4),
        ..*limits
    }
}

/// The tests of one file. That it does not run is an outcome as well, and so is that there is nothing to run.
fn test_file(files: &BTreeMap<String, String>, file: &str, limits: &Limits, manner: Manner) -> Vec<Outcome> {
    let began = Instant::now();
    let broken = |error| {
        vec![Outcome {
            file: file.to_string(),
            name: None,
            line: 1,
            error: Some(error),
            took: began.elapsed(),
        }]
    };
    let (module, registry) = match load::load_test(files, file, limits, manner) {
        Ok(loaded) => loaded,
        Err(error) => return broken(error),
    };
    let tests = tests_of(&module, file, files.get(file).map(String::as_str).unwrap_or_default());
    if tests.is_empty() {
        let what = format!("there is no test in it: a function `{PREFIX}…`");
        return broken(PolicyError::Somewhere { file: file.to_string(), what });
    }
    let one = |(line, name): (usize, String)| {
        let began = Instant::now();
        // What a test registers is gone after it.
        let registry = registry.fresh();
        let ended = run(&module, (file, &name), &registry, limits, manner);
        if let Manner::Marked(marker) = manner {
            marker.ran(&registry.take_ran());
        }
        Outcome { file: file.to_string(), name: Some(name), line, error: ended.err(), took: began.elapsed() }
    };
    tests.into_iter().map(one).collect()
}

/// The tests that a file tells, with their lines, in that order.
fn tests_of(module: &FrozenModule, file: &str, source: &str) -> Vec<(usize, String)> {
    let names = module.names().filter(|name| name.as_str().starts_with(PREFIX));
    let line = |name: &str| place_of(file, source, name).map_or(1, |span| span.resolve().span.begin.line + 1);
    let mut tests: Vec<(usize, String)> =
        names.map(|name| (line(name.as_str()), name.as_str().to_string())).collect();
    tests.sort();
    tests
}

/// Run one test in an interpreter of its own.
fn run(
    module: &FrozenModule,
    (file, name): (&str, &str),
    registry: &Registry,
    limits: &Limits,
    manner: Manner,
) -> Result<(), PolicyError> {
    let somewhere = |what: String| PolicyError::Somewhere { file: file.to_string(), what };
    let owned = module.get(name).map_err(|error| somewhere(error.to_string()))?;
    if !Takes::of(owned.value()).is_some_and(|takes| takes.fits(0)) {
        return Err(somewhere(format!("`{name}` must be a function without parameters")));
    }
    let call = || {
        Module::with_temp_heap(|scratch| {
            let printer = Printer::in_manner(manner, limits);
            let mut eval = Evaluator::new(&scratch);
            let unbound = |error| PolicyError::of(&starlark::Error::new_other(error), file);
            let watch = limits.bind_file(&mut eval).map_err(unbound)?;
            eval.set_print_handler(&printer);
            eval.extra = Some(registry);
            let function = scratch.heap().access_owned_frozen_value(&owned);
            let ended = eval.eval_function(function, &[], &[]);
            ended.map(drop).map_err(|error| watch.told(PolicyError::of(&error, file)))
        })
    };
    // The interpreter panics where a value grows beyond what it can count; nothing of ours is left half done by that.
    let ended = catch_unwind(AssertUnwindSafe(call));
    ended.unwrap_or_else(|_| Err(somewhere("a value grows beyond all bounds".to_string())))?;
    match registry.expectations() {
        0 => Err(somewhere(format!("`{name}` expects nothing, so it cannot fail"))),
        _ => Ok(()),
    }
}

//! The policies of `policies/cookbook`: they pass their own tests, and all of them compile into one bundle.

#![allow(clippy::unwrap_used)] // A panic fails the test, as intended.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use muster_core::objects::policy::Hook;
use muster_policy::{Limits, PolicyEngine, compile, is_policy_file, is_test_file, run_tests};

/// The least line coverage of a recipe by its tests.
const COVERAGE_PERCENT_MIN: usize = 90;

fn cookbook() -> BTreeMap<String, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies/cookbook");
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let entry = |path: std::path::PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap().to_string();
        (name, std::fs::read_to_string(path).unwrap())
    };
    files.map(entry).collect()
}

fn limits() -> Limits {
    // Generous: a busy machine must not fail the test.
    Limits { call_time: Duration::from_secs(10), load_time: Duration::from_secs(60), ..Limits::default() }
}

#[test]
fn every_recipe_passes_its_tests_with_enough_line_coverage() {
    let files = cookbook();
    let tests: Vec<&str> = files.keys().map(String::as_str).filter(|name| is_test_file(name)).collect();
    let report = run_tests(&files, &tests, &limits());
    for outcome in &report.outcomes {
        assert_eq!(outcome.error, None, "{} {:?}", outcome.file, outcome.name);
    }
    let recipes: Vec<&String> = files.keys().filter(|name| is_policy_file(name)).collect();
    assert_eq!((recipes.len(), tests.len()), (11, 11));
    for recipe in recipes {
        let coverage = &report.coverage[recipe];
        assert!(
            coverage.percent() >= COVERAGE_PERCENT_MIN,
            "{recipe}: lines {:?} did not run",
            coverage.missed_lines()
        );
        assert!(files[recipe].starts_with("# "), "{recipe} does not begin with a comment");
    }
}

#[test]
fn all_recipes_compile_into_one_bundle() {
    let (bundle, program) = compile(cookbook(), limits()).unwrap();
    assert_eq!(bundle.hooks.into_iter().collect::<Vec<_>>(), Hook::ALL);
    assert!(bundle.rules.pools.contains_key("cool"));
    assert_eq!(program.files_defining("admit").len(), 3);
}

#[test]
fn load_all_ignores_subfolders() {
    let mut engine = PolicyEngine::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies"));
    let (count, errors) = engine.load_all_policies();
    assert_eq!((count, errors), (3, Vec::new()));
    assert!(engine.loaded().iter().all(|path| !path.to_string_lossy().contains("cookbook")));
}

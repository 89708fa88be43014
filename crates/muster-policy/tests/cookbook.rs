//! The policies that come with the product: their own tests, and that they can stand in one bundle.

#![allow(clippy::unwrap_used)] // A test that panics has failed, which is what is meant.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use muster_core::policy::Hook;
use muster_policy::{Limits, PolicyEngine, compile, is_policy, is_test, test};

/// The least that tests of a recipe reach.
const PERCENT_MIN: usize = 90;

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
    // Time is no measure on a machine that does other things as well.
    Limits { time: Duration::from_secs(10), load_time: Duration::from_secs(60), ..Limits::default() }
}

#[test]
fn every_recipe_passes_its_tests_and_they_reach_its_lines() {
    let files = cookbook();
    let tests: Vec<&str> = files.keys().map(String::as_str).filter(|name| is_test(name)).collect();
    let tested = test(&files, &tests, &limits());
    for outcome in &tested.outcomes {
        assert_eq!(outcome.error, None, "{} {:?}", outcome.file, outcome.name);
    }
    let recipes: Vec<&String> = files.keys().filter(|name| is_policy(name)).collect();
    assert_eq!((recipes.len(), tests.len()), (11, 11));
    for recipe in recipes {
        let coverage = &tested.coverage[recipe];
        assert!(coverage.percent() >= PERCENT_MIN, "{recipe}: lines {:?} did not run", coverage.missed());
        assert!(files[recipe].starts_with("# "), "{recipe} does not say what it is for");
    }
}

#[test]
fn all_recipes_stand_in_one_bundle() {
    let (bundle, program) = compile(cookbook(), limits()).unwrap();
    assert_eq!(bundle.hooks.into_iter().collect::<Vec<_>>(), Hook::ALL);
    assert!(bundle.rules.pools.contains_key("cool"));
    assert_eq!(program.files_with("admit").len(), 3);
}

#[test]
fn only_the_top_folder_is_loaded_as_a_whole() {
    let mut engine = PolicyEngine::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies"));
    let (count, errors) = engine.load_all_policies();
    assert_eq!((count, errors), (3, Vec::new()));
    assert!(engine.loaded().iter().all(|path| !path.to_string_lossy().contains("cookbook")));
}

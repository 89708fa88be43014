//! The programs of this folder with their expected results.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The folder of the programs.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance")
}

/// A program with its expected results.
pub struct Case {
    /// The file of the corpus, and the title of the program there.
    pub title: String,
    /// Sources by name. `main.gsky` sets `result`.
    pub files: BTreeMap<String, String>,
    /// The expected result of our engine; a second one if starlark-go differs.
    pub outcomes: Vec<String>,
}

/// Every program of every file.
pub fn cases() -> Vec<Case> {
    let entries = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|e| e == "txt")).collect();
    paths.sort();
    paths.iter().flat_map(|path| cases_of(path)).collect()
}

fn cases_of(path: &Path) -> Vec<Case> {
    let text = format!("\n{}", std::fs::read_to_string(path).unwrap());
    let file = path.file_name().unwrap().to_string_lossy().into_owned();
    text.split("\n== ").skip(1).map(|block| case_of(&file, block)).collect()
}

fn case_of(file: &str, block: &str) -> Case {
    let (title, body) = block.split_once('\n').unwrap();
    let body = format!("{body}\n");
    let mut parts = body.split("\n--\n");
    let files = files_of(parts.next().unwrap());
    let outcomes = parts.map(|outcome| outcome.trim_matches('\n').to_string()).collect();
    Case { title: format!("{file}: {title}"), files, outcomes }
}

fn files_of(source: &str) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    let mut name = "main.gsky".to_string();
    for line in source.lines() {
        match line.strip_prefix("file ") {
            Some(other) => name = other.to_string(),
            None if line == "main" => name = "main.gsky".to_string(),
            None => *files.entry(name.clone()).or_insert_with(String::new) += &format!("{line}\n"),
        }
    }
    files
}

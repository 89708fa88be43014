//! Runs the transcripts of `tests/transcripts`, each against a fresh server.

use std::path::{Path, PathBuf};

use super::console::Console;
use super::expect;
use super::markdown::{self, Step};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts")
}

macro_rules! transcripts {
    ($($name:ident),* $(,)?) => {
        $(#[test] fn $name() { run(stringify!($name)); })*
        const NAMES: &[&str] = &[$(stringify!($name)),*];
    };
}

transcripts! {
    access,
    first_minutes,
    waiting,
    cancel,
    hold,
    requeue,
    arrays,
    tenants,
    tenant_policies,
    infeasible,
    nodes,
    preemption,
    gangs,
    elastic,
    windows,
    receipts,
    output,
    policy,
    formats,
    errors,
    fairness,
    job_file,
    real,
    replay,
    sharing,
    specification,
    star,
    tokens,
    topology,
    times,
    tls,
    whatif,
}

#[test]
fn every_transcript_is_run() {
    let names = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    for path in names.filter(|path| path.extension().is_some_and(|extension| extension == "md")) {
        let name = path.file_stem().unwrap().to_str().unwrap();
        assert!(NAMES.contains(&name), "`{name}` is not in the list of transcripts");
    }
}

fn run(name: &str) {
    let file = folder().join(format!("{name}.md"));
    let text = std::fs::read_to_string(&file).unwrap();
    let mut console = Console::open(name);
    match markdown::setting(&text, "server").unwrap_or("muster dev") {
        "none" => {}
        words => console.serve(&words.split_whitespace().collect::<Vec<_>>()),
    }
    let mut seen = Vec::new();
    for step in markdown::steps(&text) {
        let answer = console.run_command(&step.command);
        seen.push((step, answer));
    }
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&file, updated_transcript(&text, &seen)).unwrap();
        return;
    }
    let mismatches: Vec<String> = seen.iter().filter_map(|(step, answer)| mismatch_text(step, answer)).collect();
    assert!(mismatches.is_empty(), "{}\n{}", file.display(), mismatches.join("\n"));
}

fn matches_transcript(step: &Step, (output, code): &(String, i32)) -> bool {
    *code == step.code && expect::matches(step.output.as_deref().unwrap_or_default(), output)
}

fn mismatch_text(step: &Step, answer: &(String, i32)) -> Option<String> {
    if matches_transcript(step, answer) {
        return None;
    }
    let expected = step.output.as_deref().unwrap_or_default();
    Some(format!(
        "line {}: $ {}\n--- expected (exit code {})\n{expected}--- seen (exit code {})\n{}",
        step.line + 1,
        step.command,
        step.code,
        answer.1,
        answer.0
    ))
}

/// The text with the actual outputs. An expected output that matches stays, and so does each expected line that matches a line
/// of the new output: both keep their wildcards.
fn updated_transcript(text: &str, seen: &[(Step, (String, i32))]) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
    for (step, answer) in seen.iter().rev().filter(|(step, answer)| !matches_transcript(step, answer)) {
        let command_lines = step.command.lines().count();
        let mut new = updated_output(step.output.as_deref().unwrap_or_default(), &answer.0);
        if answer.1 != 0 {
            new.push(format!("? {}", answer.1));
        }
        lines.splice(step.line + command_lines..step.end, new);
    }
    lines.join("\n") + "\n"
}

fn updated_output(expected: &str, actual: &str) -> Vec<String> {
    let mut expected: Vec<&str> = expected.lines().filter(|line| *line != "...").collect();
    let updated = actual.lines().map(|line| match expected.iter().position(|old| expect::matches(old, line)) {
        Some(kept) => expected.drain(..=kept).next_back().unwrap_or_default().to_string(),
        None => expect::with_wildcards(line),
    });
    updated.collect()
}

#[test]
fn an_updated_output_keeps_the_wildcards_of_lines_that_still_match() {
    let expected = "a [..] c\nold words\nran [..]\n";
    let actual = "a b c\nnew words\nran 3 miles\n";
    assert_eq!(updated_output(expected, actual), ["a [..] c", "new words", "ran [..]"]);
}

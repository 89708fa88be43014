//! `muster policy check`: compile policies and list what they register and which hooks they define.

use std::path::PathBuf;

use muster_policy::{Limits, PolicyError, check_file, compile, is_policy_file};
use serde::Serialize;

use crate::commands::{CommandResult, ExitStatus};
use crate::error::CliError;
use crate::options::Options;
use crate::output::{self, Cell, Column, Format, ShowArgs};
use crate::policy_dirs::{self, PolicyDir};
use crate::units;

/// `muster policy check`.
#[derive(Debug, clap::Args)]
#[command(before_help = "Examples:\n  muster policy check\n  muster policy check policies/cookbook mine.gsky")]
pub struct Args {
    /// Folders or files [default: policies]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    show: ShowArgs,
}

#[derive(Debug, Default, Serialize)]
struct CheckReport {
    files: Vec<CheckedFile>,
    bundles: Vec<CheckedBundle>,
}

/// A file with what it registers and defines.
#[derive(Debug, Serialize)]
struct CheckedFile {
    file: String,
    kind: &'static str,
    ok: bool,
    pools: Vec<String>,
    rulesets: Vec<String>,
    hooks: Vec<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// A folder whose files compile together.
#[derive(Debug, Serialize)]
struct CheckedBundle {
    folder: String,
    hash: String,
    files: usize,
}

const COLUMNS: [Column<CheckedFile>; 5] = [
    Column::new("FILE", |file| file.file.as_str().into()),
    Column::new("KIND", |file| if file.ok { file.kind } else { "invalid" }.into()),
    Column::new("POOLS", |file| joined_cell(&file.pools)),
    Column::new("RULESETS", |file| joined_cell(&file.rulesets)),
    Column::new("HOOKS", |file| joined_cell(&file.hooks)),
];

/// Checks every file; fails if one is invalid.
pub fn run(args: &Args, options: &Options) -> CommandResult {
    let mut checked = CheckReport::default();
    let mut errors = Vec::new();
    for folder in policy_dirs::read_policy_dirs(&args.paths)? {
        check_folder(&folder, &mut checked, &mut errors);
    }
    let mut text = output::table(&COLUMNS, &checked.files, options.color);
    for bundle in &checked.bundles {
        let files = units::count_text(bundle.files as u64, "file");
        text += &format!("bundle {}  {}  {files}\n", &bundle.hash[..12], bundle.folder);
    }
    output::print_text(&args.show, &text, "check", &checked)?;
    if matches!(args.show.output, Format::Table | Format::Wide) {
        errors.iter().for_each(|error| output::print_stderr(error));
    }
    check_outcome(&checked, &errors)
}

fn check_outcome(checked: &CheckReport, errors: &[String]) -> CommandResult {
    let invalid = checked.files.iter().filter(|file| !file.ok).count();
    let files = units::count_text(checked.files.len() as u64, "file");
    match (invalid, errors.is_empty()) {
        (_, true) => Ok(ExitStatus::SUCCESS),
        (0, false) => Err(CliError::failed("the files do not compile together")),
        (1, false) => Err(CliError::failed(format!("1 of {files} is invalid"))),
        (invalid, false) => Err(CliError::failed(format!("{invalid} of {files} are invalid"))),
    }
}

fn check_folder(folder: &PolicyDir, checked: &mut CheckReport, errors: &mut Vec<String>) {
    let before = errors.len();
    for name in &folder.selected {
        let found = check_file(&folder.files, name, &Limits::default());
        // An error in a file that several files load is reported once.
        let error = found.as_ref().err().map(|error| folder.error_with_source(error));
        errors.extend(error.filter(|error| !errors.contains(error)));
        checked.files.push(checked_file(folder, name, found));
    }
    // Files that are valid alone are also compiled together, as a server would.
    if errors.len() == before && folder.selected.len() == folder.files.len() {
        match compile(folder.files.clone(), Limits::default()) {
            Ok((bundle, _)) => checked.bundles.push(CheckedBundle {
                folder: folder.path.display().to_string(),
                hash: bundle.hash,
                files: bundle.files.len(),
            }),
            Err(error) => errors.push(folder.error_with_source(&error)),
        }
    }
}

fn checked_file(folder: &PolicyDir, name: &str, found: Result<muster_policy::FileSummary, PolicyError>) -> CheckedFile {
    let (ok, error) = (found.is_ok(), found.as_ref().err().map(ToString::to_string));
    let summary = found.unwrap_or_default();
    CheckedFile {
        file: folder.display_path(name),
        kind: if is_policy_file(name) { "policy" } else { "test" },
        ok,
        pools: summary.rules.pools.keys().cloned().collect(),
        rulesets: summary.rules.schedules.keys().cloned().collect(),
        hooks: summary.hooks.iter().map(|hook| hook.as_str()).collect(),
        error,
    }
}

fn joined_cell<T: AsRef<str>>(words: &[T]) -> Cell {
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    Cell::or_dash(Some(words.join(", ")).filter(|words| !words.is_empty()))
}

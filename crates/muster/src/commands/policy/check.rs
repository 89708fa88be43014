//! `muster policy check`: compile policies and say what they do.

use std::path::PathBuf;

use muster_policy::{Limits, PolicyError, check, compile, is_policy};
use serde::Serialize;

use super::folders::{self, Folder};
use crate::commands::{Code, Ending};
use crate::error::CliError;
use crate::options::Options;
use crate::output::{self, Cell, Column, Format, ShowArgs};
use crate::units;

/// `muster policy check`.
#[derive(Debug, clap::Args)]
#[command(
    before_help = "Examples:\n  muster policy check\n  muster policy check policies/cookbook mine.gsky"
)]
pub struct Args {
    /// Folders or files; `policies` where none is named
    paths: Vec<PathBuf>,
    #[command(flatten)]
    show: ShowArgs,
}

/// All that was looked at.
#[derive(Debug, Default, Serialize)]
struct Checked {
    files: Vec<CheckedFile>,
    bundles: Vec<CheckedBundle>,
}

/// A file, and what it does.
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

/// A folder whose files stand together.
#[derive(Debug, Serialize)]
struct CheckedBundle {
    folder: String,
    hash: String,
    files: usize,
}

const COLUMNS: [Column<CheckedFile>; 5] = [
    Column::new("FILE", |file| file.file.as_str().into()),
    Column::new("IS", |file| if file.ok { file.kind } else { "wrong" }.into()),
    Column::new("POOLS", |file| listed(&file.pools)),
    Column::new("RULESETS", |file| listed(&file.rulesets)),
    Column::new("ANSWERS", |file| listed(&file.hooks)),
];

/// Look at every file, and fail if one is wrong.
pub fn run(args: &Args, options: &Options) -> Ending {
    let mut checked = Checked::default();
    let mut errors = Vec::new();
    for folder in folders::of(&args.paths)? {
        look(&folder, &mut checked, &mut errors);
    }
    let mut text = output::table(&COLUMNS, &checked.files, options.color);
    for bundle in &checked.bundles {
        let files = units::count(bundle.files as u64, "file");
        text += &format!("bundle {}  {}  {files}\n", &bundle.hash[..12], bundle.folder);
    }
    output::say(&args.show, &text, "check", &checked)?;
    if matches!(args.show.output, Format::Table | Format::Wide) {
        errors.iter().for_each(|error| output::talk(error));
    }
    verdict(&checked, &errors)
}

fn verdict(checked: &Checked, errors: &[String]) -> Ending {
    let wrong = checked.files.iter().filter(|file| !file.ok).count();
    let files = units::count(checked.files.len() as u64, "file");
    match (wrong, errors.is_empty()) {
        (_, true) => Ok(Code::DONE),
        (0, false) => Err(CliError::failed("the files do not compile together")),
        (1, false) => Err(CliError::failed(format!("1 of {files} is wrong"))),
        (wrong, false) => Err(CliError::failed(format!("{wrong} of {files} are wrong"))),
    }
}

fn look(folder: &Folder, checked: &mut Checked, errors: &mut Vec<String>) {
    let before = errors.len();
    for name in &folder.chosen {
        let found = check(&folder.files, name, &Limits::default());
        // What several files load is wrong once.
        let error = found.as_ref().err().map(|error| folder.told(error));
        errors.extend(error.filter(|error| !errors.contains(error)));
        checked.files.push(file(folder, name, found));
    }
    // What is wrong alone is not better together; what is right alone is compiled as a server would.
    if errors.len() == before && folder.chosen.len() == folder.files.len() {
        match compile(folder.files.clone(), Limits::default()) {
            Ok((bundle, _)) => checked.bundles.push(CheckedBundle {
                folder: folder.path.display().to_string(),
                hash: bundle.hash,
                files: bundle.files.len(),
            }),
            Err(error) => errors.push(folder.told(&error)),
        }
    }
}

fn file(folder: &Folder, name: &str, found: Result<muster_policy::FileFacts, PolicyError>) -> CheckedFile {
    let (ok, error) = (found.is_ok(), found.as_ref().err().map(ToString::to_string));
    let facts = found.unwrap_or_default();
    CheckedFile {
        file: folder.shown(name),
        kind: if is_policy(name) { "policy" } else { "test" },
        ok,
        pools: facts.rules.pools.keys().cloned().collect(),
        rulesets: facts.rules.schedules.keys().cloned().collect(),
        hooks: facts.hooks.iter().map(|hook| hook.word()).collect(),
        error,
    }
}

fn listed<T: AsRef<str>>(words: &[T]) -> Cell {
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    Cell::or_dash(Some(words.join(", ")).filter(|words| !words.is_empty()))
}

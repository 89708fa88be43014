//! Policies in files: each folder is a bundle, because a policy may load what lies beside it and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use muster_policy::{ENDING, PolicyError};

use crate::error::CliError;

/// Where policies lie if nobody says it.
pub const USUAL: &str = "policies";

/// A folder with policies.
#[derive(Debug, Default)]
pub struct Folder {
    /// Where.
    pub path: PathBuf,
    /// Each `*.gsky` of it.
    pub files: BTreeMap<String, String>,
    /// Those that were asked for.
    pub chosen: BTreeSet<String>,
}

impl Folder {
    fn read(path: &Path) -> Result<Folder, CliError> {
        let mut folder = Folder { path: path.to_path_buf(), ..Folder::default() };
        for entry in entries(path)?.into_iter().filter(|entry| entry.is_file() && is_ours(entry)) {
            let text = std::fs::read_to_string(&entry);
            let text = text.map_err(|error| cannot_read(&entry, &error))?;
            folder.files.insert(name_of(&entry), text);
        }
        Ok(folder)
    }

    /// How a file of it is called in messages.
    pub fn shown(&self, name: &str) -> String {
        match self.path == Path::new(".") {
            true => name.to_string(),
            false => self.path.join(name).display().to_string(),
        }
    }

    /// What is wrong with a file, with the line and a mark under the place.
    pub fn told(&self, error: &PolicyError) -> String {
        match error {
            PolicyError::Wrong { file, line, column, what } => {
                let place = format!("{}:{line}:{column}: {what}", self.shown(file));
                let source = self.files.get(file).and_then(|text| text.lines().nth(line.saturating_sub(1)));
                let marked = source.map(|source| {
                    let before: String = source.chars().take(column.saturating_sub(1)).map(blank).collect();
                    format!("\n    | {source}\n    | {before}^")
                });
                place + &marked.unwrap_or_default()
            }
            PolicyError::Somewhere { file, what } => format!("{}: {what}", self.shown(file)),
            PolicyError::Unreadable { .. } | PolicyError::Ended { .. } => error.to_string(),
        }
    }
}

/// Each `*.gsky` of one folder.
fn files_of(folder: &Path) -> Result<BTreeMap<String, String>, CliError> {
    Folder::read(folder).map(|folder| folder.files)
}

/// Each `*.gsky` of one folder, of which there must be some.
pub fn policies_of(folder: &Path) -> Result<BTreeMap<String, String>, CliError> {
    let files = files_of(folder)?;
    match files.is_empty() {
        true => Err(CliError::failed(format!("there is no policy in {}", folder.display()))),
        false => Ok(files),
    }
}

/// What keeps the mark under its place.
fn blank(letter: char) -> char {
    if letter == '\t' { '\t' } else { ' ' }
}

/// The folders of these paths. A folder means all that is in it and below, a file means itself.
pub fn of(paths: &[PathBuf]) -> Result<Vec<Folder>, CliError> {
    let usual = [PathBuf::from(USUAL)];
    let mut folders = BTreeMap::new();
    for path in if paths.is_empty() { &usual } else { paths } {
        if path.is_dir() {
            take_folder(path, &mut folders)?;
        } else {
            take_file(path, &mut folders)?;
        }
    }
    if folders.is_empty() {
        let places: Vec<String> = paths.iter().map(|path| format!("`{}`", path.display())).collect();
        let places = if places.is_empty() { format!("`{USUAL}`") } else { places.join(", ") };
        return Err(CliError::failed(format!("there is no policy (`*.{ENDING}`) in {places}")));
    }
    Ok(folders.into_values().collect())
}

fn take_folder(path: &Path, folders: &mut BTreeMap<PathBuf, Folder>) -> Result<(), CliError> {
    let mut folder = Folder::read(path)?;
    if !folder.files.is_empty() {
        folder.chosen = folder.files.keys().cloned().collect();
        folders.insert(path.to_path_buf(), folder);
    }
    // A link could lead back here.
    for below in entries(path)?.into_iter().filter(|entry| entry.is_dir() && !entry.is_symlink()) {
        take_folder(&below, folders)?;
    }
    Ok(())
}

fn take_file(path: &Path, folders: &mut BTreeMap<PathBuf, Folder>) -> Result<(), CliError> {
    let (parent, name) = (folder_of(path), name_of(path));
    if !path.is_file() {
        return Err(CliError::failed(format!("there is no file or folder `{}`", path.display())));
    }
    if !is_ours(path) {
        return Err(CliError::usage(format!("`{}` is no policy: they end in `.{ENDING}`", path.display())));
    }
    if !folders.contains_key(&parent) {
        folders.insert(parent.clone(), Folder::read(&parent)?);
    }
    folders.entry(parent).or_default().chosen.insert(name);
    Ok(())
}

/// The folder that a file lies in.
fn folder_of(path: &Path) -> PathBuf {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new(".")).to_path_buf()
}

fn entries(path: &Path) -> Result<Vec<PathBuf>, CliError> {
    let read = std::fs::read_dir(path).map_err(|error| cannot_read(path, &error))?;
    let mut entries: Vec<PathBuf> = read.flatten().map(|entry| entry.path()).collect();
    entries.sort();
    Ok(entries)
}

fn is_ours(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == ENDING)
}

fn name_of(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn cannot_read(path: &Path, error: &std::io::Error) -> CliError {
    CliError::failed(format!("cannot read `{}`: {error}", path.display()))
}

//! Reading policies from folders: each folder is a bundle, because a policy may load only files of its own folder.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use muster_policy::{POLICY_EXTENSION, PolicyError};

use crate::error::CliError;

/// The folder that is read if the user names none.
pub const DEFAULT_POLICY_DIR: &str = "policies";

#[derive(Debug, Default)]
pub struct PolicyDir {
    pub path: PathBuf,
    /// The text of each `*.gsky` file, by name.
    pub files: BTreeMap<String, String>,
    /// Names of the files that the user selected.
    pub selected: BTreeSet<String>,
}

impl PolicyDir {
    fn read(path: &Path) -> Result<PolicyDir, CliError> {
        let mut folder = PolicyDir { path: path.to_path_buf(), ..PolicyDir::default() };
        for entry in dir_entries(path)?.into_iter().filter(|entry| entry.is_file() && has_policy_extension(entry)) {
            let text = std::fs::read_to_string(&entry);
            let text = text.map_err(|error| cannot_read(&entry, &error))?;
            folder.files.insert(file_name(&entry), text);
        }
        Ok(folder)
    }

    /// The path of a file of the folder, for messages.
    pub fn display_path(&self, name: &str) -> String {
        match self.path == Path::new(".") {
            true => name.to_string(),
            false => self.path.join(name).display().to_string(),
        }
    }

    /// The error with its source line and a mark under the column.
    pub fn error_with_source(&self, error: &PolicyError) -> String {
        match error {
            PolicyError::InvalidAt { file, line, column, message } => {
                let located = format!("{}:{line}:{column}: {message}", self.display_path(file));
                let source = self.files.get(file).and_then(|text| text.lines().nth(line.saturating_sub(1)));
                let marked = source.map(|source| {
                    let before: String = source.chars().take(column.saturating_sub(1)).map(padding_for).collect();
                    format!("\n    | {source}\n    | {before}^")
                });
                located + &marked.unwrap_or_default()
            }
            PolicyError::Invalid { file, message } => format!("{}: {message}", self.display_path(file)),
            PolicyError::Unreadable { .. } | PolicyError::WorkerFailed { .. } => error.to_string(),
        }
    }
}

fn read_files(folder: &Path) -> Result<BTreeMap<String, String>, CliError> {
    PolicyDir::read(folder).map(|folder| folder.files)
}

/// The `*.gsky` files of one folder; an error if it has none.
pub fn read_policies(folder: &Path) -> Result<BTreeMap<String, String>, CliError> {
    let files = read_files(folder)?;
    match files.is_empty() {
        true => Err(CliError::failed(format!("there is no policy in {}", folder.display()))),
        false => Ok(files),
    }
}

/// Keeps tabs, so that the mark stays under its column.
fn padding_for(character: char) -> char {
    if character == '\t' { '\t' } else { ' ' }
}

/// The folders of these paths. A folder selects all files in it and below it; a file selects itself.
pub fn read_policy_dirs(paths: &[PathBuf]) -> Result<Vec<PolicyDir>, CliError> {
    let default = [PathBuf::from(DEFAULT_POLICY_DIR)];
    let mut folders = BTreeMap::new();
    for path in if paths.is_empty() { &default } else { paths } {
        if path.is_dir() {
            collect_dir(path, &mut folders)?;
        } else {
            collect_file(path, &mut folders)?;
        }
    }
    if folders.is_empty() {
        let places: Vec<String> = paths.iter().map(|path| format!("`{}`", path.display())).collect();
        let places = if places.is_empty() { format!("`{DEFAULT_POLICY_DIR}`") } else { places.join(", ") };
        return Err(CliError::failed(format!("there is no policy (`*.{POLICY_EXTENSION}`) in {places}")));
    }
    Ok(folders.into_values().collect())
}

fn collect_dir(path: &Path, folders: &mut BTreeMap<PathBuf, PolicyDir>) -> Result<(), CliError> {
    let mut folder = PolicyDir::read(path)?;
    if !folder.files.is_empty() {
        folder.selected = folder.files.keys().cloned().collect();
        folders.insert(path.to_path_buf(), folder);
    }
    // Symbolic links are not followed: they could form a cycle.
    for below in dir_entries(path)?.into_iter().filter(|entry| entry.is_dir() && !entry.is_symlink()) {
        collect_dir(&below, folders)?;
    }
    Ok(())
}

fn collect_file(path: &Path, folders: &mut BTreeMap<PathBuf, PolicyDir>) -> Result<(), CliError> {
    let (parent, name) = (parent_dir(path), file_name(path));
    if !path.is_file() {
        return Err(CliError::failed(format!("there is no file or folder `{}`", path.display())));
    }
    if !has_policy_extension(path) {
        return Err(CliError::usage(format!("`{}` is no policy: they end in `.{POLICY_EXTENSION}`", path.display())));
    }
    if !folders.contains_key(&parent) {
        folders.insert(parent.clone(), PolicyDir::read(&parent)?);
    }
    folders.entry(parent).or_default().selected.insert(name);
    Ok(())
}

fn parent_dir(path: &Path) -> PathBuf {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new(".")).to_path_buf()
}

fn dir_entries(path: &Path) -> Result<Vec<PathBuf>, CliError> {
    let read = std::fs::read_dir(path).map_err(|error| cannot_read(path, &error))?;
    let mut entries: Vec<PathBuf> = read.flatten().map(|entry| entry.path()).collect();
    entries.sort();
    Ok(entries)
}

fn has_policy_extension(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == POLICY_EXTENSION)
}

fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn cannot_read(path: &Path, error: &std::io::Error) -> CliError {
    CliError::failed(format!("cannot read `{}`: {error}", path.display()))
}

//! Policy files: their names, and where they are read from.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use crate::error::PolicyError;

/// The file extension of policies.
pub const POLICY_EXTENSION: &str = "gsky";

/// True if a file of this name is a policy and not a test of one.
pub fn is_policy_file(name: &str) -> bool {
    name.strip_suffix(POLICY_EXTENSION)
        .and_then(|stem| stem.strip_suffix('.'))
        .is_some_and(|stem| !stem.ends_with("_test"))
}

/// True if a file of this name tests policies.
pub fn is_test_file(name: &str) -> bool {
    name.strip_suffix(POLICY_EXTENSION).is_some_and(|stem| stem.ends_with("_test."))
}

/// Check that `load` may name this file: it must be in the folder of the loading file.
pub(crate) fn check_load_path(id: &str) -> Result<(), String> {
    let mut parts = Path::new(id).components();
    let is_bare_name = matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None));
    let is_policy = id.ends_with(&format!(".{POLICY_EXTENSION}")) && !id.contains(['\0', '\\', ':', '@']);
    match is_bare_name && is_policy {
        true => Ok(()),
        false => Err(format!(
            "`{id}` cannot be loaded: load accepts only `NAME.{POLICY_EXTENSION}` files of the same folder"
        )),
    }
}

/// Where the files of a bundle are read from.
pub(crate) enum FileSource<'a> {
    Folder(&'a Path),
    /// Contents by name.
    Bundle(&'a BTreeMap<String, String>),
}

impl FileSource<'_> {
    /// The name of a file in messages.
    pub fn display_name(&self, name: &str) -> String {
        match self {
            FileSource::Folder(folder) => folder.join(name).display().to_string(),
            FileSource::Bundle(_) => name.to_string(),
        }
    }

    pub fn contains(&self, name: &str) -> bool {
        match self {
            FileSource::Folder(folder) => is_inside_folder(folder, &folder.join(name)),
            FileSource::Bundle(files) => files.contains_key(name),
        }
    }

    pub fn read(&self, name: &str, bytes_max: usize) -> Result<String, PolicyError> {
        match self {
            FileSource::Folder(folder) => {
                let path = folder.join(name);
                let text = read_text_bounded(&path, bytes_max);
                text.map_err(|error| PolicyError::Unreadable { path, reason: error.to_string() })
            }
            FileSource::Bundle(files) => files.get(name).cloned().ok_or_else(|| PolicyError::Unreadable {
                path: PathBuf::from(name),
                reason: "it is not in the bundle".to_string(),
            }),
        }
    }
}

/// The text of a file of at most `bytes_max` bytes. A file that grows while it is read is cut one byte beyond the
/// limit, so that the check of the source rejects it.
fn read_text_bounded(path: &Path, bytes_max: usize) -> std::io::Result<String> {
    let file = std::fs::File::open(path)?;
    let bytes = file.metadata()?.len();
    if bytes > bytes_max as u64 {
        let message = format!("the file has {bytes} bytes; the limit is {bytes_max}");
        return Err(std::io::Error::other(message));
    }
    let mut text = String::new();
    file.take(bytes_max as u64 + 1).read_to_string(&mut text)?;
    Ok(text)
}

/// True if the path is a regular file of the folder after symbolic links are followed.
fn is_inside_folder(folder: &Path, path: &Path) -> bool {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    match (folder.canonicalize(), path.canonicalize()) {
        (Ok(folder), Ok(path)) => path.is_file() && path.starts_with(folder),
        _ => false,
    }
}

//! Private files, which only their owner may read: tokens and private keys.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::secret::Secret;

/// A token file is one short line.
const TOKEN_FILE_BYTES_MAX: u64 = 4_096;

/// An error with a private file.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("cannot read `{path}`: {source}")]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot write `{path}`: {source}")]
    Write { path: PathBuf, source: io::Error },
    /// Other accounts of this machine can read the file.
    #[error(
        "`{path}` can be read by others (mode {mode:04o}); run `chmod 600 {path}`, and revoke the token if it was ever exposed"
    )]
    Exposed { path: PathBuf, mode: u32 },
    #[error(
        "`{path}` can be read by others (mode {mode:04o}); run `chmod 600 {path}`; if it was ever exposed, remove all secrets and the file, and set new ones"
    )]
    ExposedKey { path: PathBuf, mode: u32 },
    #[error("`{path}` does not hold a token; it should be one line that begins with `mst_`")]
    NoToken { path: PathBuf },
}

/// Path of the file with the first administrator token.
pub fn admin_token_path(data_dir: &Path) -> PathBuf {
    data_dir.join("admin.token")
}

/// Read a token from a file, unless other accounts can read the file.
pub fn read_token_file(path: &Path) -> Result<Secret, FileError> {
    let unreadable = |source| FileError::Read { path: path.to_path_buf(), source };
    let file = File::open(path).map_err(unreadable)?;
    // The mode of the open file, so that the file cannot be replaced between the check and the read.
    let mode = file.metadata().map_err(unreadable)?.permissions().mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(FileError::Exposed { path: path.to_path_buf(), mode });
    }
    let mut text = String::new();
    file.take(TOKEN_FILE_BYTES_MAX).read_to_string(&mut text).map_err(unreadable)?;
    Secret::parse(&text).ok_or_else(|| FileError::NoToken { path: path.to_path_buf() })
}

/// Write a file that only its owner may read, atomically. A missing folder is created.
pub fn write_private(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let written = make_folder(folder).and_then(|()| write_atomically(path, bytes)).and_then(|()| sync_folder(folder));
    written.map_err(|source| FileError::Write { path: path.to_path_buf(), source })
}

fn make_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Write to a draft, sync and rename: the name appears only when the content is on disk. A draft left by a crash is
/// removed, because its permissions are not known.
fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let draft = path.with_extension("draft");
    match fs::remove_file(&draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&draft, path)
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    File::open(folder)?.sync_all()
}

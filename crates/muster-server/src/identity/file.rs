//! Files that only their owner may read: tokens and private keys.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::secret::Secret;

/// A token file is one line; whatever is longer is something else.
const TOKEN_FILE_BYTES_MAX: u64 = 4_096;

/// What can go wrong with such a file.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It could not be read.
    #[error("cannot read `{path}`: {source}")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It could not be written.
    #[error("cannot write `{path}`: {source}")]
    Write {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Others on this machine can read it.
    #[error(
        "`{path}` can be read by others (mode {mode:04o}); run `chmod 600 {path}`, and revoke the token if it was ever exposed"
    )]
    Exposed {
        /// Which.
        path: PathBuf,
        /// As it is.
        mode: u32,
    },
    /// It holds something else.
    #[error("`{path}` does not hold a token; it should be one line that begins with `mst_`")]
    NoToken {
        /// Which.
        path: PathBuf,
    },
}

/// Where the first administrator's token is written.
pub fn admin_token_path(data_dir: &Path) -> PathBuf {
    data_dir.join("admin.token")
}

/// Read a token from a file, unless others can read it too.
pub fn read_token_file(path: &Path) -> Result<Secret, FileError> {
    let unreadable = |source| FileError::Read { path: path.to_path_buf(), source };
    let file = File::open(path).map_err(unreadable)?;
    // Asked of the open file, so that it cannot be exchanged between the look and the reading.
    let mode = file.metadata().map_err(unreadable)?.permissions().mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(FileError::Exposed { path: path.to_path_buf(), mode });
    }
    let mut text = String::new();
    file.take(TOKEN_FILE_BYTES_MAX).read_to_string(&mut text).map_err(unreadable)?;
    Secret::read(&text).ok_or_else(|| FileError::NoToken { path: path.to_path_buf() })
}

/// Write a file that only its owner may read, whole or not at all. Its folder is made when it is missing.
pub fn write_private(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let written = make_folder(folder).and_then(|()| replace(path, bytes)).and_then(|()| sync(folder));
    written.map_err(|source| FileError::Write { path: path.to_path_buf(), source })
}

fn make_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// The name appears only when the content is on disk. A left-over draft of an earlier death is removed, because
/// its permissions are not known.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
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

fn sync(folder: &Path) -> io::Result<()> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    File::open(folder)?.sync_all()
}

//! Files and folders with access for their owner only. The journal contains commands and environments of jobs, so no
//! other account of the machine may read the database, its write-ahead log or the files beside it.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use tracing::warn;

const GROUP_AND_OTHERS_BITS: u32 = 0o077;
/// Set on folders that are shared on purpose, such as `/tmp`.
const STICKY_BIT: u32 = 0o1000;

/// Open a file for reading and writing; create it with mode 0600 if it does not exist.
pub fn open_or_create_file(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
    remove_access_of_others(path);
    Ok(file)
}

/// Create an empty file with mode 0600 if it does not exist. An existing file is not opened: closing it would release
/// the POSIX locks that SQLite holds on it in this process.
pub fn create_file_if_missing(path: &Path) -> io::Result<()> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    remove_access_of_others(path);
    Ok(())
}

/// Create a folder and its parents with mode 0700 if they do not exist.
pub fn create_folder_if_missing(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    remove_access_of_others(path);
    Ok(())
}

/// Remove the permissions of group and other accounts, with a warning. A missing path is ignored. A failure is only
/// logged, because some volumes do not allow changing modes.
pub fn remove_access_of_others(path: &Path) {
    let Ok(facts) = std::fs::symlink_metadata(path) else { return };
    let mode = facts.permissions().mode() & 0o7777;
    if facts.is_symlink() || mode & GROUP_AND_OTHERS_BITS == 0 {
        return;
    }
    let (path_shown, mode_shown) = (path.display(), format!("{mode:04o}"));
    if mode & STICKY_BIT != 0 {
        warn!(path = %path_shown, mode = mode_shown, "the data folder is shared (sticky bit set): choose a folder of its own");
        return;
    }
    let closed = std::fs::Permissions::from_mode(mode & !GROUP_AND_OTHERS_BITS);
    match std::fs::set_permissions(path, closed) {
        Ok(()) => {
            warn!(path = %path_shown, mode = mode_shown, "removed the access of group and other accounts")
        }
        Err(fault) => {
            warn!(path = %path_shown, mode = mode_shown, %fault, "cannot remove the access of group and other accounts")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn access_is_limited_to_the_owner_except_on_sticky_folders() {
        let folder = std::env::temp_dir().join(format!("muster-private-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        create_folder_if_missing(&folder.join("inner")).unwrap();
        assert_eq!((mode(&folder), mode(&folder.join("inner"))), (0o700, 0o700));
        let file = folder.join("file");
        open_or_create_file(&file).unwrap();
        assert_eq!(mode(&file), 0o600);
        create_file_if_missing(&folder.join("other")).and_then(|()| create_file_if_missing(&file)).unwrap();
        assert_eq!(mode(&folder.join("other")), 0o600);
        for (before, after) in [(0o644, 0o600), (0o755, 0o700), (0o2775, 0o2700), (0o1777, 0o1777)] {
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(before)).unwrap();
            remove_access_of_others(&file);
            assert_eq!(mode(&file), after, "{before:o}");
        }
        remove_access_of_others(&folder.join("none"));
        std::fs::remove_dir_all(folder).unwrap();
    }
}

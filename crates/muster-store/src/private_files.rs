//! Files and folders that only their owner may use. The journal holds what users pass to their jobs, so no other
//! account of the machine may read it, its log, or what lies beside it.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use tracing::warn;

/// The rights of the group and of all others.
const GROUP_AND_OTHERS_BITS: u32 = 0o077;
/// Set on folders that are shared by design, such as `/tmp`.
const STICKY_BIT: u32 = 0o1000;

/// Open a file to read and write it; it is made with mode 0600 where there is none.
pub fn open_or_create_file(path: &Path) -> io::Result<File> {
    let file =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
    remove_access_of_others(path);
    Ok(file)
}

/// Make an empty file with mode 0600 where there is none. A file that is there is not opened: to close it again would
/// take away the locks that SQLite holds on it in this process.
pub fn create_file_if_missing(path: &Path) -> io::Result<()> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    remove_access_of_others(path);
    Ok(())
}

/// Make a folder with mode 0700 where there is none, with those above it.
pub fn create_folder_if_missing(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    remove_access_of_others(path);
    Ok(())
}

/// Take the rights of other accounts away, and say so in the log. A path that is not there is fine; one that cannot be
/// repaired is worth a warning and not a stop, because on some volumes modes are not ours to set.
pub fn remove_access_of_others(path: &Path) {
    let Ok(facts) = std::fs::symlink_metadata(path) else { return };
    let mode = facts.permissions().mode() & 0o7777;
    if facts.is_symlink() || mode & GROUP_AND_OTHERS_BITS == 0 {
        return;
    }
    let (path_shown, mode_shown) = (path.display(), format!("{mode:04o}"));
    if mode & STICKY_BIT != 0 {
        warn!(path = %path_shown, mode = mode_shown, "a shared folder is no place for the server's files; choose another");
        return;
    }
    let closed = std::fs::Permissions::from_mode(mode & !GROUP_AND_OTHERS_BITS);
    match std::fs::set_permissions(path, closed) {
        Ok(()) => warn!(path = %path_shown, mode = mode_shown, "repaired: other accounts had access"),
        Err(fault) => warn!(path = %path_shown, mode = mode_shown, %fault, "other accounts have access"),
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

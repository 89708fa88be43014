//! Files and folders that only their owner may use. The journal holds what users pass to their jobs, so no other
//! account of the machine may read it, its log, or what lies beside it.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use tracing::warn;

/// The rights of the group and of all others.
const OTHERS: u32 = 0o077;
/// Set on folders that are shared by design, such as `/tmp`.
const STICKY: u32 = 0o1000;

/// Open a file to read and write it; it is made with mode 0600 where there is none.
pub fn open_file(path: &Path) -> io::Result<File> {
    let file =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
    close_to_others(path);
    Ok(file)
}

/// Make an empty file with mode 0600 where there is none. A file that is there is not opened: to close it again would
/// take away the locks that SQLite holds on it in this process.
pub fn make_file(path: &Path) -> io::Result<()> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    close_to_others(path);
    Ok(())
}

/// Make a folder with mode 0700 where there is none, with those above it.
pub fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    close_to_others(path);
    Ok(())
}

/// Take the rights of other accounts away, and say so in the log. A path that is not there is fine; one that cannot be
/// repaired is worth a warning and not a stop, because on some volumes modes are not ours to set.
pub fn close_to_others(path: &Path) {
    let Ok(facts) = std::fs::symlink_metadata(path) else { return };
    let mode = facts.permissions().mode() & 0o7777;
    if facts.is_symlink() || mode & OTHERS == 0 {
        return;
    }
    let (path_shown, mode_shown) = (path.display(), format!("{mode:04o}"));
    if mode & STICKY != 0 {
        warn!(path = %path_shown, mode = mode_shown, "a shared folder is no place for the server's files; choose another");
        return;
    }
    let closed = std::fs::Permissions::from_mode(mode & !OTHERS);
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
    fn only_the_owner_keeps_rights_and_shared_folders_are_left_alone() {
        let folder = std::env::temp_dir().join(format!("muster-private-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        make_folder(&folder.join("inner")).unwrap();
        assert_eq!((mode(&folder), mode(&folder.join("inner"))), (0o700, 0o700));
        let file = folder.join("file");
        open_file(&file).unwrap();
        assert_eq!(mode(&file), 0o600);
        make_file(&folder.join("other")).and_then(|()| make_file(&file)).unwrap();
        assert_eq!(mode(&folder.join("other")), 0o600);
        for (before, after) in [(0o644, 0o600), (0o755, 0o700), (0o2775, 0o2700), (0o1777, 0o1777)] {
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(before)).unwrap();
            close_to_others(&file);
            assert_eq!(mode(&file), after, "{before:o}");
        }
        close_to_others(&folder.join("none"));
        std::fs::remove_dir_all(folder).unwrap();
    }
}

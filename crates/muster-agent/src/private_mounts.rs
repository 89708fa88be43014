//! The mount namespace of an attempt: its own `/tmp` and `/dev/shm`, and no view of the files of other attempts.
//!
//! The first task makes the namespace and the others join it, because the ranks of a gang exchange data through `/dev/shm`.
//! The namespace goes with its last process, also when the shim is killed: nothing has to be unmounted.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::thread::{LinkNameSpaceType, UnshareFlags};

use crate::job_user::JobUser;

/// In the attempt directory: what the job sees as `/tmp`.
pub(crate) const PRIVATE_TMP_DIR: &str = "tmp";
const TMP_PATH: &str = "/tmp";
const SHM_PATH: &str = "/dev/shm";
/// A hidden directory needs room for directory entries only.
const HIDING_TMPFS_DATA: &str = "mode=0755,size=64k";

/// What the namespace of an attempt shows.
#[derive(Debug)]
pub(crate) struct PrivateMounts<'a> {
    pub attempt_dir: &'a Path,
    /// The working directory that the job has asked for, opened by [`open_directory`] as the job's user.
    pub directory: Option<(PathBuf, OwnedFd)>,
    pub user: &'a JobUser,
    /// The size of `/dev/shm`; `None` for the kernel's default of half the memory.
    pub shm_mib: Option<u64>,
}

/// A step that failed.
#[derive(Debug, thiserror::Error)]
#[error("{step} `{path}`: {source}")]
pub(crate) struct MountError {
    step: &'static str,
    path: PathBuf,
    source: io::Error,
}

fn failed<E: Into<io::Error>>(step: &'static str, path: &Path) -> impl FnOnce(E) -> MountError {
    move |source| MountError { step, path: path.to_path_buf(), source: source.into() }
}

/// Moves this thread into a new mount namespace. Mounts that the host makes later still appear in it; mounts made in it do
/// not appear on the host.
pub(crate) fn enter_new_namespace() -> Result<(), MountError> {
    // The safe form is deprecated for its flag `FILES`, which makes descriptors of other threads disappear. `NEWNS` does not.
    #[expect(deprecated)]
    let unshared = rustix::thread::unshare(UnshareFlags::NEWNS);
    unshared.map_err(failed("cannot make a mount namespace for", Path::new("/")))?;
    let downstream = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", downstream).map_err(failed("cannot detach the mounts of", Path::new("/")))
}

/// Moves this process into the mount namespace of another one.
pub(crate) fn join_namespace_of(pid: i32) -> Result<(), MountError> {
    let path = PathBuf::from(format!("/proc/{pid}/ns/mnt"));
    let namespace = fs::File::open(&path).map_err(failed("cannot open the mount namespace", &path))?;
    rustix::thread::move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Mount))
        .map_err(failed("cannot join the mount namespace", &path))
}

/// Opens a directory as this process sees it now, with its path without links.
pub(crate) fn open_directory(path: &Path) -> io::Result<(PathBuf, OwnedFd)> {
    let path = path.canonicalize()?;
    let opened = rustix::fs::open(&path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    Ok((path, opened))
}

/// Opens a directory or file as this process sees it now, for reading, with its path without links.
pub(crate) fn open_source(path: &Path) -> io::Result<(PathBuf, OwnedFd)> {
    let path = path.canonicalize()?;
    // Another kind of file, such as a device or a pipe, must not act on being opened.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::open(&path, flags, Mode::empty())?;
    Ok((path, opened))
}

/// Mounts an opened directory or file at a new mount point.
pub(crate) fn bind_source(source: &OwnedFd, mount_point: &Path) -> Result<(), MountError> {
    let is_dir = fs::File::from(source.try_clone().map_err(failed("cannot mount", mount_point))?).metadata();
    let made = is_dir.and_then(|found| match found.is_dir() {
        true => fs::DirBuilder::new().recursive(true).mode(0o755).create(mount_point),
        false => fs::File::create(mount_point).map(drop),
    });
    made.map_err(failed("cannot make a mount point for", mount_point))?;
    let source = format!("/proc/self/fd/{}", source.as_raw_fd());
    rustix::mount::mount_bind_recursive(source, mount_point).map_err(failed("cannot mount", mount_point))
}

/// True if the user can put another directory or file in the place of `path`, which contains no links.
pub(crate) fn is_replaceable(path: &Path, user: &JobUser) -> bool {
    path.ancestors().skip(1).any(|dir| may_use(dir, user, 0o2))
}

/// Makes the mounts in the namespace that this process has just entered. The working directory may lie above the attempt
/// directory, so it is shown first and what it must not show is hidden afterwards.
pub(crate) fn set_up(mounts: &PrivateMounts<'_>) -> Result<(), MountError> {
    let hidden = hidden_ancestor(mounts.attempt_dir, mounts.user); // As the host has it: before anything is covered.
    let (_, attempt) = open_directory(mounts.attempt_dir).map_err(failed("cannot open", mounts.attempt_dir))?;
    let tmp = mounts.attempt_dir.join(PRIVATE_TMP_DIR);
    rustix::mount::mount_bind(&tmp, TMP_PATH).map_err(failed("cannot mount the private", Path::new(TMP_PATH)))?;
    mount_shm(mounts.shm_mib)?;
    show_directory(mounts, |path| is_private(path) && !path.starts_with(&hidden))?;
    // If the private directories cover it, it does not exist any more, unless the working directory shows it again.
    let is_visible = hidden.is_dir();
    if is_visible {
        mount_tmpfs(&hidden, HIDING_TMPFS_DATA)?;
    }
    bind_back(mounts.attempt_dir, &attempt)?;
    show_directory(mounts, |path| path.starts_with(&hidden))?;
    if !is_visible {
        return Ok(());
    }
    let flags = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount_remount(&hidden, flags, "").map_err(failed("cannot protect", &hidden))
}

/// Makes the working directory appear again, if it is one of the covered ones. The attempt directory appears anyway.
fn show_directory(mounts: &PrivateMounts<'_>, is_covered: impl Fn(&Path) -> bool) -> Result<(), MountError> {
    match &mounts.directory {
        Some((path, opened)) if is_covered(path) && !path.starts_with(mounts.attempt_dir) => bind_back(path, opened),
        _ => Ok(()),
    }
}

/// True for a path below a directory of which the attempt has its own; that directory itself stays private.
fn is_private(path: &Path) -> bool {
    [TMP_PATH, SHM_PATH].iter().any(|covered| path.starts_with(covered) && path != Path::new(covered))
}

/// A host without `/dev/shm` needs no private one.
fn mount_shm(size_mib: Option<u64>) -> Result<(), MountError> {
    if !Path::new(SHM_PATH).is_dir() {
        return Ok(());
    }
    let size = size_mib.map_or(String::new(), |mib| format!(",size={mib}m"));
    mount_tmpfs(Path::new(SHM_PATH), &format!("mode=1777{size}"))
}

fn mount_tmpfs(path: &Path, data: &str) -> Result<(), MountError> {
    let data = CString::new(data).unwrap_or_default();
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount("tmpfs", path, "tmpfs", flags, data.as_c_str()).map_err(failed("cannot cover", path))
}

/// Makes a covered directory appear again at its path.
fn bind_back(path: &Path, opened: &OwnedFd) -> Result<(), MountError> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o755).create(path);
    made.map_err(failed("cannot make a mount point for", path))?;
    let source = format!("/proc/self/fd/{}", opened.as_raw_fd());
    rustix::mount::mount_bind(source, path).map_err(failed("cannot mount", path))
}

/// The topmost directory above an attempt that the job's user may not enter. Hiding it takes nothing from the job, and
/// makes the attempt directory reachable below it. The directory of all attempts is such a one if no other is.
fn hidden_ancestor(attempt_dir: &Path, user: &JobUser) -> PathBuf {
    let attempts = attempt_dir.ancestors().nth(2).unwrap_or(attempt_dir);
    let mut ancestors: Vec<&Path> = attempts.ancestors().collect();
    ancestors.reverse();
    let closed = ancestors.into_iter().skip(1).find(|dir| !may_enter(dir, user));
    closed.unwrap_or(attempts).to_path_buf()
}

/// Root may enter everything, but gets no more than others where it is hidden.
fn may_enter(dir: &Path, user: &JobUser) -> bool {
    may_use(dir, user, 0o1)
}

/// By the mode bits of the user's class; an owner can change them, so an owner may write.
fn may_use(dir: &Path, user: &JobUser, bit: u32) -> bool {
    let Ok(found) = fs::metadata(dir) else { return false };
    let shift = if found.uid() == user.uid {
        6
    } else if found.gid() == user.gid || user.groups.contains(&found.gid()) {
        3
    } else {
        0
    };
    found.mode() & (bit << shift) != 0 || (bit == 0o2 && found.uid() == user.uid)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::test_fixtures::TempDir;

    fn user(uid: u32) -> JobUser {
        JobUser { name: "ann".to_string(), uid, gid: uid, groups: vec![], home: None }
    }

    #[test]
    fn the_topmost_closed_directory_above_an_attempt_is_hidden() {
        let dir = TempDir::new();
        let (data, attempt) = (dir.join("home/data"), dir.join("home/data/attempts/job-1/1"));
        fs::create_dir_all(&attempt).unwrap();
        let set_mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        [dir.join("home"), data.clone(), data.join("attempts")].iter().for_each(|path| set_mode(path, 0o755));
        let stranger = user(fs::metadata(&data).unwrap().uid() + 1);
        assert_eq!(hidden_ancestor(&attempt, &stranger), data.join("attempts"));
        set_mode(&data.join("attempts"), 0o700);
        assert_eq!(hidden_ancestor(&attempt, &stranger), data.join("attempts"));
        set_mode(&data, 0o700);
        assert_eq!(hidden_ancestor(&attempt, &stranger), data);
        set_mode(&dir.join("home"), 0o750);
        assert_eq!(hidden_ancestor(&attempt, &stranger), dir.join("home"));
        assert_eq!(hidden_ancestor(&attempt, &user(stranger.uid - 1)), data.join("attempts"), "the owner may enter");
    }
}

//! The files in which a job finds its secrets. They are on a tmpfs, never on a disk, and the job's user alone can read them.
//!
//! In the mount namespace of the attempt the tmpfs is the attempt's own and goes with its last process. Without such a
//! namespace it is a directory on a tmpfs of the node, which the shim or the agent removes when the attempt is over.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use muster_protocol::agent::SecretFile;
use rustix::fs::{Gid, MemfdFlags, Uid, memfd_create};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount, mount_remount};

use crate::job_user::JobUser;

/// In the attempt directory: where the tmpfs is mounted.
pub(crate) const SECRETS_DIR: &str = "secrets";
/// The variable with the directory.
pub(crate) const SECRETS_DIR_VARIABLE: &str = "MUSTER_SECRETS_DIR";
/// A job has at most 16 secrets of 64 KiB.
const TMPFS_LIMITS: &str = "mode=0700,size=2m,nr_inodes=64";
const FILE_MODE: u32 = 0o400;
const DIR_MODE: u32 = 0o500;
const DIR_MODE_WHILE_WRITTEN: u32 = 0o700;
/// `f_type` of a tmpfs, from `linux/magic.h`.
const TMPFS_MAGIC: u64 = 0x0102_1994;
/// The name of the directory of an attempt begins with it.
const SHARED_DIR_PREFIX: &str = "muster-secrets-";

/// Mounts a tmpfs with the files in the mount namespace of this process, and makes it read-only.
pub(crate) fn mount_private(dir: &Path, files: &[SecretFile], user: &JobUser) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(DIR_MODE_WHILE_WRITTEN).create(dir)?;
    mount_unswapped(dir)?;
    write_files(dir, files, Some(user))?;
    let flags = flags() | MountFlags::RDONLY;
    Ok(mount_remount(dir, flags, "")?)
}

/// A tmpfs may be swapped to a disk unless it is mounted with `noswap`, which kernels before 6.4 refuse. They have ramfs.
fn mount_unswapped(dir: &Path) -> io::Result<()> {
    let data = std::ffi::CString::new(format!("{TMPFS_LIMITS},noswap")).unwrap_or_default();
    match mount("tmpfs", dir, "tmpfs", flags(), data.as_c_str()) {
        Err(Errno::INVAL) => Ok(mount("ramfs", dir, "ramfs", flags(), c"mode=0700")?),
        mounted => Ok(mounted?),
    }
}

fn flags() -> MountFlags {
    MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC
}

/// Makes a directory with the files on a tmpfs of the node. It must not exist: its name cannot be guessed.
pub(crate) fn write_shared(dir: &Path, files: &[SecretFile], user: Option<&JobUser>) -> io::Result<()> {
    DirBuilder::new().mode(DIR_MODE_WHILE_WRITTEN).create(dir)?;
    write_files(dir, files, user)
}

/// Removes such a directory. False if it is still there.
pub(crate) fn remove_shared(dir: &Path) -> bool {
    let _ = fs::set_permissions(dir, Permissions::from_mode(DIR_MODE_WHILE_WRITTEN));
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            eprintln!("`{}` with the secrets of the job cannot be removed: {error}", dir.display());
            false
        }
        _ => true,
    }
}

fn write_files(dir: &Path, files: &[SecretFile], user: Option<&JobUser>) -> io::Result<()> {
    for file in files {
        let path = dir.join(&file.name);
        let mut opened = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path)?;
        opened.write_all(file.value.reveal())?;
        if let Some(user) = user {
            rustix::fs::fchown(&opened, Some(Uid::from_raw(user.uid)), Some(Gid::from_raw(user.gid)))?;
        }
    }
    fs::set_permissions(dir, Permissions::from_mode(DIR_MODE))?;
    match user {
        Some(user) => Ok(rustix::fs::chown(dir, Some(Uid::from_raw(user.uid)), Some(Gid::from_raw(user.gid)))?),
        None => Ok(()),
    }
}

/// A directory of this node on a tmpfs, in which the agent can make others; an error says that there is none.
pub(crate) fn find_shared_tmpfs() -> Result<PathBuf, String> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let mut candidates = runtime.into_iter().filter(|dir| dir.is_absolute()).chain([PathBuf::from("/dev/shm")]);
    let is_usable = |dir: &PathBuf| {
        let is_tmpfs = rustix::fs::statfs(dir).is_ok_and(|found| found.f_type as u64 == TMPFS_MAGIC);
        is_tmpfs && rustix::fs::access(dir, rustix::fs::Access::WRITE_OK).is_ok()
    };
    candidates
        .find(is_usable)
        .ok_or_else(|| "neither `$XDG_RUNTIME_DIR` nor `/dev/shm` is a tmpfs that the agent can write to".to_string())
}

/// The directory of an attempt on that tmpfs.
pub(crate) fn shared_dir(tmpfs: &Path, random: &str) -> PathBuf {
    tmpfs.join(format!("{SHARED_DIR_PREFIX}{random}"))
}

/// The files as the standard input of a shim: in memory, and without a name by which another process finds them.
pub(crate) fn to_memory(files: &[SecretFile]) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create("muster-secrets", MemfdFlags::CLOEXEC)?);
    file.write_all(muster_json::to_string(&files).as_bytes())?;
    file.seek(SeekFrom::Start(0))?;
    Ok(file.into())
}

/// Reads them in the shim.
pub(crate) fn from_memory(input: &mut impl Read) -> io::Result<Vec<SecretFile>> {
    let mut bytes = Vec::new();
    input.read_to_end(&mut bytes)?;
    let files = muster_json::from_slice(&bytes).map_err(|_| io::Error::other("the secrets cannot be read"));
    bytes.fill(0);
    files
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use muster_protocol::secret_value::SecretValue;

    use super::*;
    use crate::test_fixtures::TempDir;

    fn files() -> Vec<SecretFile> {
        let file =
            |name: &str, value: &[u8]| SecretFile { name: name.to_string(), value: SecretValue::new(value.to_vec()) };
        vec![file("TOKEN", b"hunter2"), file("key.pem", b"\0\xff")]
    }

    #[test]
    fn a_shared_directory_is_readable_by_its_owner_only_and_is_removed() {
        let dir = TempDir::new();
        let secrets = shared_dir(&dir, "1");
        write_shared(&secrets, &files(), None).unwrap();
        assert_eq!(fs::read(secrets.join("TOKEN")).unwrap(), b"hunter2");
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
        assert_eq!([mode(&secrets), mode(&secrets.join("key.pem"))], [DIR_MODE, FILE_MODE]);
        assert!(write_shared(&secrets, &files(), None).is_err(), "a directory of somebody else is not used");
        assert!(remove_shared(&secrets) && !secrets.exists());
        assert!(remove_shared(&secrets), "a second call does nothing");
    }

    #[test]
    fn secrets_pass_to_a_shim_in_memory() {
        let mut input = File::from(to_memory(&files()).unwrap());
        assert_eq!(from_memory(&mut input).unwrap(), files());
        assert!(from_memory(&mut &b""[..]).is_err());
    }
}

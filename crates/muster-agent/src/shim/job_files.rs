//! Files that the shim makes and the job's user owns.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Gid, Uid};

use crate::attempt_dir::AttemptDir;
use crate::job_user::JobUser;

/// The path is in a directory of the agent, so that no job can replace it by a link.
pub(super) fn give_to(path: &Path, user: &JobUser) -> io::Result<()> {
    Ok(rustix::fs::chown(path, Some(Uid::from_raw(user.uid)), Some(Gid::from_raw(user.gid)))?)
}

/// Writes the script of the job, which belongs to the job's user, and returns its path.
pub(super) fn place_script(attempt_dir: &AttemptDir, script: &str, user: Option<&JobUser>) -> io::Result<PathBuf> {
    let path = attempt_dir.file("script");
    write_script(&path, script)?;
    user.map_or(Ok(()), |user| give_to(&path, user))?;
    Ok(path)
}

fn write_script(path: &Path, script: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o700).open(path)?;
    file.write_all(script.as_bytes())
}

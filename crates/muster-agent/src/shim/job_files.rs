//! Files that the shim makes and the job's user owns.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use muster_protocol::agent::AttemptOrder;
use rustix::fs::{Gid, Uid};

use super::gang_environment;
use crate::attempt_dir::{AttemptDir, HOST_FILE};
use crate::job_user::JobUser;

/// The path is in a directory of the agent, so that no job can replace it by a link.
pub(super) fn give_to(path: &Path, user: &JobUser) -> io::Result<()> {
    Ok(rustix::fs::chown(path, Some(Uid::from_raw(user.uid)), Some(Gid::from_raw(user.gid)))?)
}

/// Writes the script of the job, which belongs to the job's user, and returns its path.
pub(super) fn place_script(attempt_dir: &AttemptDir, script: &str, user: Option<&JobUser>) -> io::Result<PathBuf> {
    let path = attempt_dir.file("script");
    write_file(&path, script, 0o700)?;
    user.map_or(Ok(()), |user| give_to(&path, user))?;
    Ok(path)
}

/// Writes the host file of the gang, which belongs to the job's user; returns its path, if there is one.
pub(super) fn place_host_file(
    attempt_dir: &AttemptDir,
    order: &AttemptOrder,
    user: Option<&JobUser>,
) -> io::Result<Option<PathBuf>> {
    let Some(text) = gang_environment::host_file_text(order) else { return Ok(None) };
    let path = attempt_dir.file(HOST_FILE);
    write_file(&path, &text, 0o600)?;
    user.map_or(Ok(()), |user| give_to(&path, user))?;
    Ok(Some(path))
}

fn write_file(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(mode).open(path)?;
    file.write_all(text.as_bytes())
}

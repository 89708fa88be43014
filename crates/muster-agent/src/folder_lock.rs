//! The lock of the data folder of an agent: two agents in one folder would end each other's attempts.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::error::AgentError;

const LOCK_FILE: &str = "agent.lock";
/// The former agent of this folder may still be stopping.
const WAIT_MAX: Duration = Duration::from_secs(5);
const WAIT_STEP: Duration = Duration::from_millis(20);

/// Held until it is dropped. The kernel releases it when the process ends.
#[derive(Debug)]
pub(crate) struct FolderLock(File);

impl FolderLock {
    pub fn take(data_dir: &Path) -> Result<FolderLock, AgentError> {
        let path = data_dir.join(LOCK_FILE);
        let opened = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
        let file = opened.map_err(|source| AgentError::Write { path: path.clone(), source })?;
        let since = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(FolderLock(file)),
                Err(TryLockError::WouldBlock) if since.elapsed() < WAIT_MAX => std::thread::sleep(WAIT_STEP),
                Err(TryLockError::WouldBlock) => {
                    return Err(AgentError::FolderInUse { data_dir: data_dir.to_path_buf() });
                }
                Err(TryLockError::Error(source)) => return Err(AgentError::Write { path, source }),
            }
        }
    }
}

/// A child process between its fork and its exec has a copy of the descriptor; unlocking applies to all copies.
impl Drop for FolderLock {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fixtures::TempDir;

    #[test]
    fn one_agent_at_a_time_uses_a_folder() {
        let dir = TempDir::new();
        let first = FolderLock::take(&dir).unwrap();
        assert!(matches!(FolderLock::take(&dir), Err(AgentError::FolderInUse { .. })));
        drop(first);
        FolderLock::take(&dir).unwrap();
    }
}

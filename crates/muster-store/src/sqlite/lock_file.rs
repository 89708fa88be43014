//! Lock file beside the database: prevents two servers from using one data folder.

use std::fs::{File, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::error::StoreError;
use crate::private_files;

/// The lock, held until it is dropped. The kernel releases it when the process exits or is killed.
#[derive(Debug)]
pub struct LockFile {
    file: File,
    path: PathBuf,
}

/// Closing the file would not be enough: a child process between its fork and its exec has a copy of the descriptor, and
/// the lock is held until the last copy is closed. Unlocking applies to all copies.
impl Drop for LockFile {
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

fn lock_path(database: &Path) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push(".lock");
    PathBuf::from(path)
}

impl LockFile {
    /// Acquire the lock, or return the name of its holder.
    pub fn try_lock(database: &Path, holder: &str) -> Result<Result<LockFile, String>, StoreError> {
        let path = lock_path(database);
        let fault = |error| StoreError::unavailable(format!("lock `{}`", path.display()), error);
        let mut file = private_files::open_or_create_file(&path).map_err(fault)?;
        match file.try_lock() {
            Ok(()) => {
                let lock = LockFile { file, path };
                lock.write_holder(holder)?;
                Ok(Ok(lock))
            }
            Err(TryLockError::WouldBlock) => {
                let mut name = String::new();
                file.read_to_string(&mut name).map_err(fault)?;
                Ok(Err(name.trim().to_string()))
            }
            Err(TryLockError::Error(error)) => Err(fault(error)),
        }
    }

    /// Write the name of the holder into the file, for other servers.
    pub fn write_holder(&self, holder: &str) -> Result<(), StoreError> {
        let mut file = &self.file;
        let written =
            file.seek(SeekFrom::Start(0)).and_then(|_| file.set_len(0)).and_then(|()| writeln!(file, "{holder}"));
        written
            .map_err(|error| StoreError::unavailable(format!("write the holder to `{}`", self.path.display()), error))
    }
}

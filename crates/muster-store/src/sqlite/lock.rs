//! A lock file beside the database, so that two servers on one data folder cannot both act.

use std::fs::{File, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::error::StoreError;
use crate::private;

/// The lock, held until it is dropped. The kernel frees it when the process dies, however it dies.
#[derive(Debug)]
pub struct LockFile {
    file: File,
    path: PathBuf,
}

/// Where the lock of a database lies.
fn lock_path(database: &Path) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push(".lock");
    PathBuf::from(path)
}

impl LockFile {
    /// Take the lock, or say who holds it.
    pub fn take(database: &Path, holder: &str) -> Result<Result<LockFile, String>, StoreError> {
        let path = lock_path(database);
        let fault = |error| StoreError::unavailable(format!("lock `{}`", path.display()), error);
        let mut file = private::open_file(&path).map_err(fault)?;
        match file.try_lock() {
            Ok(()) => {
                let lock = LockFile { file, path };
                lock.sign(holder)?;
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

    /// Write down who holds it, for those who find it taken.
    pub fn sign(&self, holder: &str) -> Result<(), StoreError> {
        let mut file = &self.file;
        let written = file
            .seek(SeekFrom::Start(0))
            .and_then(|_| file.set_len(0))
            .and_then(|()| writeln!(file, "{holder}"));
        written.map_err(|error| StoreError::unavailable(format!("sign `{}`", self.path.display()), error))
    }
}

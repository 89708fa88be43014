//! The file with the key that seals secrets. All servers of a cluster share it; only its owner may read it.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::SecretFault;
use super::sealing::{KEY_BYTES, SealingKey, hex, random};
use crate::identity::{FileError, write_private};

/// One line of hexadecimal digits.
const FILE_BYTES_MAX: u64 = 4_096;

pub(super) struct KeyFile(pub PathBuf);

impl KeyFile {
    /// `None` if there is no such file.
    pub fn read(&self) -> Result<Option<SealingKey>, SecretFault> {
        let path = || self.0.clone();
        let unreadable = |source| FileError::Read { path: path(), source };
        let file = match File::open(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(unreadable)?,
        };
        // The mode of the open file, so that the file cannot be replaced between the check and the read.
        let mode = file.metadata().map_err(unreadable)?.permissions().mode() & 0o7777;
        if mode & 0o077 != 0 {
            return Err(FileError::ExposedKey { path: path(), mode }.into());
        }
        let mut text = String::new();
        file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(unreadable)?;
        let key = parse(text.trim()).and_then(|bytes| SealingKey::new(&bytes));
        key.map(Some).ok_or_else(|| SecretFault::NotAKey { path: path() })
    }

    /// Makes the key of a cluster that has no secrets yet.
    pub fn generate(&self) -> Result<SealingKey, SecretFault> {
        let bytes: [u8; KEY_BYTES] = random()?;
        write_private(&self.0, format!("{}\n", hex(&bytes)).as_bytes())?;
        tracing::info!(path = %self.0.display(), "made a key for the secrets of jobs; copy it to the other servers of the cluster");
        SealingKey::new(&bytes).ok_or_else(|| SecretFault::NotAKey { path: self.0.clone() })
    }
}

fn parse(text: &str) -> Option<[u8; KEY_BYTES]> {
    if text.len() != 2 * KEY_BYTES || !text.is_ascii() {
        return None;
    }
    let mut bytes = [0; KEY_BYTES];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * index..2 * index + 2], 16).ok()?;
    }
    Some(bytes)
}

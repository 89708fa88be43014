//! The images that the agent has pulled, and when jobs last used them: one small file each in the data directory.
//!
//! Only these images may be removed again; those of the site have no file. Shims write the files, several at a time, and the
//! image cache (`image_cache.rs`) reads them. A lock keeps an image from being removed between the moment when a shim finds it
//! and the moment when its attempt counts as one that needs it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

use crate::clock;

const IMAGES_DIR: &str = "images";
const LOCK_FILE: &str = "lock";
const RECORD_EXTENSION: &str = "json";

/// An image that the agent has pulled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PulledImage {
    /// The name, as jobs give it.
    pub image: String,
    /// What the runtime calls its content. Another image under the same name was not pulled by the agent.
    pub id: String,
    pub used_at_ms: i64,
}

/// The records in a data directory.
#[derive(Debug, Clone)]
pub(crate) struct PulledImages {
    dir: PathBuf,
}

impl PulledImages {
    pub fn of(data_dir: &Path) -> PulledImages {
        PulledImages { dir: data_dir.join(IMAGES_DIR) }
    }

    /// Held by those who look for images to use. Closing the file releases the lock.
    pub fn lock_shared(&self) -> io::Result<File> {
        self.lock(FlockOperation::LockShared)
    }

    /// Held by the one who removes an image.
    pub fn lock_exclusive(&self) -> io::Result<File> {
        self.lock(FlockOperation::LockExclusive)
    }

    fn lock(&self, operation: FlockOperation) -> io::Result<File> {
        crate::logs::make_private_dir(&self.dir)?;
        let file = OpenOptions::new().create(true).append(true).open(self.dir.join(LOCK_FILE))?;
        rustix::fs::flock(&file, operation)?;
        Ok(file)
    }

    /// The record of an image; one that cannot be read counts as none, so that the image stays.
    pub fn find(&self, image: &str) -> Option<PulledImage> {
        read(&self.record_path(image)).filter(|record| record.image == image)
    }

    pub fn all(&self) -> Vec<PulledImage> {
        let entries = fs::read_dir(&self.dir).into_iter().flatten().flatten().map(|entry| entry.path());
        let records = entries.filter(|path| path.extension().is_some_and(|extension| extension == RECORD_EXTENSION));
        records.filter_map(|path| read(&path)).collect()
    }

    pub fn note_pull(&self, image: &str, id: &str) -> io::Result<()> {
        let (image, id) = (image.to_string(), id.to_string());
        self.write(&PulledImage { image, id, used_at_ms: clock::unix_now_ms() })
    }

    /// A job uses the image; nothing happens if it is one of the site.
    pub fn note_use(&self, image: &str) -> io::Result<()> {
        self.find(image)
            .map_or(Ok(()), |record| self.write(&PulledImage { used_at_ms: clock::unix_now_ms(), ..record }))
    }

    pub fn forget(&self, image: &str) -> io::Result<()> {
        fs::remove_file(self.record_path(image))
    }

    fn write(&self, record: &PulledImage) -> io::Result<()> {
        crate::logs::make_private_dir(&self.dir)?;
        let temporary = self.dir.join(format!(".{}", std::process::id()));
        fs::write(&temporary, muster_json::to_string(record))?;
        fs::rename(&temporary, self.record_path(&record.image))
    }

    /// A name may contain slashes and be longer than the name of a file, so the file is named for its hash (FNV-1a).
    fn record_path(&self, image: &str) -> PathBuf {
        let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        let hash = image.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325_u64, step);
        self.dir.join(format!("{hash:016x}.{RECORD_EXTENSION}"))
    }
}

fn read(path: &Path) -> Option<PulledImage> {
    muster_json::from_slice(&fs::read(path).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fixtures::TempDir;

    #[test]
    fn only_pulled_images_have_a_record_and_each_use_is_noted() {
        let dir = TempDir::new();
        let images = PulledImages::of(&dir);
        images.note_use("of-the-site:1").unwrap();
        assert_eq!(images.all(), []);
        images.note_pull("example.org/train:1", "sha256:0a").unwrap();
        let pulled = images.find("example.org/train:1").unwrap();
        images.write(&PulledImage { used_at_ms: 7, ..pulled.clone() }).unwrap();
        images.note_use("example.org/train:1").unwrap();
        let used = images.all().pop().unwrap();
        assert!(used.used_at_ms >= pulled.used_at_ms && used.id == "sha256:0a", "{used:?}");
        images.forget("example.org/train:1").unwrap();
        assert_eq!(images.find("example.org/train:1"), None);
    }

    #[test]
    fn an_image_is_not_removed_while_a_shim_looks_for_it() {
        let dir = TempDir::new();
        let images = PulledImages::of(&dir);
        let (first, second) = (images.lock_shared().unwrap(), images.lock_shared().unwrap());
        let try_exclusive = || images.lock(FlockOperation::NonBlockingLockExclusive);
        assert!(try_exclusive().is_err());
        drop((first, second));
        assert!(try_exclusive().is_ok());
    }
}

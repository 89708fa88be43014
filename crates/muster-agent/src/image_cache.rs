//! The image cache: removes images that the agent has pulled and no attempt uses, least recently used first, until they are
//! within the limit of the site (`agent.image_cache_max_mib`). Images of the site are never removed, and do not count.
//!
//! It runs on a thread of its own, because runtimes take seconds: after an attempt has ended, and from time to time.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;

use muster_protocol::agent::Report;

use crate::agent::ReportSink;
use crate::attempt_dir::{AttemptDir, uncleaned_attempts};
use crate::container_runtime::{ContainerRuntime, ImageFacts};
use crate::error::AgentError;
use crate::pulled_images::{PulledImage, PulledImages};

/// Attempts of a former agent end without an event, and a removal may have failed.
const INTERVAL: Duration = Duration::from_secs(600);

/// The limit, and what it is enforced with.
#[derive(Debug, Clone)]
pub(crate) struct ImageCacheConfig {
    pub runtime: ContainerRuntime,
    pub data_dir: PathBuf,
    pub max_mib: u64,
}

/// Dropping it ends the thread after the current removal, and does not wait for it.
#[derive(Debug, Clone)]
pub(crate) struct ImageCache {
    wake: Sender<()>,
}

impl ImageCache {
    pub fn start(config: ImageCacheConfig) -> Result<ImageCache, AgentError> {
        let (wake, woken) = mpsc::channel::<()>();
        let thread = std::thread::Builder::new().name("image-cache".to_string());
        let repeat = move || {
            loop {
                if let Err(error) = config.enforce() {
                    tracing::warn!("images are not removed: {error}");
                }
                if woken.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Disconnected) {
                    return;
                }
                while woken.try_recv().is_ok() {}
            }
        };
        thread.spawn(repeat).map_err(AgentError::ThreadSpawn)?;
        Ok(ImageCache { wake })
    }

    /// The same reports; the end of an attempt wakes the cache.
    pub fn watching(self, report_sink: ReportSink) -> ReportSink {
        // A report sink is shared between threads, and this sender may be, too.
        std::sync::Arc::new(move |report| {
            if matches!(report, Report::Ended { .. }) {
                // The thread ends only after this sender.
                let _ = self.wake.send(());
            }
            report_sink(report);
        })
    }
}

/// An image that the agent has pulled, as the runtime has it now.
#[derive(Debug, Clone, PartialEq, Eq)]
struct CachedImage {
    record: PulledImage,
    bytes: u64,
}

impl ImageCacheConfig {
    fn enforce(&self) -> io::Result<()> {
        let images = PulledImages::of(&self.data_dir);
        let mut cached = Vec::new();
        for record in images.all() {
            match self.runtime.image_facts(&record.image)? {
                Some(ImageFacts { id, bytes }) if id == record.id => cached.push(CachedImage { record, bytes }),
                // The site has removed it, and maybe put another one there.
                _ => images.forget(&record.image)?,
            }
        }
        for image in to_remove(cached, self.max_mib << 20, &self.used_images()) {
            self.remove(&images, &image)?;
        }
        Ok(())
    }

    /// The images of attempts that have not ended.
    fn used_images(&self) -> BTreeSet<String> {
        let image = |attempt_dir: AttemptDir| {
            let has_ended = attempt_dir.exit_record().ok().flatten().is_some();
            if has_ended { None } else { attempt_dir.launch_intent().ok().flatten()?.order.run.image }
        };
        let keys = uncleaned_attempts(&self.data_dir);
        let dirs = keys.iter().filter_map(|key| AttemptDir::for_attempt(&self.data_dir, key.job(), key.attempt()).ok());
        dirs.filter_map(image).collect()
    }

    /// A runtime refuses to remove an image that a container uses, for example one of the site.
    fn remove(&self, images: &PulledImages, image: &CachedImage) -> io::Result<()> {
        let name = &image.record.image;
        let _lock = images.lock_exclusive()?;
        if self.used_images().contains(name) {
            return Ok(()); // An attempt has found it meanwhile.
        }
        match self.runtime.remove_image(name) {
            Ok(()) => {
                tracing::info!("image {name} ({} MiB) is removed: `agent.image_cache_max_mib`", image.bytes >> 20);
                images.forget(name)
            }
            Err(error) => {
                tracing::warn!("image {name} is not removed: {error}");
                Ok(())
            }
        }
    }
}

/// What must go, so that the rest is within the limit: the least recently used first, and none that is in use.
fn to_remove(mut cached: Vec<CachedImage>, max_bytes: u64, used: &BTreeSet<String>) -> Vec<CachedImage> {
    cached.sort_by(|a, b| (a.record.used_at_ms, &a.record.image).cmp(&(b.record.used_at_ms, &b.record.image)));
    let mut total: u64 = cached.iter().map(|image| image.bytes).sum();
    let mut removed = Vec::new();
    for image in cached.into_iter().filter(|image| !used.contains(&image.record.image)) {
        if total <= max_bytes {
            break;
        }
        total -= image.bytes;
        removed.push(image);
    }
    removed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cached(name: &str, bytes: u64, used_at_ms: i64) -> CachedImage {
        CachedImage { record: PulledImage { image: name.to_string(), id: String::new(), used_at_ms }, bytes }
    }

    #[test]
    fn the_least_recently_used_go_first_and_no_more_than_needed() {
        let all = || vec![cached("new", 10, 30), cached("old", 10, 10), cached("middle", 10, 20)];
        let names = |max_bytes, used: &[&str]| {
            let used = used.iter().map(ToString::to_string).collect();
            to_remove(all(), max_bytes, &used).into_iter().map(|image| image.record.image).collect::<Vec<_>>()
        };
        assert_eq!(names(30, &[]), [""; 0]);
        assert_eq!(names(29, &[]), ["old"]);
        assert_eq!(names(15, &["old"]), ["middle", "new"]);
        assert_eq!(names(0, &["old", "new"]), ["middle"], "more than the limit is in use");
    }
}

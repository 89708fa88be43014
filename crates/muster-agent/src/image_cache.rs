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
        let max_bytes = self.max_mib << 20;
        evict(cached, max_bytes, |image| self.remove(&images, image))
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

    /// False if the image stays. A runtime refuses to remove an image that a container uses, for example one of the site.
    fn remove(&self, images: &PulledImages, image: &CachedImage) -> io::Result<bool> {
        let name = &image.record.image;
        // No shim looks for an image meanwhile; the attempts of those that have found one count already.
        let _lock = images.lock_exclusive()?;
        if self.used_images().contains(name) {
            return Ok(false);
        }
        if let Err(error) = self.runtime.remove_image(name) {
            tracing::warn!("image {name} is not removed: {error}");
            return Ok(false);
        }
        tracing::info!("image {name} ({} MiB) is removed: `agent.image_cache_max_mib`", image.bytes >> 20);
        images.forget(name).map(|()| true)
    }
}

/// Removes images until the rest is within the limit: the least recently used first, and the next one if one must stay.
fn evict(
    mut cached: Vec<CachedImage>,
    max_bytes: u64,
    mut remove: impl FnMut(&CachedImage) -> io::Result<bool>,
) -> io::Result<()> {
    cached.sort_by(|a, b| (a.record.used_at_ms, &a.record.image).cmp(&(b.record.used_at_ms, &b.record.image)));
    let mut total: u64 = cached.iter().map(|image| image.bytes).sum();
    for image in &cached {
        if total <= max_bytes {
            return Ok(());
        }
        if remove(image)? {
            total -= image.bytes;
        }
    }
    Ok(())
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
            let mut removed = Vec::new();
            let remove = |image: &CachedImage| {
                let is_free = !used.contains(&image.record.image.as_str());
                removed.extend(is_free.then(|| image.record.image.clone()));
                Ok(is_free)
            };
            evict(all(), max_bytes, remove).unwrap();
            removed
        };
        assert_eq!(names(30, &[]), [""; 0]);
        assert_eq!(names(29, &[]), ["old"]);
        assert_eq!(names(15, &["old"]), ["middle", "new"]);
        assert_eq!(names(0, &["old", "new"]), ["middle"], "more than the limit is in use");
    }
}

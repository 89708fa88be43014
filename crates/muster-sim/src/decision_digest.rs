//! The decision digest: a hash over which gang starts where and when, which jobs are evicted for which preemptor,
//! and which GPUs are repartitioned.
//!
//! It depends on ids, placements and times and on no name in the code, so that two builds can be compared across a
//! renaming of types, events or fields. See docs/testing.md.

use std::fmt::{self, Write};

use muster_core::gpu::gpu_share::ShareMode;
use muster_core::objects::job::PlacedTask;
use muster_core::{Event, JobId, Timestamp};
use muster_store::Entry;
use sha2::{Digest as _, Sha256};

/// The hexadecimal digits that are shown. Half of a SHA-256 distinguishes billions of builds.
const HEX_DIGITS_SHOWN: usize = 32;

/// The hash and number of the decisions so far.
#[derive(Debug, Clone, Default)]
pub struct DecisionDigest {
    hash: Sha256,
    decisions: u64,
}

impl PartialEq for DecisionDigest {
    fn eq(&self, other: &DecisionDigest) -> bool {
        self.decisions == other.decisions && self.to_string() == other.to_string()
    }
}

impl DecisionDigest {
    /// The decisions of a journal.
    pub fn from_journal(entries: &[Entry]) -> DecisionDigest {
        let mut digest = DecisionDigest::default();
        entries.iter().for_each(|entry| digest.add_event(&entry.event));
        digest
    }

    /// The number of decisions.
    pub fn decisions(&self) -> u64 {
        self.decisions
    }

    /// Adds the start of a gang.
    pub fn add_start(&mut self, job: JobId, tasks: &[PlacedTask], at: Timestamp) {
        self.add(&format!("start {job} {} at {}", DisplayPlacement(tasks), at.0));
    }

    /// Adds the stop of a job before its end.
    pub fn add_stop(&mut self, job: JobId, at: Timestamp) {
        self.add(&format!("stop {job} at {}", at.0));
    }

    fn add_event(&mut self, event: &Event) {
        match event {
            Event::JobPlaced { job, tasks, at, .. } => self.add_start(*job, tasks, *at),
            Event::AttemptStopping { job, at, .. } => self.add_stop(*job, *at),
            Event::ClaimMade { job, tasks, victims, at, .. } => {
                let victims: Vec<String> = victims.iter().map(ToString::to_string).collect();
                let victims = victims.join(",");
                self.add(&format!("evict {victims} for {job} {} at {}", DisplayPlacement(tasks), at.0));
            }
            Event::GpuPartitioned { gpu, instances, at, .. } => {
                let instances = instances.iter().map(|one| format!("{}@{}", one.profile, one.start));
                let instances: Vec<String> = instances.collect();
                self.add(&format!("partition {gpu} {} at {}", instances.join(","), at.0));
            }
            _ => {}
        }
    }

    fn add(&mut self, decision: &str) {
        self.hash.update(decision.as_bytes());
        self.hash.update(b"\n");
        self.decisions += 1;
    }
}

impl fmt::Display for DecisionDigest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.hash.clone().finalize();
        bytes.iter().take(HEX_DIGITS_SHOWN / 2).try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

/// Formats the placement of a gang.
struct DisplayPlacement<'a>(&'a [PlacedTask]);

impl fmt::Display for DisplayPlacement<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for task in self.0 {
            write!(out, "{}.{}={}{:?}", task.group, task.rank, task.node, task.gpus)?;
            if let Some(share) = &task.share {
                let (compute, memory) = (share.compute_milli, share.memory_milli);
                write!(out, "/{}:{compute}:{memory}", share.mode.as_str())?;
                if let ShareMode::Mig { profile, start } = &share.mode {
                    write!(out, ":{profile}@{start}")?;
                }
            }
            out.write_char(' ')?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(node: &str, gpus: &[u8]) -> PlacedTask {
        PlacedTask { rank: 0, group: 0, node: node.parse().unwrap(), gpus: gpus.to_vec(), share: None }
    }

    #[test]
    fn a_digest_depends_on_job_node_device_and_time() {
        let of = |job, node, gpus: &[u8], at| {
            let mut digest = DecisionDigest::default();
            digest.add_start(JobId::single(job), &[task(node, gpus)], Timestamp(at));
            digest.to_string()
        };
        let one = of(1, "n1", &[0], 5);
        assert_eq!(one, of(1, "n1", &[0], 5));
        for other in [of(2, "n1", &[0], 5), of(1, "n2", &[0], 5), of(1, "n1", &[1], 5), of(1, "n1", &[0], 6)] {
            assert_ne!(one, other);
        }
        assert_eq!(one.len(), HEX_DIGITS_SHOWN);
    }
}

//! Runtimes at the levels that a forecast falls back to: job type, user, tenant, cluster.
//!
//! A start range needs a runtime for every job that runs or waits. A user without history is common, a cluster without
//! history is not: the narrowest level with enough ended jobs answers. Only what is told rests on this. Placement keeps
//! to the user's own history and the configured default (`plan/draft.rs`): a job that backfills on a runtime borrowed
//! from other users would be preempted as soon as it outlives them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::JobId;
use crate::job::{Job, JobSpec};
use crate::lasting::Lasted;
use crate::state::State;
use crate::time::Timestamp;

/// Job types remembered per tenant; the one whose last job ended longest ago makes room.
const TYPES_MAX: usize = 128;
/// A trailing hexadecimal word of at least so many characters is a hash.
const HASH_CHARS_MIN: usize = 6;

/// Recent runtimes of one tenant's jobs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Runtimes {
    all: Lasted,
    by_type: BTreeMap<String, OfType>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct OfType {
    lasted: Lasted,
    ended_at: Timestamp,
}

impl Runtimes {
    /// A job has come to its end by itself after so long.
    pub(crate) fn add(&mut self, name: &str, ms: i64, at: Timestamp) {
        self.all.add(ms);
        let name = job_type(name);
        if !self.by_type.contains_key(name) && self.by_type.len() >= TYPES_MAX {
            let oldest = self.by_type.iter().min_by_key(|(name, one)| (one.ended_at, *name));
            if let Some(oldest) = oldest.map(|(name, _)| name.clone()) {
                self.by_type.remove(&oldest);
            }
        }
        let empty = OfType { lasted: Lasted::default(), ended_at: at };
        let one = self.by_type.entry(name.to_string()).or_insert(empty);
        one.lasted.add(ms);
        one.ended_at = at;
    }
}

impl State {
    /// The usual and the longest runtime to expect of a job: of its type, its user, its tenant, or the whole cluster,
    /// whichever first has enough ended jobs. Nothing while no job of the cluster has ended.
    pub fn usual_and_longest_ms(&self, spec: &JobSpec) -> Option<(i64, i64)> {
        let tenant = self.tenants.get(&spec.tenant);
        let of_type = || tenant?.runtimes.by_type.get(job_type(&spec.name))?.lasted.usual_and_longest();
        let of_user = || tenant?.members.get(&spec.user)?.lasted.usual_and_longest();
        let of_tenant = || tenant?.runtimes.all.usual_and_longest();
        let known = of_type().or_else(of_user).or_else(of_tenant);
        known.or_else(|| self.lasted.usual_and_longest()).or_else(|| self.lasted.of_few())
    }
}

impl State {
    /// Whether a forecast of the start of a waiting job rests on the configured default runtime: no job of the cluster has
    /// ended yet, and some other job has no time limit.
    pub fn guesses_runtimes(&self, waiting: JobId) -> bool {
        let known = self.lasted.usual_and_longest().or_else(|| self.lasted.of_few());
        let unlimited = |job: &Job| job.id != waiting && job.spec.time_limit_ms.is_none();
        known.is_none() && self.jobs.values().any(unlimited)
    }
}

/// The type of a job: its name without trailing numbers and hashes, so that `train-17` and `train-9f3c1a` are `train`.
pub fn job_type(name: &str) -> &str {
    let mut rest = name;
    loop {
        let bare = rest.trim_end_matches(['-', '_', '.', ' ']).trim_end_matches(|c: char| c.is_ascii_digit());
        let bare = without_hash(bare.trim_end_matches(['-', '_', '.', ' ']));
        if bare.is_empty() {
            return name;
        }
        if bare.len() == rest.len() {
            return rest;
        }
        rest = bare;
    }
}

fn without_hash(name: &str) -> &str {
    let Some((before, last)) = name.rsplit_once(['-', '_', '.']) else { return name };
    let hexadecimal = last.len() >= HASH_CHARS_MIN && last.bytes().all(|byte| byte.is_ascii_hexdigit());
    if hexadecimal && last.bytes().any(|byte| byte.is_ascii_digit()) { before } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_type_of_a_job_is_its_name_without_numbers_and_hashes() {
        let cases = [
            ("train", "train"),
            ("train-17", "train"),
            ("train_9f3c1a", "train"),
            ("train-2024-07", "train"),
            ("resnet50-3", "resnet"),
            ("eval-facade", "eval-facade"),
            ("12", "12"),
            ("", ""),
        ];
        for (name, expected) in cases {
            assert_eq!(job_type(name), expected, "{name}");
        }
    }

    #[test]
    fn the_type_used_longest_ago_makes_room() {
        let mut runtimes = Runtimes::default();
        let name = |index: usize| format!("{}x", "a".repeat(index + 1));
        for index in 0..=TYPES_MAX {
            runtimes.add(&name(index), 5, Timestamp(index as i64));
        }
        assert_eq!(runtimes.by_type.len(), TYPES_MAX);
        assert!(!runtimes.by_type.contains_key(&name(0)) && runtimes.by_type.contains_key(&name(TYPES_MAX)));
    }
}

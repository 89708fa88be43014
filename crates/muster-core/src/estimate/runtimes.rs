//! Recent runtimes of a tenant's jobs by job type: the levels that an estimate falls back to.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::estimate::recent::RecentRuntimes;
use crate::time::Timestamp;

/// Most job types per tenant; the type whose last job ended longest ago is dropped.
const TYPES_MAX: usize = 128;
/// Least length of a trailing hexadecimal word that counts as a hash.
const HASH_CHARS_MIN: usize = 6;

/// Recent runtimes of one tenant's jobs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TenantRuntimes {
    all: RecentRuntimes,
    by_type: BTreeMap<String, TypeRuntimes>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct TypeRuntimes {
    recent: RecentRuntimes,
    ended_at: Timestamp,
}

impl TenantRuntimes {
    /// Add a job that ended by itself.
    pub(crate) fn add(&mut self, name: &str, ms: i64, at: Timestamp) {
        self.all.add(ms);
        let name = job_type(name);
        if !self.by_type.contains_key(name) && self.by_type.len() >= TYPES_MAX {
            let oldest = self.by_type.iter().min_by_key(|(name, runtimes)| (runtimes.ended_at, *name));
            if let Some(oldest) = oldest.map(|(name, _)| name.clone()) {
                self.by_type.remove(&oldest);
            }
        }
        let empty = TypeRuntimes { recent: RecentRuntimes::default(), ended_at: at };
        let runtimes = self.by_type.entry(name.to_string()).or_insert(empty);
        runtimes.recent.add(ms);
        runtimes.ended_at = at;
    }
}

impl TenantRuntimes {
    /// Recent runtimes of the jobs of one type.
    pub(super) fn of_type(&self, job_name: &str) -> Option<&RecentRuntimes> {
        self.by_type.get(job_type(job_name)).map(|runtimes| &runtimes.recent)
    }

    /// Recent runtimes of all jobs of the tenant.
    pub(super) fn of_all_types(&self) -> &RecentRuntimes {
        &self.all
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
    fn the_least_recently_used_job_type_is_dropped() {
        let mut runtimes = TenantRuntimes::default();
        let name = |index: usize| format!("{}x", "a".repeat(index + 1));
        for index in 0..=TYPES_MAX {
            runtimes.add(&name(index), 5, Timestamp(index as i64));
        }
        assert_eq!(runtimes.by_type.len(), TYPES_MAX);
        assert!(!runtimes.by_type.contains_key(&name(0)) && runtimes.by_type.contains_key(&name(TYPES_MAX)));
    }
}

//! Workload mix: the task sizes of recent submissions and how often each occurred.
//!
//! Fragmentation is measured against the mix, so that the planner leaves space that future tasks can use.
//!
//! Tasks are counted when their job is accepted. Placement uses the last snapshot of the counts, which is taken after
//! every few tasks at first and after every 256 later. When the total reaches a maximum, all counts are halved, so that
//! old submissions lose weight.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::objects::job::{JobSpec, Resources};

/// Tasks between two snapshots, once at least as many have been counted.
const TASKS_PER_SNAPSHOT: u64 = 256;
/// The total at which all counts are halved.
const COUNTED_MAX: u64 = 16_384;
/// The most task sizes that are counted; the rarest are dropped.
const KINDS_MAX: usize = 512;
/// The most tasks that one task group of a submission counts for: one large gang or array is not typical.
const COUNTED_PER_GROUP_MAX: u64 = 64;

/// Task sizes, each with its number of occurrences.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "Vec<(Arc<Resources>, u64)>", into = "Vec<(Arc<Resources>, u64)>")]
pub struct TaskCounts(BTreeMap<Arc<Resources>, u64>);

/// The running counts, and the last snapshot of them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct WorkloadMix {
    counts: TaskCounts,
    counted: u64,
    next_snapshot: u64,
    snapshot: Arc<TaskCounts>,
}

impl WorkloadMix {
    /// Count the tasks of a job, or of an array of `times` jobs. Returns whether a new snapshot was taken.
    pub(crate) fn add(&mut self, spec: &JobSpec, times: u64) -> bool {
        for group in &spec.tasks {
            let tasks = u64::from(group.count).saturating_mul(times).min(COUNTED_PER_GROUP_MAX);
            self.counts.add(&group.each, tasks);
            self.counted += tasks;
        }
        let due = self.counted >= self.next_snapshot;
        if due {
            self.take_snapshot();
        }
        due
    }

    fn take_snapshot(&mut self) {
        if self.counted >= COUNTED_MAX {
            self.counts.0.values_mut().for_each(|count| *count /= 2);
            self.counted = self.counts.0.values().sum();
        }
        self.counts.forget_the_rarest();
        self.next_snapshot = (self.counted * 2).min(self.counted + TASKS_PER_SNAPSHOT).max(1);
        self.snapshot = Arc::new(self.counts.clone());
    }

    /// The counts that placement uses.
    pub fn snapshot(&self) -> &Arc<TaskCounts> {
        &self.snapshot
    }
}

impl TaskCounts {
    /// Each task size with its number of occurrences.
    pub fn iter(&self) -> impl Iterator<Item = (&Resources, u64)> {
        self.0.iter().map(|(each, count)| (each.as_ref(), *count))
    }

    fn add(&mut self, each: &Resources, tasks: u64) {
        match self.0.get_mut(each) {
            Some(count) => *count += tasks,
            None => drop(self.0.insert(Arc::new(each.clone()), tasks)),
        }
    }

    fn forget_the_rarest(&mut self) {
        self.0.retain(|_, count| *count > 0);
        if self.0.len() > KINDS_MAX {
            let mut counts: Vec<u64> = self.0.values().copied().collect();
            counts.sort_unstable_by(|a, b| b.cmp(a));
            let least = counts[KINDS_MAX - 1];
            self.0.retain(|_, count| *count > least);
        }
    }
}

impl From<Vec<(Arc<Resources>, u64)>> for TaskCounts {
    fn from(kinds: Vec<(Arc<Resources>, u64)>) -> TaskCounts {
        TaskCounts(kinds.into_iter().collect())
    }
}

impl From<TaskCounts> for Vec<(Arc<Resources>, u64)> {
    fn from(kinds: TaskCounts) -> Vec<(Arc<Resources>, u64)> {
        kinds.0.into_iter().collect()
    }
}

//! What has been asked for of late: the kinds of tasks that came, and how often. The planner places tasks so that what
//! comes next still fits, and what comes next is learned from what came.
//!
//! Kinds are counted as jobs are accepted. Now and then a lesson is drawn, and placements go by the last lesson: early on
//! after every few tasks, later after every 256. When many have been counted all counts are halved, so that what came
//! long ago fades.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::job::{JobSpec, Resources};

/// So many tasks between two lessons, once there were as many.
const LESSON: u64 = 256;
/// When so many tasks are counted, all counts are halved.
const COUNTED_MAX: u64 = 16_384;
/// Most kinds of tasks that are told apart; the rarest are forgotten.
const KINDS_MAX: usize = 512;
/// A gang or an array counts for no more tasks than this: one large submission is not what everyone asks for.
const AT_ONCE_MAX: u64 = 64;

/// The kinds of tasks that came, and how often.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "Vec<(Arc<Resources>, u64)>", into = "Vec<(Arc<Resources>, u64)>")]
pub struct Kinds(BTreeMap<Arc<Resources>, u64>);

/// The mix of tasks as it is counted, and the last lesson.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Mix {
    counts: Kinds,
    counted: u64,
    next_lesson: u64,
    lesson: Arc<Kinds>,
}

impl Mix {
    /// Count the tasks of a job, or of so many tasks of an array. Whether a new lesson was drawn.
    pub(crate) fn add(&mut self, spec: &JobSpec, times: u64) -> bool {
        for group in &spec.tasks {
            let tasks = u64::from(group.count).saturating_mul(times).min(AT_ONCE_MAX);
            self.counts.add(&group.each, tasks);
            self.counted += tasks;
        }
        let due = self.counted >= self.next_lesson;
        if due {
            self.learn();
        }
        due
    }

    fn learn(&mut self) {
        if self.counted >= COUNTED_MAX {
            self.counts.0.values_mut().for_each(|count| *count /= 2);
            self.counted = self.counts.0.values().sum();
        }
        self.counts.forget_the_rarest();
        self.next_lesson = (self.counted * 2).min(self.counted + LESSON).max(1);
        self.lesson = Arc::new(self.counts.clone());
    }

    /// What placements go by.
    pub fn lesson(&self) -> &Arc<Kinds> {
        &self.lesson
    }
}

impl Kinds {
    /// Each kind with how often it came.
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

impl From<Vec<(Arc<Resources>, u64)>> for Kinds {
    fn from(kinds: Vec<(Arc<Resources>, u64)>) -> Kinds {
        Kinds(kinds.into_iter().collect())
    }
}

impl From<Kinds> for Vec<(Arc<Resources>, u64)> {
    fn from(kinds: Kinds) -> Vec<(Arc<Resources>, u64)> {
        kinds.0.into_iter().collect()
    }
}

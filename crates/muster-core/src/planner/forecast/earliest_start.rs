//! Earliest start: the first time at which a waiting job could start if every other job ended now. The start range of
//! a forecast never begins before it.
//!
//! Two bounds are certain: the begin time of the job, and windows closed to it on all nodes that could hold it.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::{JobId, NodeId};
use crate::objects::job::Job;
use crate::objects::shape::Shape;
use crate::queue::Bucket;
use crate::state::State;
use crate::time::Timestamp;

/// Earliest starts as of `now`. Jobs of one bucket with equal time limit and begin time share the result.
pub struct EarliestStarts<'a> {
    state: &'a State,
    now: Timestamp,
    known: BTreeMap<(Bucket, Option<i64>, Timestamp), Timestamp>,
}

impl<'a> EarliestStarts<'a> {
    pub fn new(state: &'a State, now: Timestamp) -> EarliestStarts<'a> {
        EarliestStarts { state, now, known: BTreeMap::new() }
    }

    pub fn of(&mut self, job: JobId) -> Timestamp {
        let Some(job) = self.state.jobs.get(&job) else { return self.now };
        let begin = self.begin(job);
        if self.state.windows.is_empty() {
            return begin;
        }
        // A bucket rounds time limits up, but windows are checked against the exact limit.
        let key = (self.state.bucket(job), job.spec.time_limit_ms, begin);
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        let earliest = after_windows(self.state, job, begin);
        self.known.insert(key, earliest);
        earliest
    }

    /// The begin time of a job, or its wake time after a failure, unless a policy may still shorten that sleep.
    fn begin(&self, job: &Job) -> Timestamp {
        let awaits_policy = self.state.policies.failures.contains_key(&job.id);
        let wakes_at = job.wakes_at.filter(|_| !awaits_policy);
        job.spec.start_after.into_iter().chain(wakes_at).fold(self.now, Timestamp::max)
    }
}

/// The first time from `begin` on at which the nodes without a closed window could hold the job when empty. It is
/// `begin` if there is none, because then windows are not what the job waits for.
fn after_windows(state: &State, job: &Job, begin: Timestamp) -> Timestamp {
    let shape = Shape::of(&job.spec);
    let ends = state.windows.values().map(|window| window.until).filter(|until| *until > begin);
    let times: BTreeSet<Timestamp> = ends.chain([begin]).collect();
    let could_start = |at: &Timestamp| {
        let open = |node: &&NodeId| state.windows_admit(job, node, *at);
        let nodes: Vec<&NodeId> = state.nodes.keys().filter(open).collect();
        state.resources.subset(nodes.into_iter()).could_ever_hold(&shape)
    };
    times.into_iter().find(could_start).unwrap_or(begin)
}

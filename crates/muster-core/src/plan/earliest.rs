//! The earliest moment at which a waiting job could start if everything else ended now: a start range never begins
//! before it.
//!
//! Two things are certain: the job's own begin time, and windows that are closed to it on all nodes that could hold it.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::{JobId, NodeId};
use crate::job::Job;
use crate::queue::{Bucket, Shape};
use crate::state::State;
use crate::time::Timestamp;

/// Earliest starts at a moment. Jobs of one bucket that begin alike share the answer.
pub struct EarliestStarts<'a> {
    state: &'a State,
    now: Timestamp,
    known: BTreeMap<(Bucket, Option<i64>, Timestamp), Timestamp>,
}

impl<'a> EarliestStarts<'a> {
    /// As seen from a moment.
    pub fn new(state: &'a State, now: Timestamp) -> EarliestStarts<'a> {
        EarliestStarts { state, now, known: BTreeMap::new() }
    }

    /// The earliest start of a job.
    pub fn of(&mut self, job: JobId) -> Timestamp {
        let Some(job) = self.state.jobs.get(&job) else { return self.now };
        let begin = self.begin(job);
        if self.state.windows.is_empty() {
            return begin;
        }
        // A bucket rounds time limits up, and windows go by the exact one.
        let key = (self.state.bucket(job), job.spec.time_limit_ms, begin);
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        let earliest = after_windows(self.state, job, begin);
        self.known.insert(key, earliest);
        earliest
    }

    /// Its begin time, or the end of its sleep after a failure. A sleep that a policy may still shorten is not certain.
    fn begin(&self, job: &Job) -> Timestamp {
        let asleep = self.state.policies.failures.contains_key(&job.id);
        let wakes_at = job.wakes_at.filter(|_| !asleep);
        job.spec.start_after.into_iter().chain(wakes_at).fold(self.now, Timestamp::max)
    }
}

/// The first moment from `begin` on at which the nodes without a closed window could hold the job when empty; `begin`
/// itself where that is never so, because then windows are not what the job waits for.
fn after_windows(state: &State, job: &Job, begin: Timestamp) -> Timestamp {
    let shape = Shape::of(&job.spec);
    let ends = state.windows.values().map(|window| window.until).filter(|until| *until > begin);
    let moments: BTreeSet<Timestamp> = ends.chain([begin]).collect();
    let could_start = |at: &Timestamp| {
        let open = |node: &&NodeId| state.windows_admit(job, node, *at);
        let nodes: Vec<&NodeId> = state.nodes.keys().filter(open).collect();
        state.capacity.only(nodes.into_iter()).could_ever_hold(&shape)
    };
    moments.into_iter().find(could_start).unwrap_or(begin)
}

//! The copy of the state that all evaluations share, with the answers already found on it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use muster_core::plan::{self, Forecast, Remedy};
use muster_core::queue::{Bucket, place_of};
use muster_core::{Actor, Job, JobId, State, Timestamp};

use super::{Evaluations, lock};
use crate::cluster::Cluster;

/// Up to so many jobs a copy is cheap: a reader always finds the newest state.
const SMALL_JOBS_MAX: usize = 2_000;
/// A larger copy serves for so many times as long as it took to make. Copying then takes at most a tenth of the time,
/// however fast the state changes.
const REUSED_TIMES: u32 = 10;
/// How long answers stay true of a state that does not change: aging and time limits go on.
const ANSWERS_MS: i64 = 5_000;

/// What jobs with the same remedies have in common.
#[derive(PartialEq, Eq, Hash)]
struct RemedyKey {
    bucket: Bucket,
    /// The first of a bucket may have a reservation, those behind it have none.
    is_first: bool,
    /// The highest priority that the caller may give to the job.
    ceiling: u32,
}

/// A copy of the state at one moment. Answers are kept for each shape of job, because jobs that the planner need not
/// tell apart have the same answer.
pub struct SharedCopy {
    state: Arc<State>,
    now: Timestamp,
    made: Instant,
    cost: Duration,
    forecast: OnceLock<Forecast>,
    remedies: Mutex<HashMap<RemedyKey, Arc<Vec<Remedy>>>>,
}

impl Evaluations {
    /// The shared copy; a new one if the state has changed since the last was made. It knows the job, if that lives.
    pub fn shared(&self, cluster: &Cluster, job: Option<JobId>) -> Arc<SharedCopy> {
        // Whoever needs a copy while one is made waits for it here.
        let mut held = lock(&self.copy);
        let seq = cluster.read(|state| state.seq);
        let (now, made) = (cluster.now(), Instant::now());
        let knows_it = |copy: &SharedCopy| job.is_none_or(|job| copy.state.jobs.contains_key(&job));
        let known = held.take().filter(|copy| copy.serves(seq, made, knows_it(copy)));
        let copy = match known {
            Some(copy) if now.since(copy.now) < ANSWERS_MS => copy,
            Some(copy) => Arc::new(SharedCopy::new(copy.state.clone(), now, (copy.made, copy.cost))),
            None => {
                let state = Arc::new(cluster.read(State::clone));
                lock(&self.counts).copies += 1;
                Arc::new(SharedCopy::new(state, now, (made, made.elapsed())))
            }
        };
        *held = Some(copy.clone());
        copy
    }
}

impl SharedCopy {
    fn new(state: Arc<State>, now: Timestamp, (made, cost): (Instant, Duration)) -> SharedCopy {
        let now = now.max(state.clock);
        let (forecast, remedies) = (OnceLock::new(), Mutex::default());
        SharedCopy { state, now, made, cost, forecast, remedies }
    }

    /// The state.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The moment its answers speak of.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    fn serves(&self, seq: u64, now: Instant, knows_the_job: bool) -> bool {
        let is_large = self.state.jobs.len() > SMALL_JOBS_MAX;
        let age = now.saturating_duration_since(self.made);
        self.state.seq == seq || (is_large && knows_the_job && age < self.cost * REUSED_TIMES)
    }

    /// When each job starts, looking ahead for so many rounds. One forecast answers for every job.
    pub fn forecast(&self, rounds: usize) -> &Forecast {
        self.forecast.get_or_init(|| plan::forecast(&self.state, self.now, rounds))
    }

    /// The smallest changes with which a waiting job starts at once, among those that the caller may make.
    pub fn remedies(&self, by: &Actor, id: JobId) -> Arc<Vec<Remedy>> {
        let Some(job) = self.state.jobs.get(&id).filter(|job| by.may_change(&job.spec)) else {
            return Arc::default();
        };
        let find = || Arc::new(plan::remedies(&self.state, by, id, self.now));
        let Some(key) = self.key(by, job) else { return find() };
        let known = lock(&self.remedies).get(&key).cloned();
        known.unwrap_or_else(|| {
            let found = find();
            lock(&self.remedies).insert(key, found.clone());
            found
        })
    }

    /// `None` for a job that is not ready.
    fn key(&self, by: &Actor, job: &Job) -> Option<RemedyKey> {
        let bucket = self.state.bucket(job);
        let places = self.state.queue.bucket(&bucket)?;
        let place = place_of(job);
        let is_first = places.first() == Some(&place);
        let ceiling = self.state.priority_ceiling(by, &job.spec.tenant).priority;
        places.contains(&place).then_some(RemedyKey { bucket, is_first, ceiling })
    }
}

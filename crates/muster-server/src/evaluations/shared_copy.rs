//! The copy of the state that all evaluations share, with a cache of their results.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use muster_core::objects::job::Job;
use muster_core::planner;
use muster_core::planner::{Forecast, Remedy};
use muster_core::queue::{Bucket, queue_key};
use muster_core::{Actor, JobId, State, Timestamp};

use super::{EvaluationLimiter, lock};
use crate::cluster::Cluster;

/// With at most this many jobs a copy is cheap, and every reader gets the newest state.
const ALWAYS_FRESH_JOBS_MAX: usize = 2_000;
/// A larger copy is reused for this many times the duration of copying. Copying then takes at most a tenth of the time,
/// however fast the state changes.
const REUSE_PER_COPY_TIME: u32 = 10;
/// How long cached answers are valid for an unchanged state: aging and time limits depend on the clock.
const ANSWERS_VALID_MS: i64 = 5_000;

/// Jobs with the same key have the same remedies.
#[derive(PartialEq, Eq, Hash)]
struct RemedyKey {
    bucket: Bucket,
    /// Only the first job of a bucket may have a reservation.
    is_first: bool,
    /// The caller's priority ceiling for the job.
    ceiling: u32,
}

/// A copy of the state at one moment. Remedies are cached per bucket, because the planner treats its jobs alike.
pub struct SharedCopy {
    state: Arc<State>,
    now: Timestamp,
    copied_at: Instant,
    copy_time: Duration,
    forecast: OnceLock<Forecast>,
    remedies: Mutex<HashMap<RemedyKey, Arc<Vec<Remedy>>>>,
}

impl EvaluationLimiter {
    /// The shared copy, or a new one if the state has changed since. It contains `job`, if the job is live.
    pub fn shared_copy(&self, cluster: &Cluster, job: Option<JobId>) -> Arc<SharedCopy> {
        // Readers that need a copy while another reader makes one wait for it here.
        let mut shared = lock(&self.copy);
        let seq = cluster.read(|state| state.seq);
        let (now, began) = (cluster.now(), Instant::now());
        let has_job = |copy: &SharedCopy| job.is_none_or(|job| copy.state.jobs.contains_key(&job));
        let reusable = shared.take().filter(|copy| copy.is_reusable(seq, began, has_job(copy)));
        let copy = match reusable {
            Some(copy) if now.since(copy.now) < ANSWERS_VALID_MS => copy,
            Some(copy) => Arc::new(SharedCopy::new(copy.state.clone(), now, (copy.copied_at, copy.copy_time))),
            None => {
                let state = Arc::new(cluster.read(State::clone));
                lock(&self.counts).copies += 1;
                Arc::new(SharedCopy::new(state, now, (began, began.elapsed())))
            }
        };
        *shared = Some(copy.clone());
        copy
    }
}

impl SharedCopy {
    fn new(state: Arc<State>, now: Timestamp, (copied_at, copy_time): (Instant, Duration)) -> SharedCopy {
        let now = now.max(state.clock);
        let (forecast, remedies) = (OnceLock::new(), Mutex::default());
        SharedCopy { state, now, copied_at, copy_time, forecast, remedies }
    }

    pub fn state(&self) -> &State {
        &self.state
    }

    /// The time for which the copy answers.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    fn is_reusable(&self, seq: u64, now: Instant, has_job: bool) -> bool {
        let is_large = self.state.jobs.len() > ALWAYS_FRESH_JOBS_MAX;
        let age = now.saturating_duration_since(self.copied_at);
        self.state.seq == seq || (is_large && has_job && age < self.copy_time * REUSE_PER_COPY_TIME)
    }

    /// The forecast of all jobs over this many rounds. It is computed once per copy.
    pub fn forecast(&self, rounds: usize) -> &Forecast {
        self.forecast.get_or_init(|| planner::forecast(&self.state, self.now, rounds))
    }

    /// The smallest changes that start a waiting job now, among those that the caller may make.
    pub fn remedies(&self, by: &Actor, id: JobId) -> Arc<Vec<Remedy>> {
        let Some(job) = self.state.jobs.get(&id).filter(|job| by.may_change(&job.spec)) else {
            return Arc::default();
        };
        let find = || Arc::new(planner::remedies(&self.state, by, id, self.now));
        let Some(key) = self.remedy_key(by, job) else { return find() };
        let known = lock(&self.remedies).get(&key).cloned();
        known.unwrap_or_else(|| {
            let found = find();
            lock(&self.remedies).insert(key, found.clone());
            found
        })
    }

    /// `None` for a job that is not ready.
    fn remedy_key(&self, by: &Actor, job: &Job) -> Option<RemedyKey> {
        let bucket = self.state.bucket(job);
        let jobs = self.state.queue.bucket(&bucket)?;
        let key = queue_key(job);
        let is_first = jobs.first() == Some(&key);
        let ceiling = self.state.priority_ceiling(by, &job.spec.tenant).priority;
        jobs.contains(&key).then_some(RemedyKey { bucket, is_first, ceiling })
    }
}

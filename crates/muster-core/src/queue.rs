//! The queue: all queued jobs, grouped into buckets so that the planner compares buckets instead of single jobs.
//!
//! Jobs with the same shape, tenant, user, priority and rounded time limit form one bucket, ordered by submission.
//! Aging never changes the order within a bucket, so the planner compares only the heads of buckets. If the head does
//! not fit, no other job of its bucket fits.

mod bucket;

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::{JobId, TenantId};
use crate::objects::job::{Job, Phase};
use crate::time::Timestamp;

pub(crate) use bucket::PolicyReads;
pub use bucket::{Bucket, BucketCriteria, PolicyAttributes, bucket_of};

/// The sort key of a job within its bucket: earlier submission first, then the lower id.
pub type QueueKey = (Timestamp, JobId);

/// All queued jobs. Derived from the jobs; `State::check` rebuilds it and compares.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Queue {
    /// Jobs that may be placed now.
    ready: BTreeMap<Bucket, BTreeSet<QueueKey>>,
    /// Number of buckets of ready jobs, by tenant.
    tenants: BTreeMap<TenantId, usize>,
    /// Jobs that wait until a point in time, by that time.
    asleep: BTreeSet<(Timestamp, JobId)>,
    /// Jobs with open dependencies.
    dependent: BTreeSet<JobId>,
    /// Number of queued jobs, ready or not.
    len: u64,
}

impl Queue {
    /// Number of queued jobs, ready or not.
    pub fn len(&self) -> u64 {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All buckets of ready jobs, in a fixed order.
    pub fn buckets(&self) -> impl Iterator<Item = (&Bucket, &BTreeSet<QueueKey>)> {
        self.ready.iter()
    }

    /// The ready jobs of one bucket.
    pub fn bucket(&self, bucket: &Bucket) -> Option<&BTreeSet<QueueKey>> {
        self.ready.get(bucket)
    }

    /// Tenants with ready jobs, each once.
    pub fn tenants(&self) -> impl Iterator<Item = &TenantId> {
        self.tenants.keys()
    }

    /// Whether a tenant has ready jobs.
    pub fn has_tenant(&self, tenant: &TenantId) -> bool {
        self.tenants.contains_key(tenant)
    }

    /// Sleeping jobs whose wake time has passed.
    pub fn due(&self, now: Timestamp) -> impl Iterator<Item = JobId> + '_ {
        self.asleep.iter().take_while(move |(at, _)| *at <= now).map(|(_, job)| *job)
    }

    /// The earliest wake time of a sleeping job.
    pub fn next_wake(&self) -> Option<Timestamp> {
        self.asleep.first().map(|(at, _)| *at)
    }

    /// Add a queued job. `limited`: its array limits how many of its jobs run at once.
    pub(crate) fn add(&mut self, job: &Job, limited: bool, criteria: &BucketCriteria) {
        assert!(job.is_queued(), "{} is not queued", job.id);
        self.len += 1;
        let new = match job.wakes_at {
            _ if !job.open_dependencies.is_empty() => self.dependent.insert(job.id),
            Some(at) => self.asleep.insert((at, job.id)),
            None => self.add_ready(job, bucket_of(job, limited, criteria)),
        };
        assert!(new, "{} is queued twice", job.id);
    }

    fn add_ready(&mut self, job: &Job, bucket: Bucket) -> bool {
        if !self.ready.contains_key(&bucket) {
            *self.tenants.entry(bucket.tenant.clone()).or_default() += 1;
        }
        self.ready.entry(bucket).or_default().insert(queue_key(job))
    }

    /// Remove a job, which must not have changed since it was added. Returns its bucket if that is now empty.
    pub(crate) fn remove(&mut self, job: &Job, limited: bool, criteria: &BucketCriteria) -> Option<Bucket> {
        self.len -= 1;
        let mut emptied = None;
        let found = match job.wakes_at {
            _ if !job.open_dependencies.is_empty() => self.dependent.remove(&job.id),
            Some(at) => self.asleep.remove(&(at, job.id)),
            None => self.remove_ready(job, bucket_of(job, limited, criteria), &mut emptied),
        };
        assert!(found, "{} was not queued", job.id);
        emptied
    }

    fn remove_ready(&mut self, job: &Job, bucket: Bucket, emptied: &mut Option<Bucket>) -> bool {
        let Some(keys) = self.ready.get_mut(&bucket) else { return false };
        let found = keys.remove(&queue_key(job));
        if keys.is_empty() {
            self.ready.remove(&bucket);
            self.drop_bucket_of(&bucket.tenant);
            *emptied = Some(bucket);
        }
        found
    }

    fn drop_bucket_of(&mut self, tenant: &TenantId) {
        if let Some(buckets) = self.tenants.get_mut(tenant) {
            *buckets -= 1;
            if *buckets == 0 {
                self.tenants.remove(tenant);
            }
        }
    }
}

/// The sort key of a job within its bucket.
pub fn queue_key(job: &Job) -> QueueKey {
    (job.submitted_at, job.id)
}

/// The start of the current wait of a job, as shown to users; `None` while an attempt is active.
pub fn waiting_since(job: &Job) -> Option<Timestamp> {
    match &job.phase {
        Phase::Queued { since, .. } | Phase::Held { since, .. } => Some(*since),
        Phase::Active(_) => None,
    }
}

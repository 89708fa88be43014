//! Who waits, filed so that the planner looks at kinds of jobs and not at every job.
//!
//! Jobs that ask for the same for about as long, for the same tenant and user, at the same priority, stand in one
//! bucket in the order of their submission. Aging never changes the order inside a bucket, so the planner only compares the heads;
//! and when the head does not fit, nobody behind it does.

mod bucket;

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::{JobId, TenantId};
use crate::objects::job::{Job, Phase};
use crate::time::Timestamp;

pub(crate) use bucket::PolicyReads;
pub use bucket::{Bucket, BucketCriteria, PolicyAttributes, bucket_of};

/// A place in a bucket: earlier submission first, then the lower id.
pub type QueueKey = (Timestamp, JobId);

/// All queued jobs. Derived from the jobs; `State::check` builds it anew and compares.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Queue {
    /// Ready to be placed.
    ready: BTreeMap<Bucket, BTreeSet<QueueKey>>,
    /// How many buckets of each tenant there are.
    tenants: BTreeMap<TenantId, usize>,
    /// Asleep until a moment.
    asleep: BTreeSet<(Timestamp, JobId)>,
    /// Waiting for other jobs to end.
    dependent: BTreeSet<JobId>,
    /// How many in all.
    len: u64,
}

impl Queue {
    /// Queued jobs, ready or not.
    pub fn len(&self) -> u64 {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The buckets of jobs that are ready, in a fixed order.
    pub fn buckets(&self) -> impl Iterator<Item = (&Bucket, &BTreeSet<QueueKey>)> {
        self.ready.iter()
    }

    /// The jobs of one bucket.
    pub fn bucket(&self, bucket: &Bucket) -> Option<&BTreeSet<QueueKey>> {
        self.ready.get(bucket)
    }

    /// Tenants that have jobs that are ready, each once.
    pub fn tenants(&self) -> impl Iterator<Item = &TenantId> {
        self.tenants.keys()
    }

    /// Whether a tenant has jobs that are ready.
    pub fn has_tenant(&self, tenant: &TenantId) -> bool {
        self.tenants.contains_key(tenant)
    }

    /// Sleepers whose moment has come.
    pub fn due(&self, now: Timestamp) -> impl Iterator<Item = JobId> + '_ {
        self.asleep.iter().take_while(move |(at, _)| *at <= now).map(|(_, job)| *job)
    }

    /// The next moment at which a sleeper wakes.
    pub fn next_wake(&self) -> Option<Timestamp> {
        self.asleep.first().map(|(at, _)| *at)
    }

    /// File a job that waits. `limited` says whether its array limits how many run at once.
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

    /// Take a job out that was filed as it is now. Says which bucket is empty now, if one is.
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
        let Some(places) = self.ready.get_mut(&bucket) else { return false };
        let found = places.remove(&queue_key(job));
        if places.is_empty() {
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

/// The place of a job inside its bucket.
pub fn queue_key(job: &Job) -> QueueKey {
    (job.submitted_at, job.id)
}

/// Since when a job counts as waiting, for people.
pub fn waiting_since(job: &Job) -> Option<Timestamp> {
    match &job.phase {
        Phase::Queued { since, .. } | Phase::Held { since, .. } => Some(*since),
        Phase::Active(_) => None,
    }
}

//! What policies have answered of the jobs that wait. It is asked once for a bucket and not for each of its jobs, and of
//! kinds of nodes and not of each node.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ids::{JobId, TenantId};
use crate::objects::policy::Admission;
use crate::objects::policy::JobAnswer;
use crate::queue::Bucket;
use crate::resources::Kind;

/// What was answered of a bucket.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BucketAnswer {
    /// Whether its jobs may start now.
    pub admission: Admission,
    /// The priority they are ordered by, where that is another than they asked for.
    pub priority: Option<u32>,
    /// The most that each of their GPUs may draw.
    pub gpu_milliwatts: Option<u64>,
    /// How unwelcome they are on nodes of a kind.
    pub costs: BTreeMap<Arc<Kind>, i64>,
    /// Whether running jobs may be displaced for them.
    pub victims: BTreeMap<JobId, bool>,
    pub failed: Option<String>,
}

/// A job with a bucket and the kinds of the nodes it was asked about.
pub struct ResolvedAnswer {
    pub answered: JobAnswer,
    pub bucket: Bucket,
    /// On which kinds, with what.
    pub costs: Vec<(Arc<Kind>, i64)>,
}

/// What was answered of all who wait.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BucketAnswers(BTreeMap<Bucket, BucketAnswer>);

impl BucketAnswers {
    /// What was answered of a bucket; nothing if it was not asked about yet.
    pub fn of(&self, bucket: &Bucket) -> Option<&BucketAnswer> {
        self.0.get(bucket)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Bucket, &BucketAnswer)> {
        self.0.iter()
    }

    /// Take an answer. What is said of kinds and of victims is added to what is known.
    pub(crate) fn put(&mut self, given: ResolvedAnswer) {
        let ResolvedAnswer { answered, bucket, costs } = given;
        let answer = self.0.entry(bucket).or_default();
        answer.admission = answered.admission;
        answer.priority = answered.priority;
        answer.gpu_milliwatts = answered.gpu_milliwatts;
        answer.failed = answered.failed;
        answer.costs.extend(costs);
        answer.victims.extend(answered.victims);
    }

    /// Nobody of a bucket waits any longer.
    pub(crate) fn forget(&mut self, bucket: &Bucket) {
        self.0.remove(bucket);
    }

    /// A tenant's policies are others now.
    pub(crate) fn forget_tenant(&mut self, tenant: &TenantId) {
        self.0.retain(|bucket, _| bucket.tenant != *tenant);
    }

    /// Only some kinds of nodes are left.
    pub(crate) fn retain_kinds(&mut self, is_there: impl Fn(&Kind) -> bool) {
        self.0.values_mut().for_each(|answer| answer.costs.retain(|kind, _| is_there(kind)));
    }

    /// A running job is gone.
    pub(crate) fn forget_victim(&mut self, job: JobId) {
        self.0.values_mut().for_each(|answer| {
            answer.victims.remove(&job);
        });
    }
}

//! Policy answers for queued jobs, one per bucket. Policies are called once for a bucket instead of for each of its
//! jobs, and once for a kind of nodes instead of for each node.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ids::{JobId, TenantId};
use crate::objects::policy::Admission;
use crate::objects::policy::JobAnswer;
use crate::queue::Bucket;
use crate::resources::Kind;

/// The answer of policies for one bucket.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BucketAnswer {
    /// Whether the jobs of the bucket may start now.
    pub admission: Admission,
    /// The priority that replaces the requested one in the order.
    pub priority: Option<u32>,
    /// The power limit of each GPU.
    pub gpu_milliwatts: Option<u64>,
    /// The policy term of the placement score by kind of nodes, in thousandths of a device; lower is better.
    pub costs: BTreeMap<Arc<Kind>, i64>,
    /// Running jobs, each with whether it may be a victim for jobs of this bucket.
    pub victims: BTreeMap<JobId, bool>,
    /// The error, if a policy failed.
    pub failed: Option<String>,
}

/// An answer for a job, with the nodes resolved to kinds and the job to its bucket.
pub struct ResolvedAnswer {
    pub answered: JobAnswer,
    pub bucket: Bucket,
    pub costs: Vec<(Arc<Kind>, i64)>,
}

/// The answers for all queued jobs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BucketAnswers(BTreeMap<Bucket, BucketAnswer>);

impl BucketAnswers {
    /// The answer for a bucket; `None` if policies have not been called for it yet.
    pub fn of(&self, bucket: &Bucket) -> Option<&BucketAnswer> {
        self.0.get(bucket)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Bucket, &BucketAnswer)> {
        self.0.iter()
    }

    /// Record an answer. Costs and victims are added to those recorded before.
    pub(crate) fn put(&mut self, resolved: ResolvedAnswer) {
        let ResolvedAnswer { answered, bucket, costs } = resolved;
        let answer = self.0.entry(bucket).or_default();
        answer.admission = answered.admission;
        answer.priority = answered.priority;
        answer.gpu_milliwatts = answered.gpu_milliwatts;
        answer.failed = answered.failed;
        answer.costs.extend(costs);
        answer.victims.extend(answered.victims);
    }

    /// Remove the answer for a bucket that is empty.
    pub(crate) fn forget(&mut self, bucket: &Bucket) {
        self.0.remove(bucket);
    }

    /// Remove all answers for jobs of a tenant, because its policies changed.
    pub(crate) fn forget_tenant(&mut self, tenant: &TenantId) {
        self.0.retain(|bucket, _| bucket.tenant != *tenant);
    }

    /// Remove the costs of kinds that are not registered any more.
    pub(crate) fn retain_kinds(&mut self, is_registered: impl Fn(&Kind) -> bool) {
        self.0.values_mut().for_each(|answer| answer.costs.retain(|kind, _| is_registered(kind)));
    }

    /// Remove a job that no longer runs from all victims.
    pub(crate) fn forget_victim(&mut self, job: JobId) {
        self.0.values_mut().for_each(|answer| {
            answer.victims.remove(&job);
        });
    }
}

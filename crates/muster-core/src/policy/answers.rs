//! What policies have answered of the jobs that wait. It is asked once for a bucket and not for each of its jobs, and of
//! kinds of nodes and not of each node.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::capacity::Kind;
use crate::ids::{JobId, NodeId, TenantId};
use crate::queue::Bucket;

/// Whether a job may be accepted, and may start now.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(tag = "word", rename_all = "kebab-case")]
pub enum Admission {
    /// It may.
    #[default]
    Yes,
    /// Not now.
    Wait {
        /// Why, in the words of the policy.
        why: String,
    },
    /// Never: it is not accepted, and if it waits already it does not start.
    Refuse {
        /// Why, in the words of the policy.
        why: String,
    },
}

impl Admission {
    /// The stricter of both: no is no, whoever says it first.
    pub fn and(self, other: Admission) -> Admission {
        match (&self, &other) {
            (Admission::Yes, _) | (Admission::Wait { .. }, Admission::Refuse { .. }) => other,
            _ => self,
        }
    }
}

/// What was answered of one job, as events tell it. It holds for all jobs of its bucket, and each node for all of its kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answered {
    /// Which job was asked about.
    pub job: JobId,
    /// The key of its bucket then: if it was changed since, the answer is about something else.
    #[serde(default)]
    pub bucket: String,
    /// Whether it may start now.
    #[serde(default, skip_serializing_if = "is_yes")]
    pub admission: Admission,
    /// The priority it is ordered by, where that is another than it asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    /// The most that each of its GPUs may draw.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_milliwatts: Option<u64>,
    /// How unwelcome it is on a node, in thousandths of a device; less than nothing where it is welcome.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub costs: Vec<(NodeId, i64)>,
    /// Whether a running job may be displaced for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub victims: Vec<(JobId, bool)>,
    /// What went wrong while it was asked, if anything: then the rest is what was configured for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

fn is_yes(admission: &Admission) -> bool {
    *admission == Admission::Yes
}

impl Answered {
    /// Nothing is said against a job.
    pub fn of(job: JobId, bucket: &Bucket) -> Answered {
        Answered {
            job,
            bucket: bucket.key(),
            admission: Admission::Yes,
            priority: None,
            gpu_milliwatts: None,
            costs: Vec::new(),
            victims: Vec::new(),
            failed: None,
        }
    }
}

/// What was answered of a bucket.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Answer {
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
    /// What went wrong.
    pub failed: Option<String>,
}

/// A job with a bucket and the kinds of the nodes it was asked about.
pub struct Given {
    /// What was answered.
    pub answered: Answered,
    /// Of whom.
    pub bucket: Bucket,
    /// On which kinds, with what.
    pub costs: Vec<(Arc<Kind>, i64)>,
}

/// What was answered of all who wait.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Answers(BTreeMap<Bucket, Answer>);

impl Answers {
    /// What was answered of a bucket; nothing if it was not asked about yet.
    pub fn of(&self, bucket: &Bucket) -> Option<&Answer> {
        self.0.get(bucket)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&Bucket, &Answer)> {
        self.0.iter()
    }

    /// Take an answer. What is said of kinds and of victims is added to what is known.
    pub(crate) fn put(&mut self, given: Given) {
        let Given { answered, bucket, costs } = given;
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

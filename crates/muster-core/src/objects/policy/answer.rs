//! Policy answers about a waiting job: admission, priority, power limit, node costs, jobs it may preempt.

use serde::{Deserialize, Serialize};

use crate::ids::{JobId, NodeId};

/// The answer of the hook `admit`: whether a job is accepted, and whether it may start now.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Admission {
    #[default]
    Yes,
    Wait {
        /// Text from the policy.
        why: String,
    },
    /// Never: the job is not accepted, and if it waits already it does not start.
    Refuse {
        /// Text from the policy.
        why: String,
    },
}

impl Admission {
    /// The stricter of both; of two equally strict ones, the first.
    pub fn and(self, other: Admission) -> Admission {
        match (&self, &other) {
            (Admission::Yes, _) | (Admission::Wait { .. }, Admission::Refuse { .. }) => other,
            _ => self,
        }
    }
}

/// The answer about one job, as events record it. It applies to all jobs of its bucket, and a node's cost to all nodes
/// of its kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobAnswer {
    pub job: JobId,
    /// Bucket key of the job when the policy was called. If the job has moved to another bucket since, the answer is
    /// stale.
    #[serde(default)]
    pub bucket: String,
    #[serde(default, skip_serializing_if = "is_yes")]
    pub admission: Admission,
    /// Priority that orders the job, if it differs from the requested one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    /// Power limit of each of its GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_milliwatts: Option<u64>,
    /// Cost per node, in thousandths of a device; negative for a preferred node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub costs: Vec<(NodeId, i64)>,
    /// For each running job, whether it may be preempted for this job.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub victims: Vec<(JobId, bool)>,
    /// The error if the policy failed; then the other fields follow from `scheduler.policy_failure`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

fn is_yes(admission: &Admission) -> bool {
    *admission == Admission::Yes
}

impl JobAnswer {
    /// The answer without objections.
    pub fn of(job: JobId, bucket_key: String) -> JobAnswer {
        JobAnswer {
            job,
            bucket: bucket_key,
            admission: Admission::Yes,
            priority: None,
            gpu_milliwatts: None,
            costs: Vec::new(),
            victims: Vec::new(),
            failed: None,
        }
    }
}

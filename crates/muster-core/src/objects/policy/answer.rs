//! What policies answered about a waiting job.

use serde::{Deserialize, Serialize};

use crate::ids::{JobId, NodeId};

/// Whether a job may be accepted, and may start now.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(tag = "word", rename_all = "kebab-case")]
pub enum Admission {
    #[default]
    Yes,
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
pub struct JobAnswer {
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

impl JobAnswer {
    /// Nothing is said against a job.
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

//! Buckets: equivalence classes of queued jobs, and the criteria that separate them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::estimate::expected_end::rounded_limit_ms;
use crate::ids::TenantId;
use crate::objects::job::{Job, JobSpec};
use crate::objects::shape::Shape;

/// Jobs that the planner treats alike.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bucket {
    pub tenant: TenantId,
    pub user: String,
    /// The requested priority.
    pub priority: u32,
    pub shape: Arc<Shape>,
    /// The time limit, rounded up.
    pub limit_ms: Option<i64>,
    /// The exact time limit, if a budget of the tenant must cover it.
    pub budget_limit_ms: Option<i64>,
    /// The array, if it limits how many of its jobs run at once.
    pub array: Option<u64>,
    /// Labels and fields that policies read.
    pub policy_attributes: Arc<PolicyAttributes>,
}

impl Bucket {
    /// The bucket of jobs with this specification.
    pub fn of_spec(spec: &JobSpec, array: Option<u64>, criteria: &BucketCriteria) -> Bucket {
        Bucket {
            tenant: spec.tenant.clone(),
            user: spec.user.clone(),
            priority: spec.priority,
            shape: Arc::new(Shape::of(spec)),
            limit_ms: spec.time_limit_ms.map(rounded_limit_ms),
            budget_limit_ms: spec.time_limit_ms.filter(|_| criteria.exact_limits.contains(&spec.tenant)),
            array,
            policy_attributes: criteria.policy_attributes(spec),
        }
    }

    /// A hash of all fields. A recorded answer names its bucket by it.
    pub fn key(&self) -> String {
        let Bucket { tenant, user, priority, shape, limit_ms, budget_limit_ms, array, policy_attributes: attributes } =
            self;
        let mut text = format!(
            "Bucket {{ tenant: {tenant:?}, user: {user:?}, priority: {priority:?}, shape: {shape:?}, \
             limit_ms: {limit_ms:?}, array: {array:?} }}"
        );
        if let Some(limit_ms) = budget_limit_ms {
            text.push_str(&format!("budget {limit_ms}"));
        }
        if !attributes.is_empty() {
            text.push_str(&format!("{attributes:?}"));
        }
        // FNV-1a: short and equal on all platforms. In a collision an answer for a job that has changed since
        // would be accepted; nothing worse.
        let hash = text
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        format!("{hash:016x}")
    }
}

/// The bucket of a job once it is ready.
pub fn bucket_of(job: &Job, limited: bool, criteria: &BucketCriteria) -> Bucket {
    Bucket::of_spec(&job.spec, limited.then_some(job.id.number), criteria)
}

/// What separates jobs into buckets besides their requests: the labels and fields that active policies read, and the
/// tenants whose budget must cover the exact time limit of a job.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BucketCriteria {
    pub(crate) reads: Arc<PolicyReads>,
    pub(crate) exact_limits: Arc<BTreeSet<TenantId>>,
}

impl BucketCriteria {
    /// True while no policy is active.
    pub fn reads_nothing(&self) -> bool {
        self.reads.cluster.is_none() && self.reads.tenants.is_empty()
    }

    /// The labels and fields of a job that active policies read.
    pub fn policy_attributes(&self, spec: &JobSpec) -> Arc<PolicyAttributes> {
        if self.reads_nothing() { Arc::default() } else { Arc::new(PolicyAttributes::of(spec, &self.reads)) }
    }
}

/// Labels and fields of jobs that active bundles read. The reads of a tenant's bundle separate only that tenant's jobs:
/// a bucket of another tenant would wait for answers that no bundle gives.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct PolicyReads {
    pub(crate) cluster: Option<BTreeSet<String>>,
    pub(crate) tenants: BTreeMap<TenantId, BTreeSet<String>>,
}

impl PolicyReads {
    pub(crate) fn has(&self, tenant: &TenantId, name: &str) -> bool {
        let of_scopes = [self.cluster.as_ref(), self.tenants.get(tenant)];
        of_scopes.into_iter().flatten().any(|names| names.contains(name))
    }
}

/// The labels and fields of a job that active policies read. Policies cannot distinguish jobs that are equal in these
/// and in the other fields of [`Bucket`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PolicyAttributes {
    /// Labels that a bundle mentions.
    pub labels: BTreeMap<String, String>,
    /// The job name, if a bundle reads names.
    pub name: Option<String>,
    /// The image, if a bundle reads images.
    pub image: Option<String>,
}

impl PolicyAttributes {
    fn of(spec: &JobSpec, reads: &PolicyReads) -> PolicyAttributes {
        let reads = |name: &str| reads.has(&spec.tenant, name);
        let named = spec.labels.iter().filter(|(label, _)| reads(label));
        PolicyAttributes {
            labels: named.map(|(label, value)| (label.clone(), value.clone())).collect(),
            name: reads("name").then(|| spec.name.clone()),
            image: spec.run.image.clone().filter(|_| reads("image")),
        }
    }

    pub fn is_empty(&self) -> bool {
        *self == PolicyAttributes::default()
    }
}

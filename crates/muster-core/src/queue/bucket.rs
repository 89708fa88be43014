//! Buckets: jobs that the planner need not tell apart, and what tells jobs apart.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::estimate::expected_end::rounded_limit_ms;
use crate::ids::TenantId;
use crate::objects::job::{Job, JobSpec};
use crate::objects::shape::Shape;

/// Jobs that the planner need not tell apart.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bucket {
    pub tenant: TenantId,
    pub user: String,
    /// The priority asked for.
    pub priority: u32,
    pub shape: Arc<Shape>,
    /// How long they may run, rounded up.
    pub limit_ms: Option<i64>,
    /// How long they may run, exactly, where a budget must cover it.
    pub budget_limit_ms: Option<i64>,
    /// The array, if it limits how many of its tasks run at once.
    pub array: Option<u64>,
    /// What policies could tell them by.
    pub policy_attributes: Arc<PolicyAttributes>,
}

impl Bucket {
    /// The bucket of jobs that ask for this.
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

    /// A short name for what all its jobs have in common, for the history.
    pub fn key(&self) -> String {
        let Bucket {
            tenant,
            user,
            priority,
            shape,
            limit_ms,
            budget_limit_ms,
            array,
            policy_attributes: marks,
        } = self;
        let mut text = format!(
            "Bucket {{ tenant: {tenant:?}, user: {user:?}, priority: {priority:?}, shape: {shape:?}, \
             limit_ms: {limit_ms:?}, array: {array:?} }}"
        );
        if let Some(limit_ms) = budget_limit_ms {
            text.push_str(&format!("budget {limit_ms}"));
        }
        if !marks.is_empty() {
            text.push_str(&format!("{marks:?}"));
        }
        // FNV-1a: short and the same everywhere. Two buckets with one key would share their history, no more.
        let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        format!("{hash:016x}")
    }
}

/// The bucket a job stands in when it is ready.
pub fn bucket_of(job: &Job, limited: bool, criteria: &BucketCriteria) -> Bucket {
    Bucket::of_spec(&job.spec, limited.then_some(job.id.number), criteria)
}

/// What separates jobs into buckets besides the resources they request: the labels and fields that policies in force read, and
/// the tenants whose budget must cover the exact time limit of a job.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BucketCriteria {
    pub(crate) reads: Arc<PolicyReads>,
    pub(crate) exact_limits: Arc<BTreeSet<TenantId>>,
}

impl BucketCriteria {
    /// True while no policy is in force.
    pub fn reads_nothing(&self) -> bool {
        self.reads.cluster.is_none() && self.reads.tenants.is_empty()
    }

    /// What policies could distinguish a job by, besides what every job is distinguished by.
    pub fn policy_attributes(&self, spec: &JobSpec) -> Arc<PolicyAttributes> {
        if self.reads_nothing() { Arc::default() } else { Arc::new(PolicyAttributes::of(spec, &self.reads)) }
    }
}

/// Labels and fields of jobs that bundles in force could look at. What a tenant looks at tells its own jobs apart, and
/// nobody else's: others would wait for answers that nobody gives.
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

/// What policies could tell a job by, besides what every job is told by. Jobs that differ in anything else are the same
/// to them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PolicyAttributes {
    /// Labels that some bundle names.
    pub labels: BTreeMap<String, String>,
    /// Its name, where some bundle looks at names.
    pub name: Option<String>,
    /// Its image, where some bundle looks at images.
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

    /// Whether there is nothing to tell it by.
    pub fn is_empty(&self) -> bool {
        *self == PolicyAttributes::default()
    }
}

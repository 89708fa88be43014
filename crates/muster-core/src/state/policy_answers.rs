//! Recorded answers of the active policies, as guards (steps 4 and 8) and planner (step 7) read them: admission,
//! priority class, placement costs, victims and limits.

use crate::accounting::tenant::Tenant;
use crate::facts::verdict::Reason;
use crate::ids::TenantId;
use crate::objects::job::Job;
use crate::objects::policy::rules::{DistributionStrategy, Metric, Rule};
use crate::objects::policy::{Admission, Hook};
use crate::policy::BucketAnswer;
use crate::policy::{ClusterView, Moment};
use crate::queue::Bucket;
use crate::resources::Kind;
use crate::state::State;
use crate::time::Timestamp;

impl State {
    /// The cluster as policies see it. O(GPUs).
    pub fn cluster_view(&self, now: Timestamp) -> ClusterView {
        let pools = self.policies.rules().into_iter().flat_map(|rules| rules.pools.keys());
        let mut view = ClusterView {
            gpus: 0,
            gpu_milli_held: self.tenants.values().map(|tenant| tenant.held.gpu_milli).sum(),
            pools: pools.map(|pool| (pool.clone(), 0)).collect(),
            now: Moment::of(now, self.settings.utc_offset_minutes),
        };
        for node in self.nodes.values().filter(|node| node.is_schedulable()) {
            for gpu in (0..node.facts.gpus.len()).filter(|gpu| node.gpu_usable(*gpu)) {
                view.gpus += 1;
                for pool in node.pools.get(gpu).into_iter().flat_map(|pools| pools.keys()) {
                    *view.pools.entry(pool.clone()).or_default() += 1;
                }
            }
        }
        view
    }

    /// The recorded answer about a bucket.
    pub(crate) fn bucket_answer(&self, bucket: &Bucket) -> Option<&BucketAnswer> {
        if self.policies.is_empty() { None } else { self.policies.answers.of(bucket) }
    }

    /// The answer and the priority class of a bucket.
    pub(crate) fn policy_answer(&self, bucket: &Bucket) -> PolicyAnswer<'_> {
        PolicyAnswer { answer: self.bucket_answer(bucket), class: self.policy_class(bucket) }
    }

    /// Why policies keep the jobs of a bucket waiting, if they do.
    pub(crate) fn policy_blocker(&self, bucket: &Bucket, policy: PolicyAnswer) -> Option<Reason> {
        if self.policies.is_empty() {
            return None;
        }
        match policy.answer.map(|answer| &answer.admission) {
            Some(Admission::Wait { why }) => Some(Reason::Policy { why: why.clone() }),
            Some(Admission::Refuse { why }) => Some(Reason::PolicyRefused { why: why.clone() }),
            None if self.awaits_policy_answer(bucket) => Some(Reason::PolicyUnasked),
            Some(Admission::Yes) | None => self.limit_blocker(bucket),
        }
    }

    /// Why policy limits keep the jobs of a bucket waiting, whatever they request: for the tenant or an ancestor no
    /// answer is recorded yet, or a policy failed.
    fn limit_blocker(&self, bucket: &Bucket) -> Option<Reason> {
        if !self.policies.limit_tenants() {
            return None;
        }
        let waits = self.queue.bucket(bucket).is_some();
        let blocker = |tenant: &Tenant| match self.policies.limits.get(&tenant.id) {
            Some(limited) => limited.blocked.clone().map(|why| Reason::Policy { why }),
            None => (waits && self.policies.answers_hook(Hook::Limit, &tenant.id)).then_some(Reason::PolicyUnasked),
        };
        self.lineage(&bucket.tenant).find_map(blocker)
    }

    /// True if the policy limits of a tenant and its ancestors are known.
    pub fn knows_limits(&self, tenant: &TenantId) -> bool {
        let known = |tenant: &Tenant| {
            self.policies.limits.contains_key(&tenant.id) || !self.policies.answers_hook(Hook::Limit, &tenant.id)
        };
        !self.policies.limit_tenants() || self.lineage(tenant).all(known)
    }

    /// True if a bucket has ready jobs and policies must answer before any of them starts.
    fn awaits_policy_answer(&self, bucket: &Bucket) -> bool {
        let asks = |hook| self.policies.answers_hook(hook, &bucket.tenant);
        self.queue.bucket(bucket).is_some() && Hook::OF_BUCKETS.into_iter().any(asks)
    }

    /// The priority class of a bucket by the rules of the active ruleset; 0 comes first.
    fn policy_class(&self, bucket: &Bucket) -> u32 {
        if self.policies.is_empty() {
            0
        } else {
            self.policies.priority_class(&self.settings, &bucket.policy_attributes)
        }
    }

    /// True if policies decide by victim and preemptor whether an eviction is allowed.
    pub(crate) fn policies_distinguish_victims(&self) -> bool {
        if self.policies.is_empty() {
            return false;
        }
        let orders = |rule: &Rule| matches!(rule, Rule::Priority { .. });
        let ruleset = self.policies.ruleset(&self.settings);
        let has_victims_hook =
            self.policies.active_versions().into_iter().any(|version| version.bundle.hooks.contains(&Hook::Victims));
        has_victims_hook || ruleset.is_some_and(|ruleset| ruleset.rules.iter().any(orders))
    }

    /// True if policies allow an eviction: the preemptor's priority class is not behind the victim's, and the `victims`
    /// hook does not exempt the victim. The bundles of the cluster and of the preemptor's tenant are called, not that
    /// of the victim's tenant: it could withhold capacity guaranteed to others. `unasked` is the answer before they are
    /// called.
    pub(crate) fn policies_allow_eviction(&self, bucket: &Bucket, victim: &Job, unasked: bool) -> bool {
        if self.policies.is_empty() {
            return true;
        }
        let class = self
            .policies
            .priority_class(&self.settings, &self.policies.bucket_criteria.policy_attributes(&victim.spec));
        let allowed = self.bucket_answer(bucket).and_then(|answer| answer.victims.get(&victim.id)).copied();
        let has_hook = self.policies.answers_hook(Hook::Victims, &bucket.tenant);
        self.policy_class(bucket) <= class && (!has_hook || allowed.unwrap_or(unasked))
    }

    /// True if policies distinguish nodes of one kind with the same free resources.
    pub(crate) fn policies_distinguish_nodes(&self) -> bool {
        let by_node = |rule: &Rule| {
            let by_temperature = matches!(rule, Rule::Balance { metric: Metric::Temperature, .. });
            by_temperature || matches!(rule, Rule::Distribution { strategy: DistributionStrategy::RoundRobin })
        };
        let ruleset = self.policies.ruleset(&self.settings);
        ruleset.is_some_and(|ruleset| ruleset.rules.iter().any(by_node))
    }
}

/// The policy answer about a bucket. A lookup costs more than its use, so each round looks it up once.
#[derive(Debug, Clone, Copy, Default)]
pub struct PolicyAnswer<'a> {
    answer: Option<&'a BucketAnswer>,
    /// Priority class by the rules of the active ruleset; 0 comes first.
    pub(crate) class: u32,
}

impl PolicyAnswer<'_> {
    /// The priority that orders the jobs of the bucket: the policies' answer, else the requested one.
    pub(crate) fn queue_priority(self, bucket: &Bucket) -> u32 {
        self.answer.and_then(|answer| answer.priority).unwrap_or(bucket.priority)
    }

    /// The priority by which the jobs of the bucket preempt: policies can only lower it.
    pub(crate) fn preemption_priority(self, bucket: &Bucket) -> u32 {
        self.queue_priority(bucket).min(bucket.priority)
    }

    /// The cost of placing the bucket on nodes of a kind, in thousandths of a device.
    pub(crate) fn cost_milli(self, kind: &Kind) -> i64 {
        self.answer.and_then(|answer| answer.costs.get(kind)).copied().unwrap_or(0)
    }
}

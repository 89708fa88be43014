//! What the policies in force answered, as the guards and the planner read it.

use crate::accounting::tenant::Tenant;
use crate::facts::verdict::Reason;
use crate::ids::TenantId;
use crate::objects::job::Job;
use crate::objects::policy::rules::{Layout, Metric, Rule};
use crate::objects::policy::{Admission, Hook};
use crate::policy::BucketAnswer;
use crate::policy::{ClusterView, Moment};
use crate::queue::Bucket;
use crate::resources::Kind;
use crate::state::State;
use crate::time::Timestamp;

impl State {
    /// The whole cluster as policies see it. O(GPUs).
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

    /// What policies answered of a bucket.
    pub(crate) fn bucket_answer(&self, bucket: &Bucket) -> Option<&BucketAnswer> {
        if self.policies.is_empty() { None } else { self.policies.answers.of(bucket) }
    }

    /// What policies say of a bucket.
    pub(crate) fn policy_answer(&self, bucket: &Bucket) -> PolicyAnswer<'_> {
        PolicyAnswer { answer: self.bucket_answer(bucket), class: self.policy_class(bucket) }
    }

    /// Why policies keep the jobs of a bucket waiting, if they do.
    pub(crate) fn policy_blocker(&self, bucket: &Bucket, word: PolicyAnswer) -> Option<Reason> {
        if self.policies.is_empty() {
            return None;
        }
        match word.answer.map(|answer| &answer.admission) {
            Some(Admission::Wait { why }) => Some(Reason::Policy { why: why.clone() }),
            Some(Admission::Refuse { why }) => Some(Reason::PolicyRefused { why: why.clone() }),
            None if self.awaits_policy_answer(bucket) => Some(Reason::PolicyUnasked),
            Some(Admission::Yes) | None => self.limit_blocker(bucket),
        }
    }

    /// Why the limits of policies keep the jobs of a bucket waiting whatever they ask for: of its tenant, or of one above it,
    /// nothing was answered yet, or a policy failed.
    fn limit_blocker(&self, bucket: &Bucket) -> Option<Reason> {
        if !self.policies.limit_tenants() {
            return None;
        }
        let waits = self.queue.bucket(bucket).is_some();
        let blocker = |tenant: &Tenant| match self.policies.limits.get(&tenant.id) {
            Some(limited) => limited.blocked.clone().map(|why| Reason::Policy { why }),
            None => (waits && self.policies.asks(Hook::Limit, &tenant.id)).then_some(Reason::PolicyUnasked),
        };
        self.lineage(&bucket.tenant).find_map(blocker)
    }

    /// Whether it is known how much policies let a tenant, and all above it, hold.
    pub fn knows_limits(&self, tenant: &TenantId) -> bool {
        let known = |one: &Tenant| {
            self.policies.limits.contains_key(&one.id) || !self.policies.asks(Hook::Limit, &one.id)
        };
        !self.policies.limit_tenants() || self.lineage(tenant).all(known)
    }

    /// Whether policies are to be asked of those who wait in a bucket before anyone of them starts.
    fn awaits_policy_answer(&self, bucket: &Bucket) -> bool {
        let asks = |hook| self.policies.asks(hook, &bucket.tenant);
        self.queue.bucket(bucket).is_some() && Hook::OF_BUCKETS.into_iter().any(asks)
    }

    /// Where the jobs of a bucket come by the rules of priority.
    fn policy_class(&self, bucket: &Bucket) -> u32 {
        if self.policies.is_empty() {
            0
        } else {
            self.policies.priority_class(&self.settings, &bucket.policy_attributes)
        }
    }

    /// Whether policies say of single victims that they may not be displaced for single jobs.
    pub(crate) fn policies_distinguish_victims(&self) -> bool {
        if self.policies.is_empty() {
            return false;
        }
        let orders = |rule: &Rule| matches!(rule, Rule::Priority { .. });
        let ruleset = self.policies.ruleset(&self.settings);
        let spares =
            self.policies.in_force().into_iter().any(|version| version.bundle.hooks.contains(&Hook::Victims));
        spares || ruleset.is_some_and(|ruleset| ruleset.rules.iter().any(orders))
    }

    /// Whether the policies let a job displace another: it is not less urgent by the rules, and nobody said no. Those of
    /// the cluster and of the job's own tenant are asked; a tenant cannot keep what it holds from those to whom it was
    /// promised. Where they were not asked yet, `unasked` is the answer.
    pub(crate) fn policies_allow_eviction(&self, bucket: &Bucket, victim: &Job, unasked: bool) -> bool {
        if self.policies.is_empty() {
            return true;
        }
        let class = self
            .policies
            .priority_class(&self.settings, &self.policies.bucket_criteria.policy_attributes(&victim.spec));
        let said = self.bucket_answer(bucket).and_then(|answer| answer.victims.get(&victim.id)).copied();
        let asked = self.policies.asks(Hook::Victims, &bucket.tenant);
        self.policy_class(bucket) <= class && (!asked || said.unwrap_or(unasked))
    }

    /// Whether policies tell nodes of one kind apart on which the same is free.
    pub(crate) fn policies_distinguish_nodes(&self) -> bool {
        let by_node = |rule: &Rule| {
            let warm = matches!(rule, Rule::Balance { metric: Metric::Temperature, .. });
            warm || matches!(rule, Rule::Distribution { strategy: Layout::RoundRobin })
        };
        let ruleset = self.policies.ruleset(&self.settings);
        ruleset.is_some_and(|ruleset| ruleset.rules.iter().any(by_node))
    }
}

/// What policies say of a bucket. To find it takes longer than to use it, so a round looks it up once.
#[derive(Debug, Clone, Copy, Default)]
pub struct PolicyAnswer<'a> {
    answer: Option<&'a BucketAnswer>,
    /// Where its jobs come by the rules of priority.
    pub(crate) class: u32,
}

impl PolicyAnswer<'_> {
    /// The priority that jobs of the bucket are ordered by: what they asked for, or what policies say.
    pub(crate) fn queue_priority(self, bucket: &Bucket) -> u32 {
        self.answer.and_then(|answer| answer.priority).unwrap_or(bucket.priority)
    }

    /// The priority by which they displace others: policies can only take from it.
    pub(crate) fn preemption_priority(self, bucket: &Bucket) -> u32 {
        self.queue_priority(bucket).min(bucket.priority)
    }

    /// What was answered of nodes of a kind, in thousandths of a device.
    pub(crate) fn cost_milli(self, kind: &Kind) -> i64 {
        self.answer.and_then(|answer| answer.costs.get(kind)).copied().unwrap_or(0)
    }
}

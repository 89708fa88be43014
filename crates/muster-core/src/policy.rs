//! Policies in the state: the active bundles, the rules and pools they registered, and their recorded answers.
//!
//! Nothing here runs a policy. Bundles are compiled and called elsewhere (`muster-policy`); their answers enter by
//! events with the hash of the bundle, so replay needs no policy and history shows under which rules each decision was
//! made. A policy can only narrow what invariants and quotas allow: it delays jobs, orders them, prefers placements and
//! exempts jobs from preemption. It never grants more resources.

mod answers;
mod view;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ids::{JobId, TenantId};
use crate::objects::job::JobSpec;
use crate::objects::policy::rules::{Pool, PoolDevice, Rule, Rules, Ruleset};
use crate::objects::policy::{BundleVersion, FailedAttempt, Hook, PolicyScope, TenantLimit};
use crate::objects::settings::Settings;
use crate::queue::{BucketCriteria, PolicyAttributes, PolicyReads};

pub use answers::{BucketAnswer, BucketAnswers, ResolvedAnswer};
pub use view::{CandidateView, ClusterView, JobView, Moment, NodeView, TenantView};

/// Versions kept for rollback, per scope.
const VERSIONS_KEPT: usize = 20;
/// The job label that holds the priority word, if no priority rule names another.
const PRIORITY_LABEL: &str = "job_priority";
/// The values of that label if no priority rule lists them, the most urgent first.
const PRIORITY_WORDS: [&str; 4] = ["critical", "high", "normal", "low"];

/// Active and earlier bundles, and the answers of the active ones.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policies {
    /// Versions by scope, the newest last. The newest is active unless its bundle is empty.
    versions: BTreeMap<PolicyScope, Vec<Arc<BundleVersion>>>,
    /// Answers for queued jobs.
    pub answers: BucketAnswers,
    /// Limits that policies answered for tenants with queued jobs and for all of their ancestors.
    pub limits: BTreeMap<TenantId, TenantLimit>,
    /// Failed attempts of jobs that sleep until the `retry` hook has answered.
    pub failures: BTreeMap<JobId, FailedAttempt>,
    /// Whether an active bundle has the `limit` hook. Derived.
    limits_tenants: bool,
    /// What separates jobs into buckets. Derived from the active bundles and from the budgets of tenants.
    pub bucket_criteria: BucketCriteria,
}

impl Policies {
    /// The active version of a scope.
    pub fn active(&self, scope: &PolicyScope) -> Option<&Arc<BundleVersion>> {
        self.versions.get(scope)?.last().filter(|version| !version.bundle.files.is_empty())
    }

    /// All kept versions, the oldest first.
    pub fn versions(&self) -> Vec<&Arc<BundleVersion>> {
        let mut all: Vec<&Arc<BundleVersion>> = self.versions.values().flatten().collect();
        all.sort_by_key(|version| version.number);
        all
    }

    /// A kept version by its number.
    pub fn version(&self, number: u64) -> Option<&Arc<BundleVersion>> {
        self.versions.values().flatten().find(|version| version.number == number)
    }

    /// The number of the next version.
    pub fn next_number(&self) -> u64 {
        self.versions.values().filter_map(|of_scope| Some(of_scope.last()?.number)).max().unwrap_or(0) + 1
    }

    /// Activate a bundle. Answers of the former bundle for the same jobs and tenants are dropped.
    pub(crate) fn activate(&mut self, version: BundleVersion) {
        match &version.scope {
            PolicyScope::Cluster => {
                self.answers = BucketAnswers::default();
                self.limits.clear();
            }
            PolicyScope::Tenant(tenant) => {
                self.answers.forget_tenant(tenant);
                self.limits.remove(tenant);
            }
        }
        let of_scope = self.versions.entry(version.scope.clone()).or_default();
        of_scope.push(Arc::new(version));
        if of_scope.len() > VERSIONS_KEPT {
            of_scope.remove(0);
        }
        self.derive();
    }

    /// Forget the earlier versions of a deleted tenant. The last version, which is empty, stays: so no version number
    /// is used twice, and a later tenant of the same name inherits no files.
    pub(crate) fn forget(&mut self, tenant: &TenantId) {
        if let Some(of_scope) = self.versions.get_mut(&PolicyScope::Tenant(tenant.clone())) {
            of_scope.drain(..of_scope.len().saturating_sub(1));
        }
    }

    /// All kept versions, for a savepoint.
    pub(crate) fn saved(&self) -> Vec<BundleVersion> {
        self.versions().into_iter().map(|version| (**version).clone()).collect()
    }

    /// Restore from a savepoint: versions, failed attempts and limits of tenants. Answers for jobs are not saved.
    pub(crate) fn restored(
        versions: Vec<BundleVersion>,
        failures: Vec<(JobId, FailedAttempt)>,
        limits: Vec<TenantLimit>,
    ) -> Policies {
        let limits = limits.into_iter().map(|limited| (limited.tenant.clone(), limited)).collect();
        let failures = failures.into_iter().collect();
        let mut policies = Policies { failures, limits, ..Policies::default() };
        for version in versions {
            policies.versions.entry(version.scope.clone()).or_default().push(Arc::new(version));
        }
        policies.derive();
        policies
    }

    fn derive(&mut self) {
        let mut reads = PolicyReads::default();
        for version in self.active_versions() {
            let mut names = version.bundle.mentions.clone();
            match &version.scope {
                PolicyScope::Cluster => {
                    names.insert(PRIORITY_LABEL.to_string());
                    reads.cluster = Some(names);
                }
                PolicyScope::Tenant(tenant) => drop(reads.tenants.insert(tenant.clone(), names)),
            }
        }
        self.bucket_criteria.reads = Arc::new(reads);
        let limits = |version: &&Arc<BundleVersion>| version.bundle.hooks.contains(&Hook::Limit);
        self.limits_tenants = self.active_versions().iter().any(limits);
    }

    /// All active versions.
    pub fn active_versions(&self) -> Vec<&Arc<BundleVersion>> {
        self.versions.keys().filter_map(|scope| self.active(scope)).collect()
    }

    /// True if no bundle is active.
    pub fn is_empty(&self) -> bool {
        self.bucket_criteria.reads_nothing()
    }

    /// The rules that the cluster's bundle registered.
    pub fn rules(&self) -> Option<&Rules> {
        self.active(&PolicyScope::Cluster).map(|version| &version.bundle.rules)
    }

    pub fn pool(&self, name: &str) -> Option<&Pool> {
        self.rules()?.pools.get(name)
    }

    /// The active bundles that apply to a tenant and have a hook; the cluster's first.
    pub fn bundles_answering<'a>(
        &'a self,
        hook: Hook,
        tenant: &TenantId,
    ) -> impl Iterator<Item = &'a Arc<BundleVersion>> {
        let scopes = [PolicyScope::Cluster, PolicyScope::Tenant(tenant.clone())];
        let versions = scopes.into_iter().filter_map(|scope| self.active(&scope));
        versions.filter(move |version| version.bundle.hooks.contains(&hook))
    }

    /// Whether the cluster's bundle has a hook. A tenant's bundle can only narrow what the cluster's bundle allows.
    pub fn cluster_answers(&self, hook: Hook) -> bool {
        self.active(&PolicyScope::Cluster).is_some_and(|version| version.bundle.hooks.contains(&hook))
    }

    /// Whether any active bundle has a hook for a tenant.
    pub fn answers_hook(&self, hook: Hook, tenant: &TenantId) -> bool {
        !self.is_empty() && self.bundles_answering(hook, tenant).next().is_some()
    }

    /// Whether an active bundle has the `limit` hook.
    pub fn limit_tenants(&self) -> bool {
        self.limits_tenants
    }

    /// The failed attempt of a job that waits for an answer of the `retry` hook.
    pub fn failure(&self, job: JobId, tenant: &TenantId) -> Option<&FailedAttempt> {
        self.failures.get(&job).filter(|_| self.answers_hook(Hook::Retry, tenant))
    }

    /// Whether any active bundle applies to a tenant.
    pub fn apply_to(&self, tenant: &TenantId) -> bool {
        let reads = &self.bucket_criteria.reads;
        reads.cluster.is_some() || reads.tenants.contains_key(tenant)
    }

    /// The pools of a device, each with whether the pool admits the device in its current condition.
    pub fn pools_of(&self, model: &str, memory_mib: u64, state: DeviceCondition) -> BTreeMap<String, bool> {
        let Some(rules) = self.rules() else { return BTreeMap::new() };
        let memory_milli_gb = i64::try_from(memory_mib * 1_000 / 1_024).unwrap_or(i64::MAX);
        let cold = PoolDevice { model, memory_milli_gb, temp_milli_c: i64::MIN, pool: None };
        let of_pool = |(name, pool): (&String, &Pool)| {
            let warm = state.temperature_c.map_or(i64::MIN, |celsius| i64::from(celsius) * 1_000);
            let open = warm <= pool.max_temp_milli_c && state.health_milli >= pool.health_threshold_milli;
            pool.holds(&cold).then(|| (name.clone(), open))
        };
        rules.pools.iter().filter_map(of_pool).collect()
    }

    /// The ruleset in effect: the one that the settings name, or the only one registered.
    pub fn ruleset(&self, settings: &Settings) -> Option<&Ruleset> {
        let schedules = &self.rules()?.schedules;
        match &settings.ruleset {
            Some(name) => schedules.get(name),
            None if schedules.len() == 1 => schedules.values().next(),
            None => None,
        }
    }

    /// The rank of a job by the first priority rule: 0 for the most urgent value; jobs without a listed value come
    /// last.
    pub fn priority_class(&self, settings: &Settings, attributes: &PolicyAttributes) -> u32 {
        let rule = self.ruleset(settings).and_then(|ruleset| ruleset.rules.iter().find_map(priority_values));
        let Some((label, values)) = rule else { return 0 };
        let own = attributes.labels.get(label);
        let rank = values.iter().position(|value| Some(value) == own);
        rank.unwrap_or(values.len()) as u32
    }

    /// Whether a preemption rule exempts a running job from preemption.
    pub fn exempts_from_preemption(&self, settings: &Settings, spec: &JobSpec) -> bool {
        let rules = self.ruleset(settings).into_iter().flat_map(|ruleset| &ruleset.rules);
        let mut rules = rules.filter_map(|rule| match rule {
            Rule::Preemption { allow, priority_threshold } => Some((*allow, priority_threshold.as_deref())),
            _ => None,
        });
        let exempt = |(allow, threshold): (bool, Option<&str>)| {
            !allow || threshold.is_some_and(|threshold| self.is_at_least(settings, spec, threshold))
        };
        rules.any(exempt)
    }

    /// Whether the priority word of a job is at least as urgent as `threshold`. An unknown threshold exempts all jobs:
    /// a preemption under a misspelt rule would be worse.
    fn is_at_least(&self, settings: &Settings, spec: &JobSpec, threshold: &str) -> bool {
        let rule = self.ruleset(settings).and_then(|ruleset| ruleset.rules.iter().find_map(priority_values));
        let defaults = || PRIORITY_WORDS.map(str::to_string).to_vec();
        let (label, values) =
            rule.map_or_else(|| (PRIORITY_LABEL, defaults()), |(label, values)| (label, values.to_vec()));
        let rank = |word: &str| values.iter().position(|value| value == word);
        let Some(threshold) = rank(threshold) else { return true };
        spec.labels.get(label).and_then(|word| rank(word)).is_some_and(|rank| rank <= threshold)
    }
}

fn priority_values(rule: &Rule) -> Option<(&str, &[String])> {
    match rule {
        Rule::Priority { label, values } => Some((label, values)),
        _ => None,
    }
}

/// The current condition of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceCondition {
    /// `None` if unknown. Pools admit a device of unknown temperature: otherwise most machines could never be used.
    pub temperature_c: Option<i32>,
    /// Health in thousandths.
    pub health_milli: i64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::policy::PolicyBundle;
    use crate::objects::policy::rules::PowerPolicy;
    use crate::time::Timestamp;

    /// `def admit(job): return False` mentions no field and still blocks every job.
    #[test]
    fn a_policy_that_reads_no_field_is_active() {
        let files = [("a.gsky".to_string(), String::new())].into();
        let bundle = PolicyBundle { files, hooks: [Hook::Admit].into(), ..PolicyBundle::default() };
        let (by, why, at) = (String::new(), String::new(), Timestamp(0));
        let version = BundleVersion { number: 1, scope: PolicyScope::Cluster, bundle: Arc::new(bundle), by, why, at };
        let mut policies = Policies::default();
        policies.activate(version);
        assert!(!policies.is_empty() && policies.answers_hook(Hook::Admit, &"red".parse().unwrap()));
        assert!(Policies::default().is_empty());
    }

    /// Otherwise a tenant whose bundle reads names would split the buckets of all tenants.
    #[test]
    fn fields_read_by_a_tenants_policy_split_only_its_own_buckets() {
        let red: TenantId = "red".parse().unwrap();
        let version = |number, scope, mention: &str| BundleVersion {
            number,
            scope,
            bundle: Arc::new(PolicyBundle {
                files: [("a.gsky".to_string(), String::new())].into(),
                mentions: [mention.to_string()].into(),
                ..PolicyBundle::default()
            }),
            by: String::new(),
            why: String::new(),
            at: Timestamp(0),
        };
        let mut policies = Policies::default();
        policies.activate(version(1, PolicyScope::Cluster, "team"));
        policies.activate(version(2, PolicyScope::Tenant(red.clone()), "name"));
        for (tenant, name, read) in [("red", "name", true), ("blue", "name", false), ("blue", "team", true)] {
            assert_eq!(policies.bucket_criteria.reads.has(&tenant.parse().unwrap(), name), read, "{tenant} {name}");
        }
        assert_eq!((policies.next_number(), policies.versions().len()), (3, 2));
        policies.activate(version(3, PolicyScope::Tenant(red.clone()), "name"));
        policies.forget(&red);
        let numbers: Vec<u64> = policies.versions().iter().map(|version| version.number).collect();
        assert_eq!((numbers, policies.next_number()), (vec![1, 3], 4));
    }

    #[test]
    fn a_pool_admits_only_cool_and_healthy_devices() {
        let pool = Pool {
            name: "cool".to_string(),
            gpu_types: vec!["H100".to_string()],
            min_memory_milli_gb: 40_000,
            max_temp_milli_c: 60_000,
            power_policy: PowerPolicy::default(),
            health_threshold_milli: 900,
            opt_strategies: Vec::new(),
            health_checks: Vec::new(),
        };
        let rules = Rules { pools: [("cool".to_string(), pool)].into(), ..Rules::default() };
        let bundle = PolicyBundle {
            files: [("a.gsky".to_string(), String::new())].into(),
            mentions: ["cool".to_string()].into(),
            rules,
            ..PolicyBundle::default()
        };
        let (by, why, at) = (String::new(), String::new(), Timestamp(0));
        let version = BundleVersion { number: 1, scope: PolicyScope::Cluster, bundle: Arc::new(bundle), by, why, at };
        let policies = Policies::restored(vec![version], Vec::new(), Vec::new());
        let cases = [
            (Some(60), 1_000, Some(true)),
            (Some(61), 1_000, Some(false)),
            (None, 900, Some(true)),
            (None, 899, Some(false)),
        ];
        for (temperature_c, health_milli, admitted) in cases {
            let condition = DeviceCondition { temperature_c, health_milli };
            let found = policies.pools_of("NVIDIA H100 80GB HBM3", 81_920, condition).get("cool").copied();
            assert_eq!(found, admitted, "{condition:?}");
            assert!(policies.pools_of("NVIDIA A100-SXM4-80GB", 81_920, condition).is_empty());
            assert!(policies.pools_of("NVIDIA H100 80GB HBM3", 40_959, condition).is_empty());
        }
    }
}

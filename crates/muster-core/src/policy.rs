//! Policies as the state knows them: which bundle is in force, what it registered, and what it has answered.
//!
//! Nothing here runs a policy. Bundles are compiled and asked by others; what comes of it enters by events, with the hash
//! of the bundle that said it. So a decision can be made again without them, and history shows under which rules each was
//! made. A policy can only narrow what laws and quotas allow: it keeps jobs waiting, orders them, prefers places, spares
//! who runs. Nobody has more for it.

mod answers;
mod limit;
mod retry;
mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::{JobId, TenantId};
use crate::job::JobSpec;
use crate::rules::{Device, Pool, Rule, Rules, Ruleset};
use crate::settings::Settings;
use crate::time::Timestamp;

pub use answers::{Admission, Answer, Answered, Answers, Given};
pub use limit::{GpuLimit, Limited};
pub use retry::{Failure, Retried, Retry, WAIT_MS_MAX};
pub use view::{CandidateView, ClusterView, FailureView, JobView, Moment, NodeView, TenantView};

/// The most a policy may add to or take from the cost of a place, in thousandths of a device: more than any other term
/// comes to.
pub const COST_MILLI_MAX: i64 = 10_000;
/// Versions that are kept to go back to, of each scope.
const VERSIONS_KEPT: usize = 20;
/// The label that words of priority are looked for in where no rule names one.
const PRIORITY_LABEL: &str = "job_priority";
/// Its words where no rule tells them, the most urgent first.
const PRIORITY_WORDS: [&str; 4] = ["critical", "high", "normal", "low"];

/// A question that a policy may answer, by a function of this name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hook {
    /// Whether a job may be accepted, and whether it may start now.
    Admit,
    /// Which priority it is ordered by.
    Priority,
    /// How welcome it is on a node.
    Score,
    /// Who may be displaced for it.
    Victims,
    /// Whether and when it starts again after a failure.
    Retry,
    /// How much power each of its GPUs may draw.
    Power,
    /// How many GPUs a tenant may hold.
    Limit,
}

impl Hook {
    /// All of them.
    pub const ALL: [Hook; 7] =
        [Hook::Admit, Hook::Priority, Hook::Score, Hook::Victims, Hook::Retry, Hook::Power, Hook::Limit];

    /// Those that are asked about a bucket before anyone of it starts.
    pub const OF_BUCKETS: [Hook; 4] = [Hook::Admit, Hook::Priority, Hook::Score, Hook::Power];
    /// Those that are asked about a job before it starts. What they say of one job tells nothing of another.
    pub const BEFORE_START: [Hook; 5] =
        [Hook::Admit, Hook::Priority, Hook::Score, Hook::Victims, Hook::Power];

    /// The name of the function.
    pub fn word(self) -> &'static str {
        match self {
            Hook::Admit => "admit",
            Hook::Priority => "priority",
            Hook::Score => "score",
            Hook::Victims => "victims",
            Hook::Retry => "retry",
            Hook::Power => "power",
            Hook::Limit => "limit",
        }
    }
}

/// Files of policies, and what became of them when they were compiled.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Bundle {
    /// Of names and contents of all files.
    pub hash: String,
    /// Each by its name; tests too, so that they go where the policies go.
    pub files: BTreeMap<String, String>,
    /// What they registered.
    pub rules: Rules,
    /// The questions they answer.
    pub hooks: BTreeSet<Hook>,
    /// Names and texts that they write: what they could look at.
    pub mentions: BTreeSet<String>,
}

/// For whom a bundle speaks.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// For everyone.
    #[default]
    Cluster,
    /// For the jobs of one tenant. It registers nothing and speaks of its own jobs only.
    Tenant(TenantId),
}

impl Scope {
    /// Whether it is about the jobs of a tenant.
    pub fn speaks_of(&self, tenant: &TenantId) -> bool {
        match self {
            Scope::Cluster => true,
            Scope::Tenant(own) => own == tenant,
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scope::Cluster => f.write_str("cluster"),
            Scope::Tenant(tenant) => write!(f, "tenant {tenant}"),
        }
    }
}

/// A bundle that was put into force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// Counted up, over all scopes.
    pub number: u64,
    /// For whom.
    pub scope: Scope,
    /// What.
    pub bundle: Arc<Bundle>,
    /// By whom.
    pub by: String,
    /// Why, in a sentence; may be empty.
    #[serde(default)]
    pub why: String,
    /// When.
    pub at: Timestamp,
}

/// What is in force, what was before, and what was answered.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policies {
    /// The newest of each scope last: that one is in force.
    versions: BTreeMap<Scope, Vec<Arc<Version>>>,
    /// What was answered of jobs that wait.
    pub answers: Answers,
    /// What was answered of tenants whose jobs wait, and of all tenants above them.
    pub limits: BTreeMap<TenantId, Limited>,
    /// Jobs that sleep after a failure until it was asked whether they start again.
    pub failures: BTreeMap<JobId, Failure>,
    /// What the bundles in force could look at. Derived.
    reads: Arc<Reads>,
    /// Whether some bundle in force limits what tenants hold. Derived.
    limits_tenants: bool,
    /// Tenants that a budget applies to: it must cover the exact time limit of a job, so jobs are told apart by it.
    /// Derived from the tenants; kept here because everything that tells jobs apart has the policies at hand.
    pub(crate) exact_limits: Arc<BTreeSet<TenantId>>,
}

/// Labels and fields of jobs that bundles in force could look at. What a tenant looks at tells its own jobs apart, and
/// nobody else's: others would wait for answers that nobody gives.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Reads {
    cluster: Option<BTreeSet<String>>,
    tenants: BTreeMap<TenantId, BTreeSet<String>>,
}

impl Reads {
    fn has(&self, tenant: &TenantId, name: &str) -> bool {
        let of_scopes = [self.cluster.as_ref(), self.tenants.get(tenant)];
        of_scopes.into_iter().flatten().any(|names| names.contains(name))
    }
}

impl Policies {
    /// What is in force for a scope.
    pub fn active(&self, scope: &Scope) -> Option<&Arc<Version>> {
        self.versions.get(scope)?.last().filter(|version| !version.bundle.files.is_empty())
    }

    /// Everything that was put into force and is remembered, oldest first.
    pub fn versions(&self) -> Vec<&Arc<Version>> {
        let mut all: Vec<&Arc<Version>> = self.versions.values().flatten().collect();
        all.sort_by_key(|version| version.number);
        all
    }

    /// One that is remembered.
    pub fn version(&self, number: u64) -> Option<&Arc<Version>> {
        self.versions.values().flatten().find(|version| version.number == number)
    }

    /// The number of the next one.
    pub fn next_number(&self) -> u64 {
        self.versions.values().filter_map(|of_scope| Some(of_scope.last()?.number)).max().unwrap_or(0) + 1
    }

    /// Put a bundle into force. What others answered of the same jobs is no longer asked for.
    pub(crate) fn put(&mut self, version: Version) {
        match &version.scope {
            Scope::Cluster => {
                self.answers = Answers::default();
                self.limits.clear();
            }
            Scope::Tenant(tenant) => {
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

    /// A tenant is gone, and has nothing in force any more. Its last version stays, so that no number is given twice; who
    /// comes by the same name later finds none of its files.
    pub(crate) fn forget(&mut self, tenant: &TenantId) {
        if let Some(of_scope) = self.versions.get_mut(&Scope::Tenant(tenant.clone())) {
            of_scope.drain(..of_scope.len().saturating_sub(1));
        }
    }

    /// All that is remembered, to be saved.
    pub(crate) fn saved(&self) -> Vec<Version> {
        self.versions().into_iter().map(|version| (**version).clone()).collect()
    }

    /// The same read back, with those who failed and the limits of tenants, without what was answered of jobs.
    pub(crate) fn restored(
        versions: Vec<Version>,
        failures: Vec<(JobId, Failure)>,
        limits: Vec<Limited>,
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
        let mut reads = Reads::default();
        for version in self.in_force() {
            let mut names = version.bundle.mentions.clone();
            match &version.scope {
                Scope::Cluster => {
                    names.insert(PRIORITY_LABEL.to_string());
                    reads.cluster = Some(names);
                }
                Scope::Tenant(tenant) => drop(reads.tenants.insert(tenant.clone(), names)),
            }
        }
        self.reads = Arc::new(reads);
        let limits = |version: &&Arc<Version>| version.bundle.hooks.contains(&Hook::Limit);
        self.limits_tenants = self.in_force().iter().any(limits);
    }

    /// All that are in force.
    pub fn in_force(&self) -> Vec<&Arc<Version>> {
        self.versions.keys().filter_map(|scope| self.active(scope)).collect()
    }

    /// Whether nothing is in force.
    pub fn is_empty(&self) -> bool {
        self.reads.cluster.is_none() && self.reads.tenants.is_empty()
    }

    /// What was registered for everyone.
    pub fn rules(&self) -> Option<&Rules> {
        self.active(&Scope::Cluster).map(|version| &version.bundle.rules)
    }

    /// A pool.
    pub fn pool(&self, name: &str) -> Option<&Pool> {
        self.rules()?.pools.get(name)
    }

    /// The bundles that speak of a tenant's jobs and answer a question; that of the cluster first.
    pub fn asked<'a>(&'a self, hook: Hook, tenant: &TenantId) -> impl Iterator<Item = &'a Arc<Version>> {
        let scopes = [Scope::Cluster, Scope::Tenant(tenant.clone())];
        let versions = scopes.into_iter().filter_map(|scope| self.active(&scope));
        versions.filter(move |version| version.bundle.hooks.contains(&hook))
    }

    /// Whether the cluster's bundle answers a question. That of a tenant can only take from what it leaves.
    pub fn cluster_answers(&self, hook: Hook) -> bool {
        self.active(&Scope::Cluster).is_some_and(|version| version.bundle.hooks.contains(&hook))
    }

    /// Whether anyone answers a question about a tenant's jobs.
    pub fn asks(&self, hook: Hook, tenant: &TenantId) -> bool {
        !self.is_empty() && self.asked(hook, tenant).next().is_some()
    }

    /// Whether some bundle in force limits what tenants hold.
    pub fn limit_tenants(&self) -> bool {
        self.limits_tenants
    }

    /// How a job failed, while it is to be asked whether it starts again.
    pub fn failure(&self, job: JobId, tenant: &TenantId) -> Option<&Failure> {
        self.failures.get(&job).filter(|_| self.asks(Hook::Retry, tenant))
    }

    /// Whether any bundle in force speaks of a tenant's jobs.
    pub fn speak_of(&self, tenant: &TenantId) -> bool {
        self.reads.cluster.is_some() || self.reads.tenants.contains_key(tenant)
    }

    /// Only what jobs are told apart by.
    pub fn told_by(&self) -> Policies {
        Policies { reads: self.reads.clone(), exact_limits: self.exact_limits.clone(), ..Policies::default() }
    }

    /// What policies could tell a job by, besides what every job is told by.
    pub fn marks(&self, spec: &JobSpec) -> Arc<Marks> {
        if self.is_empty() { Arc::default() } else { Arc::new(Marks::of(spec, &self.reads)) }
    }

    /// The pools that a device belongs to, and whether each gives it out as warm and as healthy as it is.
    pub fn pools_of(&self, model: &str, memory_mib: u64, state: Wear) -> BTreeMap<String, bool> {
        let Some(rules) = self.rules() else { return BTreeMap::new() };
        let memory_milli_gb = i64::try_from(memory_mib * 1_000 / 1_024).unwrap_or(i64::MAX);
        let cold = Device { model, memory_milli_gb, temp_milli_c: i64::MIN, pool: None };
        let of_pool = |(name, pool): (&String, &Pool)| {
            let warm = state.temperature_c.map_or(i64::MIN, |celsius| i64::from(celsius) * 1_000);
            let open = warm <= pool.max_temp_milli_c && state.health_milli >= pool.health_threshold_milli;
            pool.holds(&cold).then(|| (name.clone(), open))
        };
        rules.pools.iter().filter_map(of_pool).collect()
    }

    /// The ruleset that counts: the one that the settings name, or the only one there is.
    pub fn ruleset(&self, settings: &Settings) -> Option<&Ruleset> {
        let schedules = &self.rules()?.schedules;
        match &settings.ruleset {
            Some(name) => schedules.get(name),
            None if schedules.len() == 1 => schedules.values().next(),
            None => None,
        }
    }

    /// Where a job comes by the first rule of priority: 0 for the most urgent word; those without one come last.
    pub fn class(&self, settings: &Settings, marks: &Marks) -> u32 {
        let rule = self.ruleset(settings).and_then(|ruleset| ruleset.rules.iter().find_map(words));
        let Some((label, values)) = rule else { return 0 };
        let word = marks.labels.get(label);
        let place = values.iter().position(|value| Some(value) == word);
        place.unwrap_or(values.len()) as u32
    }

    /// Whether the rules let a running job be displaced.
    pub fn spares(&self, settings: &Settings, spec: &JobSpec) -> bool {
        let rules = self.ruleset(settings).into_iter().flat_map(|ruleset| &ruleset.rules);
        let mut rules = rules.filter_map(|rule| match rule {
            Rule::Preemption { allow, priority_threshold } => Some((*allow, priority_threshold.as_deref())),
            _ => None,
        });
        let spared = |(allow, threshold): (bool, Option<&str>)| {
            !allow || threshold.is_some_and(|threshold| self.is_at_least(settings, spec, threshold))
        };
        rules.any(spared)
    }

    /// Whether a job is as urgent as a word, or more. A word that nobody knows spares everyone: to displace by a rule
    /// that nobody understands would be worse.
    fn is_at_least(&self, settings: &Settings, spec: &JobSpec, threshold: &str) -> bool {
        let told = self.ruleset(settings).and_then(|ruleset| ruleset.rules.iter().find_map(words));
        let usual = || PRIORITY_WORDS.map(str::to_string).to_vec();
        let (label, values) =
            told.map_or_else(|| (PRIORITY_LABEL, usual()), |(label, values)| (label, values.to_vec()));
        let place = |word: &str| values.iter().position(|value| value == word);
        let Some(threshold) = place(threshold) else { return true };
        spec.labels.get(label).and_then(|word| place(word)).is_some_and(|place| place <= threshold)
    }
}

fn words(rule: &Rule) -> Option<(&str, &[String])> {
    match rule {
        Rule::Priority { label, values } => Some((label, values)),
        _ => None,
    }
}

/// How a device is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wear {
    /// How warm, where that is known. Who does not know is not kept out: most machines could never be used.
    pub temperature_c: Option<i32>,
    /// How healthy, in thousandths.
    pub health_milli: i64,
}

/// What policies could tell a job by, besides what every job is told by. Jobs that differ in anything else are the same
/// to them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Marks {
    /// Labels that some bundle names.
    pub labels: BTreeMap<String, String>,
    /// Its name, where some bundle looks at names.
    pub name: Option<String>,
    /// Its image, where some bundle looks at images.
    pub image: Option<String>,
}

impl Marks {
    fn of(spec: &JobSpec, reads: &Reads) -> Marks {
        let reads = |name: &str| reads.has(&spec.tenant, name);
        let named = spec.labels.iter().filter(|(label, _)| reads(label));
        Marks {
            labels: named.map(|(label, value)| (label.clone(), value.clone())).collect(),
            name: reads("name").then(|| spec.name.clone()),
            image: spec.run.image.clone().filter(|_| reads("image")),
        }
    }

    /// Whether there is nothing to tell it by.
    pub fn is_empty(&self) -> bool {
        *self == Marks::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::PowerPolicy;

    /// `def admit(job): return False` names nothing at all, and keeps everyone waiting all the same.
    #[test]
    fn policies_that_look_at_nothing_are_in_force() {
        let files = [("a.gsky".to_string(), String::new())].into();
        let bundle = Bundle { files, hooks: [Hook::Admit].into(), ..Bundle::default() };
        let (by, why, at) = (String::new(), String::new(), Timestamp(0));
        let version = Version { number: 1, scope: Scope::Cluster, bundle: Arc::new(bundle), by, why, at };
        let mut policies = Policies::default();
        policies.put(version);
        assert!(!policies.is_empty() && policies.asks(Hook::Admit, &"red".parse().unwrap()));
        assert!(Policies::default().is_empty());
    }

    /// A tenant that looks at names would have the planner tell everyone's jobs apart.
    #[test]
    fn what_a_tenant_looks_at_tells_only_its_own_jobs_apart() {
        let red: TenantId = "red".parse().unwrap();
        let version = |number, scope, mention: &str| Version {
            number,
            scope,
            bundle: Arc::new(Bundle {
                files: [("a.gsky".to_string(), String::new())].into(),
                mentions: [mention.to_string()].into(),
                ..Bundle::default()
            }),
            by: String::new(),
            why: String::new(),
            at: Timestamp(0),
        };
        let mut policies = Policies::default();
        policies.put(version(1, Scope::Cluster, "team"));
        policies.put(version(2, Scope::Tenant(red.clone()), "name"));
        for (tenant, name, told) in [("red", "name", true), ("blue", "name", false), ("blue", "team", true)] {
            assert_eq!(policies.reads.has(&tenant.parse().unwrap(), name), told, "{tenant} {name}");
        }
        assert_eq!((policies.next_number(), policies.versions().len()), (3, 2));
        policies.put(version(3, Scope::Tenant(red.clone()), "name"));
        policies.forget(&red);
        let numbers: Vec<u64> = policies.versions().iter().map(|version| version.number).collect();
        assert_eq!((numbers, policies.next_number()), (vec![1, 3], 4));
    }

    #[test]
    fn a_pool_gives_out_what_is_cool_and_healthy() {
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
        let bundle = Bundle {
            files: [("a.gsky".to_string(), String::new())].into(),
            mentions: ["cool".to_string()].into(),
            rules,
            ..Bundle::default()
        };
        let (by, why, at) = (String::new(), String::new(), Timestamp(0));
        let version = Version { number: 1, scope: Scope::Cluster, bundle: Arc::new(bundle), by, why, at };
        let policies = Policies::restored(vec![version], Vec::new(), Vec::new());
        let cases = [
            (Some(60), 1_000, Some(true)),
            (Some(61), 1_000, Some(false)),
            (None, 900, Some(true)),
            (None, 899, Some(false)),
        ];
        for (temperature_c, health_milli, open) in cases {
            let wear = Wear { temperature_c, health_milli };
            let found = policies.pools_of("NVIDIA H100 80GB HBM3", 81_920, wear).get("cool").copied();
            assert_eq!(found, open, "{wear:?}");
            assert!(policies.pools_of("NVIDIA A100-SXM4-80GB", 81_920, wear).is_empty());
            assert!(policies.pools_of("NVIDIA H100 80GB HBM3", 40_959, wear).is_empty());
        }
    }
}

//! Policies of stories: rules and answers as data, without an interpreter.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_core::objects::demand::Demand;
use muster_core::objects::job::Job;
use muster_core::objects::policy::rules::{BalanceStrategy, DistributionStrategy, Metric, Pool, Rule, Rules, Ruleset};
use muster_core::objects::policy::{
    Admission, GpuLimit, Hook, JobAnswer, PolicyBundle, PolicyScope, Retry, RetryAnswer, TenantLimit,
};
use muster_core::queue::Bucket;
use muster_core::{Command, JobId, NodeId, State, TenantId};

use crate::builders::pool;
use crate::recompute::{held_by, is_below};

/// Apply one of several bundles; variant 0 removes that of the cluster. A bundle of a tenant that is active is removed.
pub fn apply(state: &State, variant: usize) -> Command {
    let hooks: &[Hook] = match variant {
        2 => &[Hook::Admit],
        3 => &[Hook::Priority, Hook::Score],
        4 => &[Hook::Score, Hook::Victims],
        5 => &[Hook::Admit, Hook::Priority, Hook::Score, Hook::Victims, Hook::Retry, Hook::Power],
        6 => &[Hook::Admit, Hook::Victims, Hook::Retry],
        7 => &[Hook::Admit, Hook::Victims, Hook::Retry],
        8 => &[Hook::Power],
        9 => &[Hook::Admit, Hook::Priority, Hook::Score, Hook::Victims, Hook::Power],
        10 => &[Hook::Limit],
        11 => &[Hook::Admit, Hook::Limit],
        12 => &[Hook::Limit],
        _ => &[],
    };
    let scope = match variant {
        7 => PolicyScope::Tenant("red".parse().unwrap()),
        9 => PolicyScope::Tenant("blue".parse().unwrap()),
        12 => PolicyScope::Tenant("red".parse().unwrap()),
        _ => PolicyScope::Cluster,
    };
    let registers = variant > 0 && scope == PolicyScope::Cluster;
    let files = match variant {
        0 => BTreeMap::new(),
        _ if !registers && state.policies.active(&scope).is_some() => BTreeMap::new(),
        _ => BTreeMap::from([("policy.gsky".to_string(), format!("# {variant}"))]),
    };
    let bundle = PolicyBundle {
        hash: format!("bundle-{variant}"),
        files,
        rules: if registers { rules(variant) } else { Rules::default() },
        hooks: hooks.iter().copied().collect(),
        mentions: BTreeSet::from(["labels".to_string(), "job_priority".to_string()]),
    };
    Command::ApplyPolicy { scope, bundle: Arc::new(bundle), why: String::new() }
}

fn rules(variant: usize) -> Rules {
    let pool = |name: &str, types: &[&str], max_temp_c: i64, health_threshold_milli: i64| Pool {
        min_memory_milli_gb: 40_000,
        max_temp_milli_c: max_temp_c * 1_000,
        health_threshold_milli,
        ..pool(name, types)
    };
    // All pools in every bundle: a bundle without the pool of a queued job is refused.
    let pools = [
        pool("fast", &["H100", "H200"], [85, 75][variant % 2], 850),
        pool("cool", &[], 60, 950),
        pool("any", &[], 100, 0),
    ];
    let values = ["critical", "high", "normal", "low"].map(str::to_string).to_vec();
    let order = Rule::Priority { label: "job_priority".to_string(), values };
    let spare = |threshold: &str| Rule::Preemption { allow: true, priority_threshold: Some(threshold.to_string()) };
    let balance = |metric, strategy| Rule::Balance { metric, strategy };
    let layout = |strategy| Rule::Distribution { strategy };
    let rules = match variant {
        1 => vec![order, spare("normal")],
        2 => vec![balance(Metric::Temperature, BalanceStrategy::Least), order],
        3 => vec![layout(DistributionStrategy::Spread)],
        4 => {
            vec![balance(Metric::PoolUtilization, BalanceStrategy::Least), layout(DistributionStrategy::Pack)]
        }
        5 => vec![layout(DistributionStrategy::RoundRobin), order],
        6 => vec![Rule::Preemption { allow: false, priority_threshold: None }],
        8 => vec![spare("high"), balance(Metric::Memory, BalanceStrategy::Most)],
        _ => Vec::new(),
    };
    let ruleset = Ruleset { name: "rules".to_string(), rules };
    Rules {
        pools: pools.into_iter().map(|pool| (pool.name.clone(), pool)).collect(),
        schedules: BTreeMap::from([(ruleset.name.clone(), ruleset)]),
    }
}

/// True if an active bundle answers the hook for the jobs of a tenant.
pub fn is_hook_active(state: &State, hook: Hook, tenant: &TenantId) -> bool {
    [PolicyScope::Cluster, PolicyScope::Tenant(tenant.clone())]
        .iter()
        .any(|scope| state.policies.active(scope).is_some_and(|version| version.bundle.hooks.contains(&hook)))
}

/// True if the policies admit a job: they answered so, or no hook before the start is active.
pub fn admits(state: &State, job: &Job) -> bool {
    let hooks = [Hook::Admit, Hook::Priority, Hook::Score, Hook::Power];
    match state.policies.answers.of(&state.bucket(job)) {
        Some(answer) => answer.admission == Admission::Yes,
        None => !hooks.into_iter().any(|hook| is_hook_active(state, hook, &job.spec.tenant)),
    }
}

/// Random answers about the first job of every bucket, all nodes and all running jobs. Some answers are missing, and
/// some are invalid.
pub fn random_answers(state: &State, seed: u64) -> Option<Command> {
    let active = state.policies.active_versions();
    if active.is_empty() {
        return None;
    }
    let bundles = active.iter().map(|version| version.bundle.hash.clone()).collect();
    let mut draws = Draws(seed);
    let mut answers = Vec::new();
    for (bucket, places) in state.queue.buckets() {
        if let Some((_, job)) = places.first().filter(|_| draws.next(8) > 0) {
            answers.push(random_answer(state, (*job, bucket), &mut draws));
        }
    }
    // An answer about an unknown job, and one for a bucket that the job has left.
    let invalid = answers.first().cloned();
    answers.extend(invalid.iter().map(|one| JobAnswer { job: JobId::single(1_000_000), ..one.clone() }));
    let refused = Admission::Refuse { why: "out of date".to_string() };
    let changed = |one| JobAnswer { bucket: "another".to_string(), admission: refused.clone(), ..one };
    answers.extend(invalid.map(changed));
    let limits = random_limits(state, &mut draws);
    Some(Command::NoteAnswers { bundles, answers, limits, retries: random_retries(state, &mut draws) })
}

/// Random limits of all tenants. Some are missing, and one is of an unknown tenant.
fn random_limits(state: &State, draws: &mut Draws) -> Vec<TenantLimit> {
    let unknown: TenantId = "unknown".parse().unwrap();
    let mut limits = Vec::new();
    for tenant in state.tenants.keys().chain([&unknown]) {
        let left_out = draws.next(12) == 0;
        let gpu_milli = [None, None, Some(0), Some(1_500), Some(4_000), Some(9_000)][draws.next(6) as usize];
        let mut pools = BTreeMap::new();
        for pool in ["fast", "cool", "any", "no-such-pool"] {
            let milli = [None, None, Some(500), Some(2_000), Some(6_000)][draws.next(5) as usize];
            pools.extend(milli.map(|milli| (pool.to_string(), milli)));
        }
        let failed = (draws.next(16) == 0).then(|| "drawn".to_string());
        let blocked = failed.clone().filter(|_| draws.next(2) == 0);
        if !left_out {
            limits.push(TenantLimit { tenant: tenant.clone(), limit: GpuLimit { gpu_milli, pools }, blocked, failed });
        }
    }
    limits
}

/// The known limits of tenants as new answers.
pub fn repeat_limits(state: &State) -> Command {
    Command::NoteAnswers {
        bundles: state.policies.active_versions().iter().map(|version| version.bundle.hash.clone()).collect(),
        answers: Vec::new(),
        limits: state.policies.limits.values().cloned().collect(),
        retries: Vec::new(),
    }
}

/// True if the policy limits of the tenant of a job and its ancestors allow `more` beside jobs that are `starting`.
/// Counted job by job.
pub fn is_within_limits(state: &State, job: &Job, more: Demand, starting: &[(&Job, Demand)]) -> bool {
    state.lineage(&job.spec.tenant).filter(|top| is_hook_active(state, Hook::Limit, &top.id)).all(|top| {
        let Some(limited) = state.policies.limits.get(&top.id) else { return false };
        let below = |other: &Job| is_below(state, &other.spec.tenant, &top.id);
        let mut all = 0;
        let mut of_pool = 0;
        let running = state.jobs.values().filter(|other| other.attempt().is_some());
        let running = running.map(|other| (other, held_by(other)));
        let starting = starting.iter().map(|(other, demand)| (*other, *demand));
        for (other, demand) in running.chain(starting).filter(|(other, _)| below(other)) {
            all += demand.gpu_milli;
            if other.spec.pool == job.spec.pool {
                of_pool += demand.gpu_milli;
            }
        }
        let pool_limit = job.spec.pool.as_ref().and_then(|pool| limited.limit.pools.get(pool));
        let fits = |held: u64, limit: u64| more.gpu_milli == 0 || held + more.gpu_milli <= limit;
        limited.blocked.is_none()
            && limited.limit.gpu_milli.is_none_or(|limit| fits(all, limit))
            && pool_limit.is_none_or(|limit| fits(of_pool, *limit))
    })
}

/// The largest demand that the policy limits allow to a job, by bisection.
pub fn gpu_milli_left(state: &State, job: &Job, starting: &[(&Job, Demand)]) -> u64 {
    let fits = |gpu_milli: u64| is_within_limits(state, job, Demand { gpu_milli, ..Demand::default() }, starting);
    let (mut good, mut bad) = (0, 1 << 40);
    if fits(bad) {
        return u64::MAX;
    }
    while bad - good > 1 {
        let middle = (good + bad) / 2;
        if fits(middle) { good = middle } else { bad = middle }
    }
    good
}

/// Random answers about failed jobs. Some are missing, and some are invalid.
fn random_retries(state: &State, draws: &mut Draws) -> Vec<RetryAnswer> {
    let mut retries = Vec::new();
    for (job, failure) in &state.policies.failures {
        let (retry, failed) = match draws.next(6) {
            0 => continue,
            1 => (None, Some("drawn".to_string())),
            2 => (Some(Retry::No { why: "drawn".to_string() }), None),
            3 => (Some(Retry::After { wait_ms: [0, 5_000, i64::MAX][draws.next(3) as usize] }), None),
            _ => (Some(Retry::ByRestartRule), None),
        };
        let retried = RetryAnswer { job: *job, attempt: failure.seen.attempt, retry, failed };
        retries.push(RetryAnswer { attempt: retried.attempt + 1, ..retried.clone() });
        retries.push(RetryAnswer { job: JobId::single(1_000_000), ..retried.clone() });
        retries.push(retried.clone());
        retries.push(retried);
    }
    retries
}

/// Answers that admit every job, allow every eviction and set no limit.
pub fn accept_all(state: &State) -> Option<Command> {
    let active = state.policies.active_versions();
    let bundles = active.iter().map(|version| version.bundle.hash.clone()).collect();
    let running: Vec<JobId> = state.jobs.values().filter(|job| job.attempt().is_some()).map(|job| job.id).collect();
    let heads = state.queue.buckets().filter_map(|(bucket, places)| Some((places.first()?.1, bucket)));
    let answer = |(job, bucket): (JobId, &Bucket)| {
        let victims = running.iter().map(|victim| (*victim, true)).collect();
        JobAnswer { victims, ..JobAnswer::of(job, bucket.key()) }
    };
    let answers: Vec<JobAnswer> = heads.map(answer).collect();
    let failures = state.policies.failures.iter();
    let retried = failures.map(|(job, failure)| RetryAnswer {
        job: *job,
        attempt: failure.seen.attempt,
        retry: Some(Retry::ByRestartRule),
        failed: None,
    });
    let retries: Vec<RetryAnswer> = retried.collect();
    let limits = state.tenants.keys().cloned().map(TenantLimit::of).collect();
    let any = !answers.is_empty() || !retries.is_empty();
    (!active.is_empty() && any).then_some(Command::NoteAnswers { bundles, answers, limits, retries })
}

fn random_answer(state: &State, (job, bucket): (JobId, &Bucket), draws: &mut Draws) -> JobAnswer {
    let why = || "drawn".to_string();
    let admission = match draws.next(8) {
        0 => Admission::Wait { why: why() },
        1 => Admission::Refuse { why: why() },
        _ => Admission::Yes,
    };
    let priority = [None, None, Some(50), Some(300), Some(9_000), Some(20_000)][draws.next(6) as usize];
    let nodes: Vec<NodeId> = state.nodes.keys().cloned().collect();
    let costs = nodes.into_iter().map(|node| (node, [0, -300, 700, 50_000][draws.next(4) as usize]));
    let costs = costs.collect();
    let running = state.jobs.values().filter(|job| job.attempt().is_some());
    let victims = running.map(|job| (job.id, draws.next(3) > 0)).collect();
    let gpu_milliwatts = [None, Some(250_000), Some(1)][draws.next(3) as usize];
    JobAnswer { admission, priority, gpu_milliwatts, costs, victims, ..JobAnswer::of(job, bucket.key()) }
}

/// Small random numbers from a seed.
struct Draws(u64);

impl Draws {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

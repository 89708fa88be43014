//! Policies of stories: rules and answers as data, without anyone who runs them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_core::job::Demand;
use muster_core::policy::{Admission, Answered, Bundle, GpuLimit, Hook, Limited, Retried, Retry, Scope};
use muster_core::queue::Bucket;
use muster_core::rules::{Extreme, Layout, Metric, Pool, PowerPolicy, Rule, Rules, Ruleset};
use muster_core::{Command, Job, JobId, NodeId, State, TenantId};

use crate::world::{held_by, is_below};

/// Put one of some bundles into force; none now and then. What a tenant has in force already is taken away.
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
        7 => Scope::Tenant("red".parse().unwrap()),
        9 => Scope::Tenant("blue".parse().unwrap()),
        12 => Scope::Tenant("red".parse().unwrap()),
        _ => Scope::Cluster,
    };
    let registers = variant > 0 && scope == Scope::Cluster;
    let files = match variant {
        0 => BTreeMap::new(),
        _ if !registers && state.policies.active(&scope).is_some() => BTreeMap::new(),
        _ => BTreeMap::from([("policy.gsky".to_string(), format!("# {variant}"))]),
    };
    let bundle = Bundle {
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
        name: name.to_string(),
        gpu_types: types.iter().map(ToString::to_string).collect(),
        min_memory_milli_gb: 40_000,
        max_temp_milli_c: max_temp_c * 1_000,
        power_policy: PowerPolicy::default(),
        health_threshold_milli,
        opt_strategies: Vec::new(),
        health_checks: Vec::new(),
    };
    // All of them always, or jobs that wait for one would keep others from being put into force.
    let pools = [
        pool("fast", &["H100", "H200"], [85, 75][variant % 2], 850),
        pool("cool", &[], 60, 950),
        pool("any", &[], 100, 0),
    ];
    let words = ["critical", "high", "normal", "low"].map(str::to_string).to_vec();
    let order = Rule::Priority { label: "job_priority".to_string(), values: words };
    let spare =
        |threshold: &str| Rule::Preemption { allow: true, priority_threshold: Some(threshold.to_string()) };
    let balance = |metric, strategy| Rule::Balance { metric, strategy };
    let layout = |strategy| Rule::Distribution { strategy };
    let rules = match variant {
        1 => vec![order, spare("normal")],
        2 => vec![balance(Metric::Temperature, Extreme::Least), order],
        3 => vec![layout(Layout::Spread)],
        4 => vec![balance(Metric::PoolUtilization, Extreme::Least), layout(Layout::Pack)],
        5 => vec![layout(Layout::RoundRobin), order],
        6 => vec![Rule::Preemption { allow: false, priority_threshold: None }],
        8 => vec![spare("high"), balance(Metric::Memory, Extreme::Most)],
        _ => Vec::new(),
    };
    let ruleset = Ruleset { name: "rules".to_string(), rules };
    Rules {
        pools: pools.into_iter().map(|pool| (pool.name.clone(), pool)).collect(),
        schedules: BTreeMap::from([(ruleset.name.clone(), ruleset)]),
    }
}

/// Whether some bundle in force answers a question about a tenant's jobs.
pub fn answer(state: &State, hook: Hook, tenant: &TenantId) -> bool {
    [Scope::Cluster, Scope::Tenant(tenant.clone())]
        .iter()
        .any(|scope| state.policies.active(scope).is_some_and(|version| version.bundle.hooks.contains(&hook)))
}

/// Whether policies let a job start: they said yes, or nobody asks them.
pub fn let_in(state: &State, job: &Job) -> bool {
    let hooks = [Hook::Admit, Hook::Priority, Hook::Score, Hook::Power];
    match state.policies.answers.of(&state.bucket(job)) {
        Some(answer) => answer.admission == Admission::Yes,
        None => !hooks.into_iter().any(|hook| answer(state, hook, &job.spec.tenant)),
    }
}

/// Answers about the first job of every bucket, on the first node of every kind and about everyone who runs. Some are
/// left out, and some are nonsense.
pub fn answers(state: &State, whim: u64) -> Option<Command> {
    let in_force = state.policies.in_force();
    if in_force.is_empty() {
        return None;
    }
    let bundles = in_force.iter().map(|version| version.bundle.hash.clone()).collect();
    let mut whims = Whims(whim);
    let mut answers = Vec::new();
    for (bucket, places) in state.queue.buckets() {
        if let Some((_, job)) = places.first().filter(|_| whims.next(8) > 0) {
            answers.push(whimsical(state, (*job, bucket), &mut whims));
        }
    }
    // Of one who is not there, and of one who was another when it was asked about.
    let nonsense = answers.first().cloned();
    answers.extend(nonsense.iter().map(|one| Answered { job: JobId::single(1_000_000), ..one.clone() }));
    let refused = Admission::Refuse { why: "out of date".to_string() };
    let changed = |one| Answered { bucket: "another".to_string(), admission: refused.clone(), ..one };
    answers.extend(nonsense.map(changed));
    let limits = limits(state, &mut whims);
    Some(Command::NoteAnswers { bundles, answers, limits, retries: retries(state, &mut whims) })
}

/// Limits of all tenants, whether jobs of theirs wait or not. Some are left out, and one is nonsense.
fn limits(state: &State, whims: &mut Whims) -> Vec<Limited> {
    let nobody: TenantId = "nobody".parse().unwrap();
    let mut limits = Vec::new();
    for tenant in state.tenants.keys().chain([&nobody]) {
        let left_out = whims.next(12) == 0;
        let gpu_milli = [None, None, Some(0), Some(1_500), Some(4_000), Some(9_000)][whims.next(6) as usize];
        let mut pools = BTreeMap::new();
        for pool in ["fast", "cool", "any", "no-such-pool"] {
            let milli = [None, None, Some(500), Some(2_000), Some(6_000)][whims.next(5) as usize];
            pools.extend(milli.map(|milli| (pool.to_string(), milli)));
        }
        let failed = (whims.next(16) == 0).then(|| "a whim".to_string());
        let blocked = failed.clone().filter(|_| whims.next(2) == 0);
        if !left_out {
            limits.push(Limited {
                tenant: tenant.clone(),
                limit: GpuLimit { gpu_milli, pools },
                blocked,
                failed,
            });
        }
    }
    limits
}

/// What was answered of tenants, said again.
pub fn limits_again(state: &State) -> Command {
    Command::NoteAnswers {
        bundles: state.policies.in_force().iter().map(|version| version.bundle.hash.clone()).collect(),
        answers: Vec::new(),
        limits: state.policies.limits.values().cloned().collect(),
        retries: Vec::new(),
    }
}

/// Whether policies let the tenant of a job, and all above it, hold so much more beside others that are about to start;
/// counted job by job.
pub fn is_within_limits(state: &State, job: &Job, more: Demand, starting: &[(&Job, Demand)]) -> bool {
    state.lineage(&job.spec.tenant).filter(|top| answer(state, Hook::Limit, &top.id)).all(|top| {
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

/// What limits of policies leave to a job, found by trying.
pub fn milli_left(state: &State, job: &Job, starting: &[(&Job, Demand)]) -> u64 {
    let fits =
        |gpu_milli: u64| is_within_limits(state, job, Demand { gpu_milli, ..Demand::default() }, starting);
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

/// Answers about those who failed. Some are left out, and some are nonsense.
fn retries(state: &State, whims: &mut Whims) -> Vec<Retried> {
    let mut retries = Vec::new();
    for (job, failure) in &state.policies.failures {
        let (retry, failed) = match whims.next(6) {
            0 => continue,
            1 => (None, Some("a whim".to_string())),
            2 => (Some(Retry::No { why: "a whim".to_string() }), None),
            3 => (Some(Retry::After { wait_ms: [0, 5_000, i64::MAX][whims.next(3) as usize] }), None),
            _ => (Some(Retry::AsAsked), None),
        };
        let retried = Retried { job: *job, attempt: failure.seen.attempt, retry, failed };
        retries.push(Retried { attempt: retried.attempt + 1, ..retried.clone() });
        retries.push(Retried { job: JobId::single(1_000_000), ..retried.clone() });
        retries.push(retried.clone());
        retries.push(retried);
    }
    retries
}

/// Policies have nothing against anyone.
pub fn yes(state: &State) -> Option<Command> {
    let in_force = state.policies.in_force();
    let bundles = in_force.iter().map(|version| version.bundle.hash.clone()).collect();
    let running: Vec<JobId> =
        state.jobs.values().filter(|job| job.attempt().is_some()).map(|job| job.id).collect();
    let heads = state.queue.buckets().filter_map(|(bucket, places)| Some((places.first()?.1, bucket)));
    let answer = |(job, bucket)| {
        let victims = running.iter().map(|victim| (*victim, true)).collect();
        Answered { victims, ..Answered::of(job, bucket) }
    };
    let answers: Vec<Answered> = heads.map(answer).collect();
    let failures = state.policies.failures.iter();
    let retried = failures.map(|(job, failure)| Retried {
        job: *job,
        attempt: failure.seen.attempt,
        retry: Some(Retry::AsAsked),
        failed: None,
    });
    let retries: Vec<Retried> = retried.collect();
    let limits = state.tenants.keys().cloned().map(Limited::of).collect();
    let said = !answers.is_empty() || !retries.is_empty();
    (!in_force.is_empty() && said).then_some(Command::NoteAnswers { bundles, answers, limits, retries })
}

fn whimsical(state: &State, (job, bucket): (JobId, &Bucket), whims: &mut Whims) -> Answered {
    let why = || "a whim".to_string();
    let admission = match whims.next(8) {
        0 => Admission::Wait { why: why() },
        1 => Admission::Refuse { why: why() },
        _ => Admission::Yes,
    };
    let priority = [None, None, Some(50), Some(300), Some(9_000), Some(20_000)][whims.next(6) as usize];
    let nodes: Vec<NodeId> = state.nodes.keys().cloned().collect();
    let costs = nodes.into_iter().map(|node| (node, [0, -300, 700, 50_000][whims.next(4) as usize]));
    let costs = costs.collect();
    let running = state.jobs.values().filter(|job| job.attempt().is_some());
    let victims = running.map(|job| (job.id, whims.next(3) > 0)).collect();
    let gpu_milliwatts = [None, Some(250_000), Some(1)][whims.next(3) as usize];
    Answered { admission, priority, gpu_milliwatts, costs, victims, ..Answered::of(job, bucket) }
}

/// Small numbers, the same for the same whim.
struct Whims(u64);

impl Whims {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

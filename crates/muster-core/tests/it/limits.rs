//! Limits that policies set on what tenants hold, counted for every start.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_core::command::{Answer, Command};
use muster_core::job::PlacedTask;
use muster_core::node::NodeWord;
use muster_core::plan::{Plan, Start, outlook, plan, remedies};
use muster_core::policy::{Bundle, ClusterView, GpuLimit, Hook, Limited, Scope};
use muster_core::rules::{Pool, PowerPolicy, Rules};
use muster_core::state::Restoring;
use muster_core::tenant::TenantConfig;
use muster_core::time::{HOUR, MINUTE};
use muster_core::verdict::Reason;
use muster_core::{JobId, JobSpec, TenantId, Timestamp};

use crate::world::{World, actor, facts, spec, submission};

fn tenant(name: &str) -> TenantId {
    name.parse().unwrap()
}

/// Two nodes of eight GPUs; a lab with the teams red and blue below it, and green beside it.
fn world() -> World {
    let mut world = World::new();
    for (node, model) in [("n1", "NVIDIA H100 80GB HBM3"), ("n2", "NVIDIA A100-SXM4-80GB")] {
        let facts = Box::new(facts(8, model, 64, 64 * 1_024));
        world.ask(Command::RegisterNode { node: node.parse().unwrap(), facts }).unwrap();
    }
    for (name, parent) in [("lab", None), ("red", Some("lab")), ("blue", Some("lab")), ("green", None)] {
        let config = TenantConfig { parent: parent.map(tenant), ..TenantConfig::unlimited(name) };
        world.ask(Command::CreateTenant { id: tenant(name), config: Box::new(config) }).unwrap();
    }
    put(&mut world, Scope::Cluster, "all");
    world
}

/// Put a bundle into force that limits tenants and registers two pools.
fn put(world: &mut World, scope: Scope, hash: &str) {
    let pool = |name: &str, gpu_type: &str| Pool {
        name: name.to_string(),
        gpu_types: vec![gpu_type.to_string()],
        min_memory_milli_gb: 0,
        max_temp_milli_c: 100_000,
        power_policy: PowerPolicy::default(),
        health_threshold_milli: 0,
        opt_strategies: Vec::new(),
        health_checks: Vec::new(),
    };
    let pools = [pool("fast", "H100"), pool("slow", "A100")].map(|pool| (pool.name.clone(), pool));
    let registers = scope == Scope::Cluster;
    let pools = if registers { BTreeMap::from(pools) } else { BTreeMap::new() };
    let bundle = Bundle {
        hash: hash.to_string(),
        files: [("a.gsky".to_string(), format!("# {hash}"))].into(),
        hooks: [Hook::Limit].into(),
        rules: Rules { pools, ..Rules::default() },
        ..Bundle::default()
    };
    world.ask(Command::ApplyPolicy { scope, bundle: Arc::new(bundle), why: String::new() }).unwrap();
}

fn submit_spec(world: &mut World, name: &str, mut spec: JobSpec) -> JobId {
    spec.tenant = tenant(name);
    match world.ask(Command::SubmitJob(submission(spec))) {
        Ok(Answer::Job(job)) => job,
        other => panic!("{other:?}"),
    }
}

fn submit(world: &mut World, name: &str, gpus: u32) -> JobId {
    submit_spec(world, name, spec("job", gpus))
}

fn submit_to(world: &mut World, name: &str, gpus: u32, pool: &str) -> JobId {
    submit_spec(world, name, JobSpec { pool: Some(pool.to_string()), ..spec("job", gpus) })
}

/// A limit in thousandths of GPUs, and one for a pool.
fn limited(name: &str, gpu_milli: Option<u64>, pool: Option<(&str, u64)>) -> Limited {
    let pools = pool.into_iter().map(|(pool, milli)| (pool.to_string(), milli)).collect();
    Limited { limit: GpuLimit { gpu_milli, pools }, ..Limited::of(tenant(name)) }
}

/// Note answers of the bundles in force; every tenant that is not named has no limit.
fn note(world: &mut World, limits: Vec<Limited>) {
    let bundles = world.state.policies.in_force().iter().map(|version| version.bundle.hash.clone()).collect();
    let free = ["lab", "red", "blue", "green"].map(|name| Limited::of(tenant(name)));
    let limits = free.into_iter().chain(limits).collect();
    let (answers, retries) = (Vec::new(), Vec::new());
    world.ask(Command::NoteAnswers { bundles, answers, limits, retries }).unwrap();
}

fn runs(world: &World, job: JobId) -> bool {
    world.state.jobs[&job].attempt().is_some_and(|attempt| attempt.stopping.is_none())
}

fn why(world: &World, job: JobId) -> Vec<Reason> {
    let verdicts = plan(&world.state, world.now).verdicts;
    verdicts.of(&world.state, &world.state.jobs[&job], world.now).reasons
}

fn limit_of(world: &World, job: JobId) -> Option<Reason> {
    why(world, job).into_iter().find(|reason| matches!(reason, Reason::PolicyLimit { .. }))
}

fn adopt(world: &mut World, plan: &Plan) -> (usize, usize) {
    match world.ask(Command::AdoptPlan { plan: Box::new(plan.clone()), epoch: 1 }) {
        Ok(Answer::Adopted { taken, left }) => (taken, left),
        other => panic!("{other:?}"),
    }
}

#[test]
fn two_starts_of_one_round_count_together() {
    let mut world = world();
    let jobs = [submit(&mut world, "red", 3), submit(&mut world, "red", 3), submit(&mut world, "red", 1)];
    note(&mut world, vec![limited("red", Some(4_000), None)]);
    let planned = world.plan();
    assert_eq!(planned.plan.starts.len(), 2);
    assert_eq!(jobs.map(|job| runs(&world, job)), [true, false, true]);
    let expected =
        Reason::PolicyLimit { tenant: tenant("red"), pool: None, held: 4_000, wanted: 3_000, limit: 4_000 };
    let told = limit_of(&world, jobs[1]).unwrap();
    assert_eq!(told, expected);
    assert_eq!(told.word(), "PolicyLimit");
    let sentence = "tenant `red` may hold 4 GPUs by policy now, holds 4 and the job wants 3";
    assert_eq!(told.sentence(), sentence);
}

#[test]
fn parts_of_gpus_count_in_thousandths() {
    let mut world = world();
    let half = || {
        let mut spec = spec("half", 1);
        spec.tasks[0].each.gpu_compute_milli = 500;
        spec
    };
    let jobs = [0, 1, 2].map(|_| submit_spec(&mut world, "red", half()));
    note(&mut world, vec![limited("red", Some(1_499), None)]);
    world.plan();
    assert_eq!(jobs.map(|job| runs(&world, job)), [true, true, false]);
    let sentence = "tenant `red` may hold 1.499 GPUs by policy now, holds 1 and the job wants 0.5";
    assert_eq!(limit_of(&world, jobs[2]).unwrap().sentence(), sentence);
    let without_gpus = submit(&mut world, "red", 0);
    note(&mut world, vec![limited("red", Some(0), None)]);
    world.plan();
    assert!(runs(&world, without_gpus), "who takes no GPU passes no limit on GPUs");
}

#[test]
fn a_limit_counts_all_tenants_below() {
    let mut world = world();
    let jobs = [submit(&mut world, "red", 2), submit(&mut world, "blue", 2), submit(&mut world, "green", 2)];
    note(&mut world, vec![limited("lab", Some(3_000), None)]);
    world.plan();
    let ran = jobs.map(|job| runs(&world, job));
    assert!(ran[0] != ran[1] && ran[2], "{ran:?}");
    let waits = jobs[usize::from(ran[0])];
    let told = limit_of(&world, waits).unwrap().sentence();
    assert_eq!(told, "tenant `lab` may hold 3 GPUs by policy now, holds 2 and the job wants 2");
}

#[test]
fn a_limit_on_a_pool_counts_jobs_that_named_it() {
    let mut world = world();
    let elsewhere = submit(&mut world, "red", 4);
    let jobs = [submit_to(&mut world, "red", 2, "fast"), submit_to(&mut world, "blue", 2, "fast")];
    let slow = submit_to(&mut world, "red", 2, "slow");
    note(&mut world, vec![limited("lab", None, Some(("fast", 3_000)))]);
    world.plan();
    assert!(runs(&world, elsewhere) && runs(&world, slow), "the limit is about another pool");
    let ran = jobs.map(|job| runs(&world, job));
    assert!(ran[0] != ran[1], "{ran:?}");
    let waits = jobs[usize::from(ran[0])];
    let sentence = "tenant `lab` may hold 3 GPUs of pool `fast` by policy now, holds 2 and the job wants 2";
    assert_eq!(limit_of(&world, waits).unwrap().sentence(), sentence);
    // The next round counts those who run already.
    world.plan();
    assert!(!runs(&world, waits));
    note(&mut world, vec![limited("lab", None, Some(("fast", 4_000)))]);
    world.plan();
    assert!(runs(&world, waits));
}

#[test]
fn a_gang_over_two_nodes_counts_once_in_its_pool() {
    let mut world = world();
    let mut gang = JobSpec { pool: Some("fast".to_string()), ..spec("gang", 2) };
    gang.tasks[0].count = 3;
    let facts = Box::new(facts(4, "NVIDIA H100 80GB HBM3", 64, 64 * 1_024));
    world.ask(Command::RegisterNode { node: "n3".parse().unwrap(), facts }).unwrap();
    let filler = submit_to(&mut world, "green", 6, "fast");
    note(&mut world, Vec::new());
    world.plan();
    let (gang, small) = (submit_spec(&mut world, "red", gang), submit_to(&mut world, "red", 0, "fast"));
    note(&mut world, vec![limited("red", None, Some(("fast", 6_000)))]);
    world.plan();
    assert!(runs(&world, filler) && runs(&world, gang) && runs(&world, small));
    let nodes = world.state.jobs[&gang].attempt().unwrap().nodes();
    assert_eq!(nodes.len(), 2, "{nodes:?}");
    let more = submit_to(&mut world, "red", 1, "fast");
    note(&mut world, vec![limited("red", None, Some(("fast", 6_500)))]);
    let held = match limit_of(&world, more) {
        Some(Reason::PolicyLimit { held, .. }) => held,
        other => panic!("{other:?}"),
    };
    assert_eq!(held, 6_000);
}

#[test]
fn an_old_plan_does_not_pass_a_new_limit() {
    let mut world = world();
    let jobs = [submit(&mut world, "red", 3), submit(&mut world, "red", 3)];
    note(&mut world, Vec::new());
    let old = plan(&world.state, world.now).plan;
    assert_eq!(old.starts.len(), 2);
    for (limits, expected) in [
        (vec![limited("red", Some(2_000), None)], (0, 2)),
        (vec![limited("lab", Some(2_000), None)], (0, 2)),
        (vec![limited("red", Some(5_000), None)], (1, 1)),
        (vec![limited("lab", Some(6_000), None)], (2, 0)),
    ] {
        let mut world = world.clone();
        note(&mut world, limits.clone());
        assert_eq!(adopt(&mut world, &old), expected, "{limits:?}");
    }
    assert!(jobs.iter().all(|job| !runs(&world, *job)));
}

#[test]
fn an_old_plan_does_not_pass_a_new_limit_on_a_pool() {
    let mut world = world();
    submit_to(&mut world, "red", 3, "fast");
    submit_to(&mut world, "red", 3, "fast");
    note(&mut world, Vec::new());
    let old = plan(&world.state, world.now).plan;
    for (name, milli, expected) in [("red", 2_999, (0, 2)), ("lab", 5_999, (1, 1)), ("lab", 6_000, (2, 0))] {
        let mut world = world.clone();
        note(&mut world, vec![limited(name, None, Some(("fast", milli)))]);
        assert_eq!(adopt(&mut world, &old), expected, "{name} {milli}");
    }
}

#[test]
fn nobody_starts_before_all_limits_above_are_known() {
    let mut world = world();
    let job = submit(&mut world, "red", 1);
    for answered in [vec![], vec!["red"], vec!["lab"]] {
        let mut world = world.clone();
        let limits = answered.iter().map(|name| Limited::of(tenant(name))).collect();
        let (bundles, answers, retries) = (vec!["all".to_string()], Vec::new(), Vec::new());
        world.ask(Command::NoteAnswers { bundles, answers, limits, retries }).unwrap();
        world.plan();
        assert!(!runs(&world, job), "{answered:?}");
        assert!(why(&world, job).contains(&Reason::PolicyUnasked), "{answered:?}");
        let start = Start {
            job,
            tasks: vec![PlacedTask {
                rank: 0,
                group: 0,
                node: "n1".parse().unwrap(),
                gpus: vec![0],
                share: None,
            }],
            effective: None,
            expected_ms: None,
            lent: false,
            score: None,
        };
        let plan = Plan { starts: vec![start], ..Plan::default() };
        assert_eq!(adopt(&mut world, &plan), (0, 1), "adopted unasked");
    }
    note(&mut world, Vec::new());
    world.plan();
    assert!(runs(&world, job));
}

#[test]
fn a_policy_that_failed_blocks_with_its_text_or_not_at_all() {
    let mut world = world();
    let job = submit(&mut world, "red", 1);
    let failed = Some("a.gsky:2: no".to_string());
    let closed = Limited {
        blocked: Some("a policy failed: a.gsky:2: no".to_string()),
        failed: failed.clone(),
        ..Limited::of(tenant("lab"))
    };
    note(&mut world, vec![closed]);
    world.plan();
    assert!(!runs(&world, job));
    let told = Reason::Policy { why: "a policy failed: a.gsky:2: no".to_string() };
    assert!(why(&world, job).contains(&told));
    note(&mut world, vec![Limited { failed, ..Limited::of(tenant("lab")) }]);
    world.plan();
    assert!(runs(&world, job));
}

/// What the policy of DESIGN says: at most half of the GPUs in service from 22:00 to 06:00.
fn half_at_night(world: &World) -> Vec<Limited> {
    let cluster = ClusterView::of(&world.state, world.now);
    let night = cluster.now.hour >= 22 || cluster.now.hour < 6;
    let limit = night.then_some(cluster.gpus * 1_000 / 2);
    ["lab", "red", "blue", "green"].map(|name| limited(name, limit, None)).to_vec()
}

#[test]
fn at_night_nobody_adds_above_half_and_whoever_runs_runs_on() {
    let mut world = world();
    world.tick(21 * HOUR + 59 * MINUTE);
    let day = [submit(&mut world, "red", 6), submit(&mut world, "red", 5)];
    let limits = half_at_night(&world);
    note(&mut world, limits);
    world.plan();
    assert!(day.iter().all(|job| runs(&world, *job)), "11 of 16 by day");
    world.tick(MINUTE);
    let (red, green) = (submit(&mut world, "red", 1), submit(&mut world, "green", 1));
    let limits = half_at_night(&world);
    note(&mut world, limits);
    world.plan();
    assert!(day.iter().all(|job| runs(&world, *job)), "a limit below what is held stops nobody");
    assert!(!runs(&world, red) && runs(&world, green));
    let sentence = "tenant `red` may hold 8 GPUs by policy now, holds 11 and the job wants 1";
    assert_eq!(limit_of(&world, red).unwrap().sentence(), sentence);
    world.tick(8 * HOUR - 1);
    let limits = half_at_night(&world);
    note(&mut world, limits);
    world.plan();
    assert!(!runs(&world, red), "05:59");
    world.tick(1);
    let limits = half_at_night(&world);
    note(&mut world, limits);
    world.plan();
    assert!(runs(&world, red), "06:00");
}

#[test]
fn an_elastic_gang_grows_up_to_the_limit() {
    for (gpu_milli, pool, tasks) in
        [(None, None, 8), (Some(5_000), None, 5), (None, Some(("fast", 3_000)), 3), (Some(2_999), None, 2)]
    {
        let mut world = world();
        let mut gang = JobSpec { pool: Some("fast".to_string()), ..spec("gang", 1) };
        (gang.tasks[0].count, gang.tasks[0].count_max) = (2, Some(8));
        let job = submit_spec(&mut world, "red", gang);
        note(&mut world, vec![limited("lab", gpu_milli, pool)]);
        world.plan();
        let attempt = world.state.jobs[&job].attempt().unwrap();
        assert_eq!(attempt.tasks.len(), tasks, "{gpu_milli:?} {pool:?}");
    }
}

#[test]
fn two_elastic_gangs_that_grow_in_one_round_count_together() {
    for (gpu_milli, pool) in [(Some(5_000), None), (None, Some(("fast", 5_000)))] {
        let mut world = world();
        let mut gang = JobSpec { pool: Some("fast".to_string()), ..spec("gang", 1) };
        (gang.tasks[0].count, gang.tasks[0].count_max) = (1, Some(4));
        let jobs = ["red", "blue"].map(|team| submit_spec(&mut world, team, gang.clone()));
        note(&mut world, vec![limited("lab", gpu_milli, pool)]);
        world.plan();
        let tasks = jobs.map(|job| world.state.jobs[&job].attempt().unwrap().tasks.len());
        assert_eq!(tasks.iter().sum::<usize>(), 5, "{tasks:?} {pool:?}");
    }
}

#[test]
fn nobody_is_displaced_for_a_job_above_the_limit() {
    let mut world = world();
    let victims = [submit(&mut world, "green", 8), submit(&mut world, "green", 8)];
    note(&mut world, Vec::new());
    world.plan();
    let urgent = submit_spec(&mut world, "red", JobSpec { priority: 5_000, ..spec("urgent", 8) });
    note(&mut world, Vec::new());
    let old = plan(&world.state, world.now).plan;
    assert_eq!(old.claims.len(), 1);
    note(&mut world, vec![limited("lab", Some(7_000), None)]);
    assert!(plan(&world.state, world.now).plan.claims.is_empty());
    assert_eq!(adopt(&mut world, &old), (0, 1));
    assert!(victims.iter().all(|job| runs(&world, *job)) && limit_of(&world, urgent).is_some());
}

#[test]
fn limits_are_forgotten_with_the_last_who_waits_and_with_their_bundle() {
    let mut world = world();
    let held = [submit(&mut world, "red", 1), submit(&mut world, "blue", 1)];
    let none_for_blue = || vec![limited("blue", Some(0), None)];
    note(&mut world, none_for_blue());
    let known =
        |world: &World| world.state.policies.limits.keys().map(TenantId::to_string).collect::<Vec<_>>();
    assert_eq!(known(&world), ["blue", "lab", "red"], "nobody of green waits");
    world.plan();
    assert!(runs(&world, held[0]));
    assert_eq!(known(&world), ["blue", "lab"]);
    let mut restoring = Restoring::default();
    world.state.save(|piece| restoring.add(piece).unwrap());
    assert_eq!(restoring.finish(), world.state, "a savepoint keeps them");
    put(&mut world, Scope::Tenant(tenant("lab")), "lab");
    assert_eq!(known(&world), ["blue"], "lab has policies of its own now");
    note(&mut world, none_for_blue());
    put(&mut world, Scope::Cluster, "others");
    assert!(known(&world).is_empty());
    note(&mut world, none_for_blue());
    world.ask(Command::CancelJob { job: held[1] }).unwrap();
    assert!(known(&world).is_empty());
}

#[test]
fn a_tenant_narrows_itself_and_nobody_else() {
    let mut world = World { state: world().state, ..World::new() };
    let none = Arc::new(Bundle::default());
    world.ask(Command::ApplyPolicy { scope: Scope::Cluster, bundle: none, why: String::new() }).unwrap();
    put(&mut world, Scope::Tenant(tenant("red")), "red");
    let jobs = [submit(&mut world, "red", 2), submit(&mut world, "blue", 2)];
    let limits =
        vec![limited("red", Some(0), None), limited("blue", Some(0), None), limited("lab", Some(0), None)];
    note(&mut world, limits);
    let known: Vec<String> = world.state.policies.limits.keys().map(TenantId::to_string).collect();
    assert_eq!(known, ["red"]);
    world.plan();
    assert_eq!(jobs.map(|job| runs(&world, job)), [false, true]);
}

#[test]
fn only_what_passes_no_limit_is_said_to_help() {
    let mut world = world();
    let running = submit(&mut world, "red", 5);
    note(&mut world, Vec::new());
    world.plan();
    assert!(runs(&world, running));
    for (limit, expected) in [(8_000, vec!["3 GPUs"]), (5_500, vec![]), (6_999, vec!["1 GPU"])] {
        let mut world = world.clone();
        let job = submit(&mut world, "red", 4);
        note(&mut world, vec![limited("red", Some(limit), None)]);
        let found = remedies(&world.state, &actor(), job, world.now);
        let words: Vec<String> = found.iter().map(|remedy| remedy.words()).collect();
        assert_eq!(words, expected, "{limit}");
    }
}

#[test]
fn a_job_that_is_not_submitted_is_told_of_a_known_limit() {
    let mut world = world();
    submit(&mut world, "red", 8);
    note(&mut world, vec![limited("red", Some(1_000), None)]);
    let mut asked = spec("job", 2);
    asked.tenant = tenant("red");
    let told = outlook(&world.state, &asked, world.now);
    assert!(told.start.is_none());
    assert!(told.verdict.reasons.iter().any(|reason| matches!(reason, Reason::PolicyLimit { .. })));
    asked.tenant = tenant("green");
    assert!(outlook(&world.state, &asked, world.now).start.is_some(), "nothing is known of green");
    let known = world.state.with_limits(vec![limited("green", Some(1_000), None)]);
    assert!(outlook(&known, &asked, world.now).start.is_none());
}

#[test]
fn a_policy_sees_what_is_in_service_and_held() {
    let mut world = world();
    submit(&mut world, "green", 3);
    note(&mut world, Vec::new());
    world.plan();
    let seen = ClusterView::of(&world.state, Timestamp(23 * HOUR));
    assert_eq!((seen.gpus, seen.gpu_milli_held, seen.now.hour), (16, 3_000, 23));
    assert_eq!(seen.pools, BTreeMap::from([("fast".to_string(), 8), ("slow".to_string(), 8)]));
    let (word, why) = (NodeWord::Draining, String::new());
    world.ask(Command::SetNodeState { node: "n2".parse().unwrap(), word, why }).unwrap();
    let seen = ClusterView::of(&world.state, world.now);
    assert_eq!(seen.gpus, 8);
    assert_eq!(seen.pools, BTreeMap::from([("fast".to_string(), 8), ("slow".to_string(), 0)]));
}

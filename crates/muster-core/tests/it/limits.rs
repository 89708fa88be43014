//! Policy limits on the GPUs of tenants, in all and per pool.

use std::collections::BTreeMap;

use muster_core::facts::plan::Plan;
use muster_core::facts::verdict::Reason;
use muster_core::objects::node::NodeStatus;
use muster_core::objects::policy::rules::Rules;
use muster_core::objects::policy::{GpuLimit, Hook, PolicyBundle, PolicyScope, TenantLimit};
use muster_core::planner::{dry_run, plan, remedies};
use muster_core::state::StateRestorer;
use muster_core::time::{HOUR, MINUTE};
use muster_core::{Command, JobId, TenantId, Timestamp};

use crate::builders::{A100, H100, bundle, job, node, node_id, placed, plan_of_starts, pool, start, tenant, tenant_id};
use crate::world::{World, actor};

/// Two nodes of eight GPUs; a tenant `lab` with the children `red` and `blue`, and a tenant `green`.
fn world() -> World {
    let mut world = World::new();
    for (name, model) in [("n1", H100), ("n2", A100)] {
        world.register(name, node().gpus(8).model(model));
    }
    world.create_tenant("lab", tenant());
    world.create_tenant("red", tenant().parent("lab"));
    world.create_tenant("blue", tenant().parent("lab"));
    world.create_tenant("green", tenant());
    apply(&mut world, PolicyScope::Cluster, "all");
    world
}

/// Apply a bundle that answers the hook `limit`; that of the cluster registers two pools.
fn apply(world: &mut World, scope: PolicyScope, hash: &str) {
    let pools = [pool("fast", &["H100"]), pool("slow", &["A100"])].map(|pool| (pool.name.clone(), pool));
    let registers = scope == PolicyScope::Cluster;
    let pools = if registers { BTreeMap::from(pools) } else { BTreeMap::new() };
    let rules = Rules { pools, ..Rules::default() };
    world.apply_policy(scope, PolicyBundle { rules, ..bundle(hash, &[Hook::Limit]) });
}

fn submit(world: &mut World, name: &str, gpus: u32) -> JobId {
    world.submit(job().tenant(name).gpus(gpus))
}

fn submit_to(world: &mut World, name: &str, gpus: u32, pool: &str) -> JobId {
    world.submit(job().tenant(name).gpus(gpus).pool(pool))
}

/// A limit in thousandths of GPUs, and a limit of a pool.
fn limited(name: &str, gpu_milli: Option<u64>, pool: Option<(&str, u64)>) -> TenantLimit {
    let pools = pool.into_iter().map(|(pool, milli)| (pool.to_string(), milli)).collect();
    TenantLimit { limit: GpuLimit { gpu_milli, pools }, ..TenantLimit::of(tenant_id(name)) }
}

/// Note answers of the active bundles. Tenants that are not named have no limit.
fn note(world: &mut World, limits: Vec<TenantLimit>) {
    let bundles = world.state.policies.active_versions().iter().map(|version| version.bundle.hash.clone()).collect();
    let unlimited = ["lab", "red", "blue", "green"].map(|name| TenantLimit::of(tenant_id(name)));
    let limits = unlimited.into_iter().chain(limits).collect();
    let (answers, retries) = (Vec::new(), Vec::new());
    world.run(Command::NoteAnswers { bundles, answers, limits, retries }).unwrap();
}

fn why(world: &World, job: JobId) -> Vec<Reason> {
    let verdicts = plan(&world.state, world.now).verdicts;
    verdicts.of(&world.state, &world.state.jobs[&job], world.now).reasons
}

fn limit_of(world: &World, job: JobId) -> Option<Reason> {
    why(world, job).into_iter().find(|reason| matches!(reason, Reason::PolicyLimit { .. }))
}

/// The number of adopted and of rejected gangs.
fn adopt(world: &mut World, plan: &Plan) -> (usize, usize) {
    let (gangs, rejected) = world.adopt(plan);
    (gangs, rejected.len())
}

#[test]
fn two_starts_of_one_round_count_together() {
    let mut world = world();
    let jobs = [submit(&mut world, "red", 3), submit(&mut world, "red", 3), submit(&mut world, "red", 1)];
    note(&mut world, vec![limited("red", Some(4_000), None)]);
    let planned = world.plan();
    assert_eq!(planned.plan.starts.len(), 2);
    assert_eq!(jobs.map(|job| world.runs(job)), [true, false, true]);
    let expected =
        Reason::PolicyLimit { tenant: tenant_id("red"), pool: None, held: 4_000, wanted: 3_000, limit: 4_000 };
    let reason = limit_of(&world, jobs[1]).unwrap();
    assert_eq!(reason, expected);
    assert_eq!(reason.code(), "PolicyLimit");
    let sentence = "a policy limits tenant `red` to 4 GPUs; the tenant holds 4 and the job requests 3";
    assert_eq!(reason.sentence(), sentence);
}

#[test]
fn gpu_shares_count_in_thousandths() {
    let mut world = world();
    let jobs = [0, 1, 2].map(|_| world.submit(job().tenant("red").share(500)));
    note(&mut world, vec![limited("red", Some(1_499), None)]);
    world.plan();
    assert_eq!(jobs.map(|job| world.runs(job)), [true, true, false]);
    let sentence = "a policy limits tenant `red` to 1.499 GPUs; the tenant holds 1 and the job requests 0.5";
    assert_eq!(limit_of(&world, jobs[2]).unwrap().sentence(), sentence);
    let without_gpus = submit(&mut world, "red", 0);
    note(&mut world, vec![limited("red", Some(0), None)]);
    world.plan();
    assert!(world.runs(without_gpus), "a job without GPUs exceeds no limit on GPUs");
}

#[test]
fn a_limit_counts_all_descendants() {
    let mut world = world();
    let jobs = [submit(&mut world, "red", 2), submit(&mut world, "blue", 2), submit(&mut world, "green", 2)];
    note(&mut world, vec![limited("lab", Some(3_000), None)]);
    world.plan();
    let ran = jobs.map(|job| world.runs(job));
    assert!(ran[0] != ran[1] && ran[2], "{ran:?}");
    let waits = jobs[usize::from(ran[0])];
    let sentence = "a policy limits tenant `lab` to 3 GPUs; the tenant holds 2 and the job requests 2";
    assert_eq!(limit_of(&world, waits).unwrap().sentence(), sentence);
}

#[test]
fn a_pool_limit_counts_jobs_that_request_the_pool() {
    let mut world = world();
    let elsewhere = submit(&mut world, "red", 4);
    let jobs = [submit_to(&mut world, "red", 2, "fast"), submit_to(&mut world, "blue", 2, "fast")];
    let slow = submit_to(&mut world, "red", 2, "slow");
    note(&mut world, vec![limited("lab", None, Some(("fast", 3_000)))]);
    world.plan();
    assert!(world.runs(elsewhere) && world.runs(slow), "another pool has the limit");
    let ran = jobs.map(|job| world.runs(job));
    assert!(ran[0] != ran[1], "{ran:?}");
    let waits = jobs[usize::from(ran[0])];
    let sentence = "a policy limits tenant `lab` to 3 GPUs of pool `fast`; the tenant holds 2 and the job requests 2";
    assert_eq!(limit_of(&world, waits).unwrap().sentence(), sentence);
    // The next round counts running jobs.
    world.plan();
    assert!(!world.runs(waits));
    note(&mut world, vec![limited("lab", None, Some(("fast", 4_000)))]);
    world.plan();
    assert!(world.runs(waits));
}

#[test]
fn a_gang_over_two_nodes_counts_once_in_its_pool() {
    let mut world = world();
    let gang = job().tenant("red").pool("fast").tasks(3).gpus(2);
    world.register("n3", node());
    let filler = submit_to(&mut world, "green", 6, "fast");
    note(&mut world, Vec::new());
    world.plan();
    let (gang, small) = (world.submit(gang), submit_to(&mut world, "red", 0, "fast"));
    note(&mut world, vec![limited("red", None, Some(("fast", 6_000)))]);
    world.plan();
    assert!(world.runs(filler) && world.runs(gang) && world.runs(small));
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
fn a_stale_plan_does_not_exceed_a_new_limit() {
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
    assert!(jobs.iter().all(|job| !world.runs(*job)));
}

#[test]
fn a_stale_plan_does_not_exceed_a_new_pool_limit() {
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
fn no_job_starts_before_the_limits_of_all_ancestors_are_known() {
    let mut world = world();
    let job = submit(&mut world, "red", 1);
    for answered in [vec![], vec!["red"], vec!["lab"]] {
        let mut world = world.clone();
        let limits = answered.iter().map(|name| TenantLimit::of(tenant_id(name))).collect();
        let (bundles, answers, retries) = (vec!["all".to_string()], Vec::new(), Vec::new());
        world.run(Command::NoteAnswers { bundles, answers, limits, retries }).unwrap();
        world.plan();
        assert!(!world.runs(job), "{answered:?}");
        assert!(why(&world, job).contains(&Reason::PolicyUnasked), "{answered:?}");
        let plan = plan_of_starts(vec![start(job, vec![placed(0, "n1", &[0])])]);
        assert_eq!(adopt(&mut world, &plan), (0, 1), "adopted without an answer");
    }
    note(&mut world, Vec::new());
    world.plan();
    assert!(world.runs(job));
}

#[test]
fn a_failing_policy_fails_closed_with_its_error_or_open() {
    let mut world = world();
    let job = submit(&mut world, "red", 1);
    let failed = Some("a.gsky:2: no".to_string());
    let closed = TenantLimit {
        blocked: Some("a policy failed: a.gsky:2: no".to_string()),
        failed: failed.clone(),
        ..TenantLimit::of(tenant_id("lab"))
    };
    note(&mut world, vec![closed]);
    world.plan();
    assert!(!world.runs(job));
    let reason = Reason::Policy { why: "a policy failed: a.gsky:2: no".to_string() };
    assert!(why(&world, job).contains(&reason));
    note(&mut world, vec![TenantLimit { failed, ..TenantLimit::of(tenant_id("lab")) }]);
    world.plan();
    assert!(world.runs(job));
}

/// The policy of the design document: at most half of the GPUs in service from 22:00 to 06:00.
fn half_at_night(world: &World) -> Vec<TenantLimit> {
    let cluster = world.state.cluster_view(world.now);
    let night = cluster.now.hour >= 22 || cluster.now.hour < 6;
    let limit = night.then_some(cluster.gpus * 1_000 / 2);
    ["lab", "red", "blue", "green"].map(|name| limited(name, limit, None)).to_vec()
}

#[test]
fn a_limit_below_current_usage_blocks_starts_and_stops_no_job() {
    let mut world = world();
    world.tick(21 * HOUR + 59 * MINUTE);
    let day = [submit(&mut world, "red", 6), submit(&mut world, "red", 5)];
    let limits = half_at_night(&world);
    note(&mut world, limits);
    world.plan();
    assert!(day.iter().all(|job| world.runs(*job)), "11 of 16 by day");
    world.tick(MINUTE);
    let (red, green) = (submit(&mut world, "red", 1), submit(&mut world, "green", 1));
    let limits = half_at_night(&world);
    note(&mut world, limits);
    world.plan();
    assert!(day.iter().all(|job| world.runs(*job)), "a limit below the usage stops no job");
    assert!(!world.runs(red) && world.runs(green));
    let sentence = "a policy limits tenant `red` to 8 GPUs; the tenant holds 11 and the job requests 1";
    assert_eq!(limit_of(&world, red).unwrap().sentence(), sentence);
    world.tick(8 * HOUR - 1);
    let limits = half_at_night(&world);
    note(&mut world, limits);
    world.plan();
    assert!(!world.runs(red), "05:59");
    world.tick(1);
    let limits = half_at_night(&world);
    note(&mut world, limits);
    world.plan();
    assert!(world.runs(red), "06:00");
}

#[test]
fn an_elastic_gang_grows_up_to_the_limit() {
    for (gpu_milli, pool, tasks) in
        [(None, None, 8), (Some(5_000), None, 5), (None, Some(("fast", 3_000)), 3), (Some(2_999), None, 2)]
    {
        let mut world = world();
        let job = world.submit(job().tenant("red").pool("fast").tasks(2).tasks_max(8));
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
        let gang = job().pool("fast").tasks_max(4);
        let jobs = ["red", "blue"].map(|name| world.submit(gang.clone().tenant(name)));
        note(&mut world, vec![limited("lab", gpu_milli, pool)]);
        world.plan();
        let tasks = jobs.map(|job| world.state.jobs[&job].attempt().unwrap().tasks.len());
        assert_eq!(tasks.iter().sum::<usize>(), 5, "{tasks:?} {pool:?}");
    }
}

#[test]
fn no_job_is_evicted_for_a_preemptor_above_the_limit() {
    let mut world = world();
    let victims = [submit(&mut world, "green", 8), submit(&mut world, "green", 8)];
    note(&mut world, Vec::new());
    world.plan();
    let urgent = world.submit(job().tenant("red").gpus(8).priority(5_000));
    note(&mut world, Vec::new());
    let old = plan(&world.state, world.now).plan;
    assert_eq!(old.evictions.len(), 1);
    note(&mut world, vec![limited("lab", Some(7_000), None)]);
    assert!(plan(&world.state, world.now).plan.evictions.is_empty());
    assert_eq!(adopt(&mut world, &old), (0, 1));
    assert!(victims.iter().all(|job| world.runs(*job)) && limit_of(&world, urgent).is_some());
}

#[test]
fn limits_are_dropped_with_the_last_queued_job_and_with_their_bundle() {
    let mut world = world();
    let held = [submit(&mut world, "red", 1), submit(&mut world, "blue", 1)];
    let none_for_blue = || vec![limited("blue", Some(0), None)];
    note(&mut world, none_for_blue());
    let known = |world: &World| world.state.policies.limits.keys().map(TenantId::to_string).collect::<Vec<_>>();
    assert_eq!(known(&world), ["blue", "lab", "red"], "no job of green waits");
    world.plan();
    assert!(world.runs(held[0]));
    assert_eq!(known(&world), ["blue", "lab"]);
    let mut restoring = StateRestorer::default();
    world.state.save(|piece| restoring.add(piece).unwrap());
    assert_eq!(restoring.finish(), world.state, "a savepoint keeps them");
    apply(&mut world, PolicyScope::Tenant(tenant_id("lab")), "lab");
    assert_eq!(known(&world), ["blue"], "lab has a policy of its own now");
    note(&mut world, none_for_blue());
    apply(&mut world, PolicyScope::Cluster, "others");
    assert!(known(&world).is_empty());
    note(&mut world, none_for_blue());
    world.run(Command::CancelJob { job: held[1] }).unwrap();
    assert!(known(&world).is_empty());
}

#[test]
fn a_tenant_policy_limits_only_its_tenant() {
    let mut world = World { state: world().state, ..World::new() };
    world.apply_policy(PolicyScope::Cluster, PolicyBundle::default());
    apply(&mut world, PolicyScope::Tenant(tenant_id("red")), "red");
    let jobs = [submit(&mut world, "red", 2), submit(&mut world, "blue", 2)];
    let limits = vec![limited("red", Some(0), None), limited("blue", Some(0), None), limited("lab", Some(0), None)];
    note(&mut world, limits);
    let known: Vec<String> = world.state.policies.limits.keys().map(TenantId::to_string).collect();
    assert_eq!(known, ["red"]);
    world.plan();
    assert_eq!(jobs.map(|job| world.runs(job)), [false, true]);
}

#[test]
fn remedies_respect_policy_limits() {
    let mut world = world();
    let running = submit(&mut world, "red", 5);
    note(&mut world, Vec::new());
    world.plan();
    assert!(world.runs(running));
    for (limit, expected) in [(8_000, vec!["3 GPUs"]), (5_500, vec![]), (6_999, vec!["1 GPU"])] {
        let mut world = world.clone();
        let job = submit(&mut world, "red", 4);
        note(&mut world, vec![limited("red", Some(limit), None)]);
        let found = remedies(&world.state, &actor(), job, world.now);
        let phrases: Vec<String> = found.iter().map(|remedy| remedy.phrase()).collect();
        assert_eq!(phrases, expected, "{limit}");
    }
}

#[test]
fn a_dry_run_reports_a_known_limit() {
    let mut world = world();
    submit(&mut world, "red", 8);
    note(&mut world, vec![limited("red", Some(1_000), None)]);
    let of = |tenant: &str| job().tenant(tenant).gpus(2).build();
    let found = dry_run(&world.state, &of("red"), world.now);
    assert!(found.start.is_none());
    assert!(found.verdict.reasons.iter().any(|reason| matches!(reason, Reason::PolicyLimit { .. })));
    assert!(dry_run(&world.state, &of("green"), world.now).start.is_some(), "green has no known limit");
    let known = world.state.with_limits(vec![limited("green", Some(1_000), None)]);
    assert!(dry_run(&known, &of("green"), world.now).start.is_none());
}

#[test]
fn a_policy_sees_the_gpus_in_service_and_in_use() {
    let mut world = world();
    submit(&mut world, "green", 3);
    note(&mut world, Vec::new());
    world.plan();
    let seen = world.state.cluster_view(Timestamp(23 * HOUR));
    assert_eq!((seen.gpus, seen.gpu_milli_held, seen.now.hour), (16, 3_000, 23));
    assert_eq!(seen.pools, BTreeMap::from([("fast".to_string(), 8), ("slow".to_string(), 8)]));
    let (status, why) = (NodeStatus::Draining, String::new());
    world.run(Command::SetNodeState { node: node_id("n2"), status, why }).unwrap();
    let seen = world.state.cluster_view(world.now);
    assert_eq!(seen.gpus, 8);
    assert_eq!(seen.pools, BTreeMap::from([("fast".to_string(), 8), ("slow".to_string(), 0)]));
}

//! Rejections: each code of `Rejection` is produced by a small plan, and a rejected part leaves no event.

use std::collections::BTreeSet;

use muster_core::facts::command::{Answer, ArraySpec, Command, SubmitJob};
use muster_core::facts::plan::{Plan, PlanPart, RejectedPart, Rejection, Repartitioning, Start};
use muster_core::objects::job::Topology;
use muster_core::objects::node::NodeStatus;
use muster_core::objects::policy::{GpuLimit, Hook, PolicyScope, TenantLimit};
use muster_core::objects::score::{Score, Term, TermName};
use muster_core::objects::settings::{PRIORITY_MAX, PortRange, Repartition};
use muster_core::time::{DAY, HOUR};
use muster_core::{GpuId, JobId, Settings};

use super::one_node;
use crate::builders::{
    A100, bundle, eviction, job, node, node_id, placed, plan_of_evictions, plan_of_starts, start, submission, tenant,
    tenant_id, window,
};
use crate::world::World;

/// The longest runtime that a plan may expect: ten years.
const EXPECTED_MS_MAX: i64 = 3_653 * DAY;
/// The largest term of a score.
const SCORE_TERM_MILLI_MAX: i64 = 1_000_000_000_000;

/// Adopt a plan whose parts are all rejected: no event is recorded. Returns the reason of the last part.
fn rejected(world: &mut World, plan: &Plan) -> Rejection {
    let events = world.events.len();
    let (gangs, rejected) = world.adopt(plan);
    assert_eq!((gangs, world.events.len()), (0, events), "a rejected part left an event");
    rejected.last().unwrap().reason
}

fn rejected_start(world: &mut World, start: Start) -> Rejection {
    rejected(world, &plan_of_starts(vec![start]))
}

/// The reason of the second start, after the first was adopted.
fn rejected_second(world: &mut World, starts: [Start; 2]) -> Rejection {
    let second = starts[1].job;
    let (gangs, rejected) = world.adopt(&plan_of_starts(starts.to_vec()));
    assert_eq!(gangs, 1, "{rejected:?}");
    assert_eq!((rejected.len(), rejected[0].part, rejected[0].job), (1, PlanPart::Start, second));
    rejected[0].reason
}

/// A start of a job with one GPU.
fn on_gpu(job: JobId, gpu: u8) -> Start {
    start(job, vec![placed(0, "n1", &[gpu])])
}

/// A cluster with a waiting job of one GPU, and a start of the job.
fn waiting() -> (World, Start) {
    let mut world = one_node(4, 64);
    let job = world.submit(job());
    (world, on_gpu(job, 0))
}

fn configure(world: &mut World, settings: Settings) {
    world.run(Command::Configure { settings: Box::new(settings) }).unwrap();
}

/// A start with an assertion out of bounds is rejected without an event; the same start within bounds is adopted.
fn check_bounds(out: impl Fn(&mut Start), within: impl Fn(&mut Start), reason: Rejection) {
    let (mut world, mut start) = waiting();
    let job = start.job;
    out(&mut start);
    let events = world.events.len();
    let rejected = RejectedPart { part: PlanPart::Start, job, reason };
    assert_eq!(world.adopt(&plan_of_starts(vec![start.clone()])), (0, vec![rejected]), "{start:?}");
    assert_eq!(world.events.len(), events, "{start:?} left an event");
    within(&mut start);
    assert_eq!(world.adopt(&plan_of_starts(vec![start.clone()])), (1, Vec::new()), "{start:?}");
}

#[test]
fn an_effective_priority_out_of_bounds_is_rejected() {
    let settings = Settings::default();
    let lowest = -i64::from(settings.fair_share_max);
    let highest = i64::from(PRIORITY_MAX) + i64::from(settings.aging_max);
    let cases = [(lowest - 1, lowest), (highest + 1, highest), (i64::MIN, 0), (i64::MAX, 0)];
    for (out, within) in cases {
        check_bounds(
            |start| start.effective_priority = Some(out),
            |start| start.effective_priority = Some(within),
            Rejection::EffectivePriorityOutOfBounds,
        );
    }
}

#[test]
fn an_expected_runtime_out_of_bounds_is_rejected() {
    for (out, within) in [(-1, 0), (EXPECTED_MS_MAX + 1, EXPECTED_MS_MAX), (i64::MAX, HOUR)] {
        check_bounds(
            |start| start.expected_ms = Some(out),
            |start| start.expected_ms = Some(within),
            Rejection::ExpectedRuntimeOutOfBounds,
        );
    }
}

#[test]
fn a_score_out_of_bounds_is_rejected() {
    let score = |terms: &[(TermName, i64)]| {
        let terms = terms.iter().map(|(name, milli)| Term { name: *name, milli: *milli }).collect();
        Some(Box::new(Score { terms, compared: 2 }))
    };
    let (max, min) = (SCORE_TERM_MILLI_MAX, -SCORE_TERM_MILLI_MAX);
    let cases = [
        (score(&[(TermName::Locality, max + 1)]), score(&[(TermName::Locality, max)])),
        (score(&[(TermName::Policy, min - 1)]), score(&[(TermName::Policy, min)])),
        // A term that occurs twice.
        (score(&[(TermName::Health, 1), (TermName::Health, 2)]), score(&[(TermName::Health, 3)])),
    ];
    for (out, within) in cases {
        check_bounds(
            |start| start.score = out.clone(),
            |start| start.score = within.clone(),
            Rejection::ScoreOutOfBounds,
        );
    }
}

#[test]
fn a_revocable_start_of_a_job_that_may_not_be_preempted_is_rejected() {
    for may_be_preempted in [false, true] {
        let mut world = one_node(4, 64);
        world.create_tenant("red", tenant().may_be_preempted(may_be_preempted));
        let job = world.submit(job().tenant("red"));
        let revocable = Start { revocable: true, ..on_gpu(job, 0) };
        if may_be_preempted {
            assert_eq!(world.adopt(&plan_of_starts(vec![revocable])), (1, Vec::new()));
        } else {
            assert_eq!(rejected_start(&mut world, revocable), Rejection::NotRevocable);
        }
    }
}

#[test]
fn a_start_on_an_estimate_of_a_job_with_a_time_limit_is_rejected() {
    let on_estimate: [fn(&mut Start); 2] = [|start| start.revocable = true, |start| start.expected_ms = Some(HOUR)];
    for assert_estimate in on_estimate {
        for (spec, is_limited) in [(job(), false), (job().limit_ms(HOUR), true)] {
            let mut world = one_node(4, 64);
            let mut start = on_gpu(world.submit(spec), 0);
            assert_estimate(&mut start);
            if is_limited {
                assert_eq!(rejected_start(&mut world, start.clone()), Rejection::EstimateDespiteTimeLimit);
                // The start is adopted without what the plan asserts.
                start = on_gpu(start.job, 0);
            }
            assert_eq!(world.adopt(&plan_of_starts(vec![start])), (1, Vec::new()));
        }
    }
}

#[test]
fn every_rejection_is_produced_by_a_plan() {
    let cases: [(Rejection, fn() -> Rejection); 30] = [
        (Rejection::NotReady, not_ready),
        (Rejection::TakenTwice, taken_twice),
        (Rejection::Policy, policy),
        (Rejection::IncompleteGang, incomplete_gang),
        (Rejection::EffectivePriorityOutOfBounds, effective_priority),
        (Rejection::ExpectedRuntimeOutOfBounds, expected_runtime),
        (Rejection::ScoreOutOfBounds, score),
        (Rejection::NotRevocable, not_revocable),
        (Rejection::EstimateDespiteTimeLimit, estimate_despite_time_limit),
        (Rejection::Window, in_window),
        (Rejection::ArrayLimit, array_limit),
        (Rejection::Quota, quota),
        (Rejection::UserQuota, user_quota),
        (Rejection::PolicyLimit, policy_limit),
        (Rejection::Budget, budget),
        (Rejection::ModelLimit, model_limit),
        (Rejection::Locality, locality),
        (Rejection::NodeUnavailable, node_unavailable),
        (Rejection::DeviceIneligible, device_ineligible),
        (Rejection::SpaceTaken, space_taken),
        (Rejection::NoMasterPort, no_master_port),
        (Rejection::PreemptionOff, preemption_off),
        (Rejection::HasClaim, has_claim),
        (Rejection::VictimIneligible, victim_ineligible),
        (Rejection::UnknownGpu, unknown_gpu),
        (Rejection::RepartitioningOff, repartitioning_off),
        (Rejection::IllegalPartition, illegal_partition),
        (Rejection::GpuInUse, gpu_in_use),
        (Rejection::RepartitioningCooldown, repartitioning_cooldown),
        (Rejection::AlreadyPartitioned, already_partitioned),
    ];
    for (expected, produce) in cases {
        assert_eq!(produce(), expected);
    }
    let produced: BTreeSet<Rejection> = cases.iter().map(|(rejection, _)| *rejection).collect();
    assert_eq!(produced, Rejection::ALL.into());
}

#[test]
fn rejection_codes_are_distinct() {
    let codes: BTreeSet<&str> = Rejection::ALL.iter().map(|rejection| rejection.code()).collect();
    assert_eq!(codes.len(), Rejection::ALL.len());
}

fn not_ready() -> Rejection {
    let (mut world, start) = waiting();
    world.run(Command::HoldJob { job: start.job, why: String::new() }).unwrap();
    rejected_start(&mut world, start)
}

fn taken_twice() -> Rejection {
    let (mut world, start) = waiting();
    rejected_second(&mut world, [start.clone(), start])
}

fn policy() -> Rejection {
    let (mut world, start) = waiting();
    world.apply_policy(PolicyScope::Cluster, bundle("unanswered", &[Hook::Admit]));
    rejected_start(&mut world, start)
}

fn incomplete_gang() -> Rejection {
    let mut world = one_node(4, 64);
    let gang = world.submit(job().tasks(2));
    rejected_start(&mut world, on_gpu(gang, 0))
}

fn effective_priority() -> Rejection {
    let (mut world, start) = waiting();
    rejected_start(&mut world, Start { effective_priority: Some(i64::MAX), ..start })
}

fn expected_runtime() -> Rejection {
    let (mut world, start) = waiting();
    rejected_start(&mut world, Start { expected_ms: Some(-1), ..start })
}

fn score() -> Rejection {
    let (mut world, start) = waiting();
    let terms = vec![Term { name: TermName::Fragmentation, milli: i64::MIN }];
    rejected_start(&mut world, Start { score: Some(Box::new(Score { terms, compared: 1 })), ..start })
}

fn not_revocable() -> Rejection {
    let (mut world, start) = waiting();
    configure(&mut world, Settings { preemption: false, ..Settings::default() });
    rejected_start(&mut world, Start { revocable: true, ..start })
}

fn estimate_despite_time_limit() -> Rejection {
    let mut world = one_node(4, 64);
    let limited = world.submit(job().limit_ms(HOUR));
    rejected_start(&mut world, Start { revocable: true, ..on_gpu(limited, 0) })
}

fn in_window() -> Rejection {
    let (mut world, start) = waiting();
    let maintenance = window("maintenance", &["n1"], world.now.plus(HOUR), world.now.plus(2 * HOUR));
    world.run(Command::OpenWindow { window: Box::new(maintenance) }).unwrap();
    rejected_start(&mut world, start)
}

fn array_limit() -> Rejection {
    let mut world = one_node(4, 64);
    let array = Some(ArraySpec { indexes: vec![0, 1], running_max: Some(1) });
    let submitted = world.run(Command::SubmitJob(SubmitJob { array, ..submission(job()) }));
    let Ok(Answer::Job(array)) = submitted else { panic!("{submitted:?}") };
    let member = |index: u32| on_gpu(JobId::of_array(array.number, index), index as u8);
    rejected_second(&mut world, [member(0), member(1)])
}

/// The second of two jobs of the tenant `red`.
fn second_of_red(config: crate::builders::TenantBuilder) -> Rejection {
    let mut world = one_node(4, 64);
    world.create_tenant("red", config);
    let jobs = [0, 1].map(|_| world.submit(job().tenant("red")));
    rejected_second(&mut world, [on_gpu(jobs[0], 0), on_gpu(jobs[1], 1)])
}

fn quota() -> Rejection {
    second_of_red(tenant().gpus_max(1))
}

fn user_quota() -> Rejection {
    second_of_red(tenant().gpus_per_user_max(1))
}

fn model_limit() -> Rejection {
    second_of_red(tenant().model_max("H100", 1))
}

fn policy_limit() -> Rejection {
    let (mut world, start) = waiting();
    world.apply_policy(PolicyScope::Cluster, bundle("limits", &[Hook::Limit]));
    let limit = GpuLimit { gpu_milli: Some(999), ..GpuLimit::default() };
    let limits = vec![TenantLimit { limit, ..TenantLimit::of(tenant_id("default")) }];
    let (bundles, answers, retries) = (vec!["limits".to_string()], Vec::new(), Vec::new());
    world.run(Command::NoteAnswers { bundles, answers, limits, retries }).unwrap();
    rejected_start(&mut world, start)
}

fn budget() -> Rejection {
    let mut world = one_node(4, 64);
    world.create_tenant("red", tenant().budget_gpu_ms(HOUR as u64));
    let long = world.submit(job().tenant("red").limit_ms(2 * HOUR));
    rejected_start(&mut world, on_gpu(long, 0))
}

fn locality() -> Rejection {
    let mut world = World::new();
    world.register("n1", node().rack("r1"));
    world.register("n2", node().rack("r2"));
    let gang = world.submit(job().tasks(2).topology(Topology::SameRack));
    rejected_start(&mut world, start(gang, vec![placed(0, "n1", &[0]), placed(1, "n2", &[0])]))
}

fn node_unavailable() -> Rejection {
    let (mut world, start) = waiting();
    let draining = NodeStatus::Draining;
    world.run(Command::SetNodeState { node: node_id("n1"), status: draining, why: String::new() }).unwrap();
    rejected_start(&mut world, start)
}

fn device_ineligible() -> Rejection {
    let mut world = one_node(4, 64);
    world.register("n2", node().model(A100));
    let job = world.submit(job().model("A100"));
    rejected_start(&mut world, on_gpu(job, 0))
}

fn space_taken() -> Rejection {
    let mut world = one_node(4, 64);
    let jobs = [0, 1].map(|_| world.submit(job()));
    rejected_second(&mut world, [on_gpu(jobs[0], 0), on_gpu(jobs[1], 0)])
}

/// Two gangs with their first task on the same node, which has one port.
fn no_master_port() -> Rejection {
    let mut world = one_node(4, 64);
    configure(&mut world, Settings { master_ports: PortRange { first: 700, last: 700 }, ..Settings::default() });
    let jobs = [0, 1].map(|_| world.submit(job().tasks(2)));
    let gang = |job, gpu| start(job, vec![placed(0, "n1", &[gpu]), placed(1, "n1", &[gpu + 1])]);
    rejected_second(&mut world, [gang(jobs[0], 0), gang(jobs[1], 2)])
}

/// A full cluster: two running jobs of two GPUs at priority 100, and a preemptor.
fn full(preemptor_priority: u32) -> (World, [JobId; 2], JobId) {
    let mut world = one_node(4, 64);
    let running = [0, 1].map(|_| world.submit(job().gpus(2)));
    world.plan();
    let preemptor = world.submit(job().gpus(2).priority(preemptor_priority));
    (world, running, preemptor)
}

fn preemption_off() -> Rejection {
    let (mut world, running, preemptor) = full(500);
    configure(&mut world, Settings { preemption: false, ..Settings::default() });
    rejected(&mut world, &plan_of_evictions(vec![eviction(preemptor, "n1", &[0, 1], &[running[0]])]))
}

fn has_claim() -> Rejection {
    let (mut world, running, preemptor) = full(500);
    let first = plan_of_evictions(vec![eviction(preemptor, "n1", &[0, 1], &[running[0]])]);
    assert_eq!(world.adopt(&first), (1, Vec::new()));
    rejected(&mut world, &plan_of_evictions(vec![eviction(preemptor, "n1", &[2, 3], &[running[1]])]))
}

/// A victim of equal priority, one that is named twice, and none.
fn victim_ineligible() -> Rejection {
    let (mut world, running, preemptor) = full(500);
    for victims in [vec![running[0], running[0]], vec![]] {
        let plan = plan_of_evictions(vec![eviction(preemptor, "n1", &[0, 1], &victims)]);
        assert_eq!(rejected(&mut world, &plan), Rejection::VictimIneligible, "{victims:?}");
    }
    let (mut world, running, preemptor) = full(100);
    rejected(&mut world, &plan_of_evictions(vec![eviction(preemptor, "n1", &[0, 1], &[running[0]])]))
}

/// A cluster of one node with A100 GPUs that the planner may repartition.
fn partitionable() -> World {
    let mut world = World::new();
    world.register("n1", node().model(A100));
    configure(&mut world, Settings { repartition: Repartition::Apply, ..Settings::default() });
    world
}

/// A plan that repartitions one GPU of the node `n1`.
fn repartition(gpu: u8, profiles: &[&str]) -> Plan {
    let profiles = profiles.iter().map(ToString::to_string).collect();
    let gpu = GpuId { node: node_id("n1"), index: gpu };
    Plan { repartitionings: vec![Repartitioning { gpu, profiles, job: JobId::single(1) }], ..Plan::default() }
}

fn unknown_gpu() -> Rejection {
    rejected(&mut partitionable(), &repartition(40, &["7g.80gb"]))
}

fn repartitioning_off() -> Rejection {
    let mut world = partitionable();
    configure(&mut world, Settings { repartition: Repartition::Propose, ..Settings::default() });
    rejected(&mut world, &repartition(0, &["7g.80gb"]))
}

fn illegal_partition() -> Rejection {
    rejected(&mut partitionable(), &repartition(0, &["4g.40gb", "4g.40gb"]))
}

fn gpu_in_use() -> Rejection {
    let mut world = partitionable();
    let job = world.submit(job());
    assert_eq!(world.adopt(&plan_of_starts(vec![on_gpu(job, 0)])).0, 1);
    rejected(&mut world, &repartition(0, &["7g.80gb"]))
}

fn repartitioning_cooldown() -> Rejection {
    let mut world = partitionable();
    assert_eq!(world.adopt(&repartition(0, &["7g.80gb"])).1, Vec::new());
    rejected(&mut world, &repartition(0, &["3g.40gb", "4g.40gb"]))
}

fn already_partitioned() -> Rejection {
    let mut world = partitionable();
    assert_eq!(world.adopt(&repartition(0, &["7g.80gb"])).1, Vec::new());
    world.tick(DAY);
    rejected(&mut world, &repartition(0, &["7g.80gb"]))
}

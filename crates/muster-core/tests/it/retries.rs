//! Retries after a failure: a failed job sleeps until the policies have answered. Power caps of starts.

use muster_core::facts::command::TaskReport;
use muster_core::objects::job::{Exit, OnNodeLost, Outcome};
use muster_core::objects::policy::{Hook, JobAnswer, PolicyScope, Retry, RetryAnswer};
use muster_core::time::{DAY, HOUR, MINUTE};
use muster_core::{Command, JobId, State};

use crate::builders::{bundle, job, node, node_id};
use crate::world::World;

fn world(hooks: &[Hook]) -> World {
    let mut world = World::new();
    world.register("n1", node().gpus(8));
    if !hooks.is_empty() {
        apply(&mut world, hooks);
    }
    world
}

fn apply(world: &mut World, hooks: &[Hook]) {
    world.apply_policy(PolicyScope::Cluster, bundle(&hash(hooks), hooks));
}

fn hash(hooks: &[Hook]) -> String {
    format!("{hooks:?}")
}

/// A job that ran and failed.
fn failed(world: &mut World, exit: Exit) -> JobId {
    let job = world.submit(job().restarts(3).on_node_lost(OnNodeLost::Requeue));
    world.plan();
    fail(world, job, exit);
    job
}

fn fail(world: &mut World, job: JobId, exit: Exit) {
    let attempt = world.state.jobs[&job].attempt().unwrap().number;
    for report in [TaskReport::Started, TaskReport::Ended { exit, stopped: false, ended_ms_ago: None }] {
        world.now = world.now.plus(MINUTE);
        world.run(Command::ReportTask { node: node_id("n1"), job, attempt, report }).unwrap();
    }
}

fn answer(world: &mut World, job: JobId, retry: Option<Retry>, failed: Option<&str>) {
    let attempt = world.state.policies.failures[&job].seen.attempt;
    let retried = RetryAnswer { job, attempt, retry, failed: failed.map(str::to_string) };
    let (bundles, answers) = (vec![hash(&[Hook::Retry])], Vec::new());
    world.run(Command::NoteAnswers { bundles, answers, limits: Vec::new(), retries: vec![retried] }).unwrap();
}

fn is_ready_after(world: &mut World, job: JobId, ms: i64) -> bool {
    world.now = world.now.plus(ms);
    world.run(Command::Tick).unwrap();
    world.state.jobs.get(&job).is_some_and(|job| job.is_ready())
}

fn why(state: &State, job: JobId) -> String {
    let verdicts = muster_core::planner::plan(state, state.clock).verdicts;
    let reasons = verdicts.of(state, &state.jobs[&job], state.clock).reasons;
    reasons.iter().map(|reason| reason.sentence()).collect::<Vec<_>>().join("; ")
}

fn code(code: i32) -> Exit {
    Exit::Code { code }
}

#[test]
fn a_failed_job_waits_for_the_policy_answer() {
    for exit in [code(1), Exit::Signal { signal: 9 }, Exit::Unknown { why: "gone".to_string() }] {
        let mut world = world(&[Hook::Retry]);
        let job = failed(&mut world, exit.clone());
        let seen = world.state.policies.failures[&job].seen.clone();
        assert_eq!((&seen.exit, seen.attempt, seen.failures, seen.ran_ms), (&exit, 1, 0, MINUTE));
        assert!(!is_ready_after(&mut world, job, HOUR), "{exit:?}");
        assert_eq!(why(&world.state, job), "waits for the answer of the policies");
        answer(&mut world, job, Some(Retry::ByRestartRule), None);
        assert!(is_ready_after(&mut world, job, 0), "{exit:?}");
    }
}

#[test]
fn a_policy_delays_or_forbids_a_retry_and_never_hastens_it() {
    let mut world = world(&[Hook::Retry]);
    let delayed = failed(&mut world, code(1));
    let backoff = world.state.jobs[&delayed].wakes_at;
    answer(&mut world, delayed, Some(Retry::After { wait_ms: 0 }), None);
    assert_eq!(world.state.jobs[&delayed].wakes_at, backoff, "the backoff of the job stays");
    assert!(is_ready_after(&mut world, delayed, HOUR));
    world.plan();
    fail(&mut world, delayed, code(1));
    assert_eq!(world.state.policies.failures[&delayed].seen.failures, 1);
    answer(&mut world, delayed, Some(Retry::After { wait_ms: i64::MAX }), None);
    assert!(!is_ready_after(&mut world, delayed, DAY - MINUTE));
    assert!(is_ready_after(&mut world, delayed, MINUTE));

    let refused = failed(&mut world, code(137));
    answer(&mut world, refused, Some(Retry::No { why: "out of memory".to_string() }), None);
    assert_eq!(world.state.ended[&refused].outcome, Outcome::Failed);
    assert!(world.state.policies.failures.is_empty());
}

#[test]
fn a_failing_policy_is_reported_and_asked_again() {
    let mut world = world(&[Hook::Retry]);
    let job = failed(&mut world, code(1));
    answer(&mut world, job, None, Some("a.gsky:2: division by zero"));
    assert!(!is_ready_after(&mut world, job, HOUR));
    assert!(why(&world.state, job).contains("a policy failed: a.gsky:2"), "{}", why(&world.state, job));
    let events = world.events.len();
    answer(&mut world, job, None, Some("a.gsky:2: division by zero"));
    assert_eq!(world.events.len(), events, "an unchanged answer is no event");
    // Without the policy the job does not wait.
    apply(&mut world, &[Hook::Admit]);
    assert!(is_ready_after(&mut world, job, 0));
}

#[test]
fn without_a_retry_hook_no_job_waits() {
    let mut world = world(&[]);
    let job = failed(&mut world, Exit::Unknown { why: "gone".to_string() });
    assert!(world.state.jobs[&job].is_ready());
    apply(&mut world, &[Hook::Retry]);
    assert!(world.state.policies.failures.is_empty());
}

#[test]
fn a_start_carries_its_power_cap() {
    let mut world = world(&[Hook::Power]);
    let job = world.submit(job());
    world.plan();
    assert!(world.state.jobs[&job].attempt().is_none(), "started before the policy answered");
    let answered = JobAnswer {
        gpu_milliwatts: Some(250_000),
        ..JobAnswer::of(job, world.state.bucket(&world.state.jobs[&job]).key())
    };
    let (bundles, answers) = (vec![hash(&[Hook::Power])], vec![answered]);
    world.run(Command::NoteAnswers { bundles, answers, limits: Vec::new(), retries: Vec::new() }).unwrap();
    world.plan();
    assert_eq!(world.state.jobs[&job].attempt().unwrap().gpu_milliwatts_max, Some(250_000));
}

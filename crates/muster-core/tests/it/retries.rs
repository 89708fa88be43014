//! After a failure: who sleeps until policies have said whether it starts again, and the caps that come with a start.

use std::sync::Arc;

use muster_core::command::{Answer, Said};
use muster_core::job::{Exit, OnNodeLost, Outcome};
use muster_core::policy::{Answered, Bundle, Hook, Retried, Retry, Scope};
use muster_core::time::{DAY, HOUR, MINUTE};
use muster_core::{Command, JobId, State};

use crate::world::{World, facts, spec, submission};

fn world(hooks: &[Hook]) -> World {
    let mut world = World::new();
    let facts = Box::new(facts(8, "NVIDIA H100 80GB HBM3", 64, 64 * 1_024));
    world.ask(Command::RegisterNode { node: "n1".parse().unwrap(), facts }).unwrap();
    if !hooks.is_empty() {
        apply(&mut world, hooks);
    }
    world
}

fn apply(world: &mut World, hooks: &[Hook]) {
    let files = [("a.gsky".to_string(), String::new())].into();
    let (hash, hooks) = (hash(hooks), hooks.iter().copied().collect());
    let bundle = Bundle { hash, files, hooks, ..Bundle::default() };
    let (scope, bundle) = (Scope::Cluster, Arc::new(bundle));
    world.ask(Command::ApplyPolicy { scope, bundle, why: String::new() }).unwrap();
}

fn hash(hooks: &[Hook]) -> String {
    format!("{hooks:?}")
}

/// A job that ran and failed.
fn failed(world: &mut World, exit: Exit) -> JobId {
    let mut spec = spec("job", 1);
    spec.restart.max_restarts = 3;
    spec.on_node_lost = OnNodeLost::Requeue;
    let Ok(Answer::Job(job)) = world.ask(Command::SubmitJob(submission(spec))) else { panic!() };
    world.plan();
    fail(world, job, exit);
    job
}

fn fail(world: &mut World, job: JobId, exit: Exit) {
    let attempt = world.state.jobs[&job].attempt().unwrap().number;
    for said in [Said::Started, Said::Ended { exit, stopped: false, ended_ms_ago: None }] {
        world.now = world.now.plus(MINUTE);
        let node = "n1".parse().unwrap();
        world.ask(Command::ReportTask { node, job, attempt, said }).unwrap();
    }
}

fn answer(world: &mut World, job: JobId, retry: Option<Retry>, what: Option<&str>) {
    let attempt = world.state.policies.failures[&job].seen.attempt;
    let retried = Retried { job, attempt, retry, failed: what.map(str::to_string) };
    let (bundles, answers) = (vec![hash(&[Hook::Retry])], Vec::new());
    world.ask(Command::NoteAnswers { bundles, answers, limits: Vec::new(), retries: vec![retried] }).unwrap();
}

fn is_ready_after(world: &mut World, job: JobId, ms: i64) -> bool {
    world.now = world.now.plus(ms);
    world.ask(Command::Tick).unwrap();
    world.state.jobs.get(&job).is_some_and(|job| job.is_ready())
}

fn why(state: &State, job: JobId) -> String {
    let verdicts = muster_core::plan::plan(state, state.clock).verdicts;
    let reasons = verdicts.of(state, &state.jobs[&job], state.clock).reasons;
    reasons.iter().map(|reason| reason.sentence()).collect::<Vec<_>>().join("; ")
}

fn code(code: i32) -> Exit {
    Exit::Code { code }
}

#[test]
fn nobody_starts_again_before_policies_have_answered() {
    for exit in [code(1), Exit::Signal { signal: 9 }, Exit::Unknown { why: "gone".to_string() }] {
        let mut world = world(&[Hook::Retry]);
        let job = failed(&mut world, exit.clone());
        let seen = world.state.policies.failures[&job].seen.clone();
        assert_eq!((&seen.exit, seen.attempt, seen.failures, seen.ran_ms), (&exit, 1, 0, MINUTE));
        assert!(!is_ready_after(&mut world, job, HOUR), "{exit:?}");
        assert_eq!(why(&world.state, job), "the policies are being asked about it");
        answer(&mut world, job, Some(Retry::AsAsked), None);
        assert!(is_ready_after(&mut world, job, 0), "{exit:?}");
    }
}

#[test]
fn a_policy_puts_off_and_ends_and_never_hurries() {
    let mut world = world(&[Hook::Retry]);
    let later = failed(&mut world, code(1));
    let meant = world.state.jobs[&later].wakes_at;
    answer(&mut world, later, Some(Retry::After { wait_ms: 0 }), None);
    assert_eq!(world.state.jobs[&later].wakes_at, meant, "its own pause stays");
    assert!(is_ready_after(&mut world, later, HOUR));
    world.plan();
    fail(&mut world, later, code(1));
    assert_eq!(world.state.policies.failures[&later].seen.failures, 1);
    answer(&mut world, later, Some(Retry::After { wait_ms: i64::MAX }), None);
    assert!(!is_ready_after(&mut world, later, DAY - MINUTE));
    assert!(is_ready_after(&mut world, later, MINUTE));

    let never = failed(&mut world, code(137));
    answer(&mut world, never, Some(Retry::No { why: "out of memory".to_string() }), None);
    assert_eq!(world.state.ended[&never].outcome, Outcome::Failed);
    assert!(world.state.policies.failures.is_empty());
}

#[test]
fn a_policy_that_fails_is_told_and_asked_again() {
    let mut world = world(&[Hook::Retry]);
    let job = failed(&mut world, code(1));
    answer(&mut world, job, None, Some("a.gsky:2: division by zero"));
    assert!(!is_ready_after(&mut world, job, HOUR));
    assert!(why(&world.state, job).contains("a policy failed: a.gsky:2"), "{}", why(&world.state, job));
    let events = world.events.len();
    answer(&mut world, job, None, Some("a.gsky:2: division by zero"));
    assert_eq!(world.events.len(), events, "the same again is no news");
    // With the policy gone nobody is asked.
    apply(&mut world, &[Hook::Admit]);
    assert!(is_ready_after(&mut world, job, 0));
}

#[test]
fn without_such_a_policy_nobody_waits_for_one() {
    let mut world = world(&[]);
    let job = failed(&mut world, Exit::Unknown { why: "gone".to_string() });
    assert!(world.state.jobs[&job].is_ready());
    apply(&mut world, &[Hook::Retry]);
    assert!(world.state.policies.failures.is_empty());
}

#[test]
fn a_cap_comes_with_the_start() {
    let mut world = world(&[Hook::Power]);
    let ask = Command::SubmitJob(submission(spec("job", 1)));
    let Ok(Answer::Job(job)) = world.ask(ask) else { panic!() };
    world.plan();
    assert!(world.state.jobs[&job].attempt().is_none(), "it started before anyone was asked");
    let answered = Answered {
        gpu_milliwatts: Some(250_000),
        ..Answered::of(job, &world.state.bucket(&world.state.jobs[&job]))
    };
    let (bundles, answers) = (vec![hash(&[Hook::Power])], vec![answered]);
    world.ask(Command::NoteAnswers { bundles, answers, limits: Vec::new(), retries: Vec::new() }).unwrap();
    world.plan();
    assert_eq!(world.state.jobs[&job].attempt().unwrap().gpu_milliwatts_max, Some(250_000));
}

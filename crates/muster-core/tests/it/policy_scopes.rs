//! Scopes of policies: those of the cluster apply to all jobs, those of a tenant only to its own.

use std::sync::Arc;

use muster_core::JobId;
use muster_core::facts::command::Command;
use muster_core::objects::policy::rules::{Rules, Ruleset};
use muster_core::objects::policy::{Admission, Hook, JobAnswer, PolicyBundle, PolicyScope};

use crate::builders::{bundle, job, node, tenant, tenant_id};
use crate::world::World;

fn of_tenant(name: &str) -> PolicyScope {
    PolicyScope::Tenant(tenant_id(name))
}

/// A node with four GPUs, and two tenants with a guarantee of two each.
fn world() -> World {
    let mut world = World::new();
    world.register("n1", node());
    for name in ["red", "blue"] {
        world.create_tenant(name, tenant().guaranteed_gpus(2));
    }
    world
}

fn submit(world: &mut World, name: &str) -> JobId {
    world.submit(job().tenant(name).gpus(2))
}

/// Note the answer of these bundles about a job. False if the answer is refused.
fn note(world: &mut World, bundles: &[&str], job: JobId, change: impl FnOnce(&mut JobAnswer)) -> bool {
    let bucket = world.state.bucket(&world.state.jobs[&job]);
    let mut answered = JobAnswer::of(job, bucket.key());
    change(&mut answered);
    let bundles = bundles.iter().map(ToString::to_string).collect();
    world
        .run(Command::NoteAnswers { bundles, answers: vec![answered], limits: Vec::new(), retries: Vec::new() })
        .is_ok()
}

#[test]
fn a_tenant_policy_delays_only_its_own_jobs() {
    let mut world = world();
    world.apply_policy(of_tenant("red"), bundle("red", &[Hook::Admit]));
    let (red, blue) = (submit(&mut world, "red"), submit(&mut world, "blue"));
    world.plan();
    assert!(!world.runs(red) && world.runs(blue), "blue does not wait");
    let why = "not today".to_string();
    assert!(note(&mut world, &["red"], red, |answer| answer.admission = Admission::Wait { why }));
    world.plan();
    assert!(!world.runs(red));
    assert!(note(&mut world, &["red"], red, |_| {}));
    world.plan();
    assert!(world.runs(red));
}

#[test]
fn a_new_tenant_policy_keeps_the_answers_of_other_tenants() {
    let mut world = world();
    world.apply_policy(PolicyScope::Cluster, bundle("all", &[Hook::Admit]));
    let (red, blue) = (submit(&mut world, "red"), submit(&mut world, "blue"));
    for job in [red, blue] {
        assert!(note(&mut world, &["all"], job, |_| {}));
    }
    world.apply_policy(of_tenant("red"), bundle("red", &[Hook::Admit]));
    // An answer from before red had policies.
    assert!(!note(&mut world, &["all"], red, |_| {}), "the policy of red has not answered");
    world.plan();
    assert!(!world.runs(red) && world.runs(blue));
    assert!(note(&mut world, &["all", "red"], red, |_| {}));
    world.plan();
    assert!(world.runs(red));
}

#[test]
fn a_tenant_policy_cannot_protect_borrowed_capacity() {
    for (scope, kept) in [(of_tenant("red"), false), (of_tenant("blue"), true), (PolicyScope::Cluster, true)] {
        let mut world = world();
        let borrowed = [submit(&mut world, "red"), submit(&mut world, "red")];
        world.plan();
        assert!(borrowed.iter().all(|job| world.runs(*job)));
        world.apply_policy(scope.clone(), bundle("it", &[Hook::Victims]));
        let owner = submit(&mut world, "blue");
        assert!(note(&mut world, &["it"], owner, |answer| answer.victims = borrowed.map(|job| (job, false)).to_vec()));
        world.plan();
        assert_eq!(borrowed.iter().all(|job| world.runs(*job)), kept, "{scope}");
    }
}

#[test]
fn a_tenant_policy_only_lowers_priorities() {
    let cases = [(of_tenant("red"), 900, 100), (of_tenant("red"), 7, 7), (PolicyScope::Cluster, 900, 900)];
    for (scope, priority, expected) in cases {
        let mut world = world();
        world.apply_policy(scope.clone(), bundle("it", &[Hook::Priority]));
        let job = submit(&mut world, "red");
        let requested = world.state.jobs[&job].spec.priority;
        let expected = if expected == 100 { requested } else { expected };
        assert!(note(&mut world, &["it"], job, |answer| answer.priority = Some(priority)));
        let bucket = world.state.bucket(&world.state.jobs[&job]);
        let known = world.state.policies.answers.of(&bucket).and_then(|answer| answer.priority);
        assert_eq!(known, Some(expected), "{scope} answers {priority}");
    }
}

#[test]
fn a_tenant_policy_registers_no_rules() {
    let mut world = world();
    let ruleset = Ruleset { name: "mine".to_string(), rules: Vec::new() };
    let rules = Rules { schedules: [("mine".to_string(), ruleset)].into(), ..Rules::default() };
    let bundle = Arc::new(PolicyBundle { rules, ..bundle("red", &[]) });
    let (scope, why) = (of_tenant("red"), String::new());
    let refused = world.run(Command::ApplyPolicy { scope, bundle: bundle.clone(), why: why.clone() });
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("may not register") && text.contains("the ruleset `mine`"), "{text}");
    world.run(Command::ApplyPolicy { scope: PolicyScope::Cluster, bundle, why }).unwrap();
}

#[test]
fn a_deleted_tenant_leaves_no_policies() {
    let mut world = world();
    world.apply_policy(of_tenant("red"), bundle("first", &[]));
    world.apply_policy(of_tenant("red"), bundle("second", &[Hook::Admit]));
    world.run(Command::DeleteTenant { id: tenant_id("red") }).unwrap();
    assert!(world.state.policies.is_empty());
    world.create_tenant("red", tenant().guaranteed_gpus(2));
    let job = submit(&mut world, "red");
    world.plan();
    assert!(world.runs(job), "a new tenant of the same name has no policies");
    let back = Command::RollBackPolicy { scope: of_tenant("red"), number: Some(2), why: String::new() };
    assert!(world.run(back).is_err());
    world.apply_policy(of_tenant("red"), bundle("third", &[]));
    let numbers: Vec<u64> = world.state.policies.versions().iter().map(|one| one.number).collect();
    assert_eq!(numbers, [3, 4], "version numbers are not reused");
}

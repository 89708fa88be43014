//! For whom policies speak: those of the cluster for everyone, those of a tenant for its own jobs and for nothing else.

use std::sync::Arc;

use muster_core::command::{Answer, Command};
use muster_core::policy::{Admission, Answered, Bundle, Hook, Scope};
use muster_core::rules::{Rules, Ruleset};
use muster_core::tenant::TenantConfig;
use muster_core::{JobId, TenantId};

use crate::world::{World, facts, spec, submission};

fn tenant(name: &str) -> TenantId {
    name.parse().unwrap()
}

fn of_tenant(name: &str) -> Scope {
    Scope::Tenant(tenant(name))
}

/// A node with four devices, and two tenants that are promised two each.
fn world() -> World {
    let mut world = World::new();
    let facts = Box::new(facts(4, "NVIDIA H100 80GB HBM3", 64, 64 * 1_024));
    world.ask(Command::RegisterNode { node: "n1".parse().unwrap(), facts }).unwrap();
    for name in ["red", "blue"] {
        create(&mut world, name);
    }
    world
}

fn create(world: &mut World, name: &str) {
    let mut config = TenantConfig::unlimited(name);
    config.guaranteed.gpus = Some(2);
    world.ask(Command::CreateTenant { id: tenant(name), config: Box::new(config) }).unwrap();
}

fn bundle(name: &str, hooks: &[Hook]) -> Bundle {
    Bundle {
        hash: name.to_string(),
        files: [("a.gsky".to_string(), format!("# {name}"))].into(),
        hooks: hooks.iter().copied().collect(),
        ..Bundle::default()
    }
}

fn put(world: &mut World, scope: Scope, bundle: Bundle) {
    let (bundle, why) = (Arc::new(bundle), String::new());
    world.ask(Command::ApplyPolicy { scope, bundle, why }).unwrap();
}

fn submit(world: &mut World, name: &str) -> JobId {
    let mut spec = spec("job", 2);
    spec.tenant = tenant(name);
    match world.ask(Command::SubmitJob(submission(spec))) {
        Ok(Answer::Job(job)) => job,
        other => panic!("{other:?}"),
    }
}

/// What policies say of a job, with the bundles that are said to have said it.
fn note(world: &mut World, bundles: &[&str], job: JobId, said: impl FnOnce(&mut Answered)) -> bool {
    let bucket = world.state.bucket(&world.state.jobs[&job]);
    let mut answered = Answered::of(job, &bucket);
    said(&mut answered);
    let bundles = bundles.iter().map(ToString::to_string).collect();
    world
        .ask(Command::NoteAnswers {
            bundles,
            answers: vec![answered],
            limits: Vec::new(),
            retries: Vec::new(),
        })
        .is_ok()
}

fn runs(world: &World, job: JobId) -> bool {
    world.state.jobs[&job].attempt().is_some_and(|attempt| attempt.stopping.is_none())
}

#[test]
fn a_tenant_lets_its_own_jobs_wait_and_nobody_elses() {
    let mut world = world();
    put(&mut world, of_tenant("red"), bundle("red", &[Hook::Admit]));
    let (red, blue) = (submit(&mut world, "red"), submit(&mut world, "blue"));
    world.plan();
    assert!(!runs(&world, red) && runs(&world, blue), "blue waits for nobody");
    let why = "not today".to_string();
    assert!(note(&mut world, &["red"], red, |said| said.admission = Admission::Wait { why }));
    world.plan();
    assert!(!runs(&world, red));
    assert!(note(&mut world, &["red"], red, |_| {}));
    world.plan();
    assert!(runs(&world, red));
}

#[test]
fn what_was_answered_of_others_stays_when_a_tenant_has_new_policies() {
    let mut world = world();
    put(&mut world, Scope::Cluster, bundle("all", &[Hook::Admit]));
    let (red, blue) = (submit(&mut world, "red"), submit(&mut world, "blue"));
    for job in [red, blue] {
        assert!(note(&mut world, &["all"], job, |_| {}));
    }
    put(&mut world, of_tenant("red"), bundle("red", &[Hook::Admit]));
    // Asked before red had policies, told after.
    assert!(!note(&mut world, &["all"], red, |_| {}), "red was not asked");
    world.plan();
    assert!(!runs(&world, red) && runs(&world, blue));
    assert!(note(&mut world, &["all", "red"], red, |_| {}));
    world.plan();
    assert!(runs(&world, red));
}

#[test]
fn a_tenant_cannot_keep_what_was_promised_to_another() {
    for (scope, kept) in [(of_tenant("red"), false), (of_tenant("blue"), true), (Scope::Cluster, true)] {
        let mut world = world();
        let lent = [submit(&mut world, "red"), submit(&mut world, "red")];
        world.plan();
        assert!(lent.iter().all(|job| runs(&world, *job)));
        put(&mut world, scope.clone(), bundle("it", &[Hook::Victims]));
        let owed = submit(&mut world, "blue");
        assert!(note(&mut world, &["it"], owed, |said| said.victims = lent.map(|job| (job, false)).to_vec()));
        world.plan();
        assert_eq!(lent.iter().all(|job| runs(&world, *job)), kept, "{scope}");
    }
}

#[test]
fn a_tenant_asks_for_less_and_never_for_more() {
    let cases = [(of_tenant("red"), 900, 100), (of_tenant("red"), 7, 7), (Scope::Cluster, 900, 900)];
    for (scope, said, expected) in cases {
        let mut world = world();
        put(&mut world, scope.clone(), bundle("it", &[Hook::Priority]));
        let job = submit(&mut world, "red");
        let asked = world.state.jobs[&job].spec.priority;
        let expected = if expected == 100 { asked } else { expected };
        assert!(note(&mut world, &["it"], job, |answered| answered.priority = Some(said)));
        let bucket = world.state.bucket(&world.state.jobs[&job]);
        let known = world.state.policies.answers.of(&bucket).and_then(|answer| answer.priority);
        assert_eq!(known, Some(expected), "{scope} says {said}");
    }
}

#[test]
fn a_tenant_registers_nothing() {
    let mut world = world();
    let ruleset = Ruleset { name: "mine".to_string(), rules: Vec::new() };
    let rules = Rules { schedules: [("mine".to_string(), ruleset)].into(), ..Rules::default() };
    let bundle = Arc::new(Bundle { rules, ..bundle("red", &[]) });
    let (scope, why) = (of_tenant("red"), String::new());
    let refused = world.ask(Command::ApplyPolicy { scope, bundle: bundle.clone(), why: why.clone() });
    let said = refused.unwrap_err().to_string();
    assert!(said.contains("register nothing") && said.contains("the ruleset `mine`"), "{said}");
    world.ask(Command::ApplyPolicy { scope: Scope::Cluster, bundle, why }).unwrap();
}

#[test]
fn a_tenant_that_goes_takes_its_policies_along() {
    let mut world = world();
    put(&mut world, of_tenant("red"), bundle("first", &[]));
    put(&mut world, of_tenant("red"), bundle("second", &[Hook::Admit]));
    world.ask(Command::DeleteTenant { id: tenant("red") }).unwrap();
    assert!(world.state.policies.is_empty());
    create(&mut world, "red");
    let job = submit(&mut world, "red");
    world.plan();
    assert!(runs(&world, job), "who has the same name later has none of them");
    let back = Command::RollBackPolicy { scope: of_tenant("red"), number: Some(2), why: String::new() };
    assert!(world.ask(back).is_err());
    put(&mut world, of_tenant("red"), bundle("third", &[]));
    let numbers: Vec<u64> = world.state.policies.versions().iter().map(|one| one.number).collect();
    assert_eq!(numbers, [3, 4], "no number is given twice");
}

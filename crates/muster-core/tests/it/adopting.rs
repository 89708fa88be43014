//! Plans that the planner would not draw: what `AdoptPlan` must see by itself.

use muster_core::command::{Answer, Command};
use muster_core::job::PlacedTask;
use muster_core::plan::{MakeRoom, Plan, Start};
use muster_core::settings::Objective;
use muster_core::tenant::TenantConfig;
use muster_core::time::{HOUR, MINUTE};
use muster_core::{JobId, JobSpec, NodeId, Settings};

use crate::world::{World, facts, spec, submission};

fn tenant(world: &mut World, name: &str, guaranteed: u64) {
    let mut config = TenantConfig::unlimited(name);
    config.guaranteed.gpus = Some(guaranteed);
    create(world, name, config);
}

fn tenant_with_model(world: &mut World, name: &str, guaranteed: u64) {
    let mut config = TenantConfig::unlimited(name);
    config.guaranteed_by_model.insert("h100".to_string(), guaranteed);
    create(world, name, config);
}

fn create(world: &mut World, name: &str, config: TenantConfig) {
    let command = Command::CreateTenant { id: name.parse().unwrap(), config: Box::new(config) };
    world.ask(command).unwrap();
}

fn submit(world: &mut World, tenant: &str) -> JobId {
    submit_spec(world, tenant, spec("job", 2))
}

fn submit_spec(world: &mut World, tenant: &str, mut spec: JobSpec) -> JobId {
    spec.tenant = tenant.parse().unwrap();
    if spec.gpus() > 0 {
        spec.tasks[0].each.gpu_models.insert("H100".to_string());
    }
    match world.ask(Command::SubmitJob(submission(spec))) {
        Ok(Answer::Job(job)) => job,
        other => panic!("{other:?}"),
    }
}

/// A cluster of one node.
fn one_node(gpus: usize, cpus: u32) -> (World, NodeId) {
    let (mut world, node): (World, NodeId) = (World::new(), "n1".parse().unwrap());
    let facts = Box::new(facts(gpus, "NVIDIA H100 80GB HBM3", cpus, 64 * 1_024));
    world.ask(Command::RegisterNode { node: node.clone(), facts }).unwrap();
    (world, node)
}

/// Room for a job of one task on devices of a node.
fn room(job: JobId, node: &NodeId, gpus: &[u8], victims: &[JobId]) -> MakeRoom {
    let task = PlacedTask { rank: 0, group: 0, node: node.clone(), gpus: gpus.to_vec(), share: None };
    MakeRoom { job, tasks: vec![task], victims: victims.to_vec() }
}

/// How many claims of a plan are taken, and how many are left.
fn adopt(world: &mut World, claims: Vec<MakeRoom>) -> (usize, usize) {
    let plan = Box::new(Plan { claims, ..Plan::default() });
    match world.ask(Command::AdoptPlan { plan, epoch: 1 }) {
        Ok(Answer::Adopted { taken, left }) => (taken, left),
        other => panic!("{other:?}"),
    }
}

fn gpus_of(world: &World, job: JobId) -> Vec<u8> {
    world.state.jobs[&job].attempt().unwrap().tasks[0].gpus.clone()
}

#[test]
fn two_claims_of_one_plan_do_not_reach_into_a_guarantee() {
    for guarantee in [tenant, tenant_with_model] {
        let (mut world, node) = one_node(4, 64);
        for name in ["blue", "red", "green"] {
            guarantee(&mut world, name, 2);
        }
        let running = [submit(&mut world, "blue"), submit(&mut world, "blue")];
        world.plan();
        let waiting = [submit(&mut world, "red"), submit(&mut world, "green")];
        let rooms = waiting.iter().zip(&running);
        let rooms = rooms.map(|(job, victim)| room(*job, &node, &gpus_of(&world, *victim), &[*victim]));
        let rooms = rooms.collect();
        assert_eq!(adopt(&mut world, rooms), (1, 1), "blue borrows two GPUs, not four");
    }
}

/// Two plans, each drawn before the other was adopted: what is claimed counts for the guarantee.
#[test]
fn a_guarantee_of_a_model_is_not_used_twice() {
    let (mut world, node) = one_node(4, 64);
    tenant_with_model(&mut world, "red", 2);
    create(&mut world, "blue", TenantConfig::unlimited("blue"));
    let running = [submit(&mut world, "blue"), submit(&mut world, "blue")];
    world.plan();
    let waiting = [submit(&mut world, "red"), submit(&mut world, "red")];
    for (place, expected) in [(0, (1, 0)), (1, (0, 1))] {
        let gpus = gpus_of(&world, running[place]);
        let claim = room(waiting[place], &node, &gpus, &[running[place]]);
        assert_eq!(adopt(&mut world, vec![claim]), expected, "claim {place}");
    }
}

/// The devices are free and only cores are short: who holds none of the model is not displaced for it.
#[test]
fn a_guarantee_of_a_model_has_back_only_that_model() {
    let (mut world, node) = one_node(2, 1);
    tenant_with_model(&mut world, "red", 2);
    tenant(&mut world, "green", 2);
    create(&mut world, "blue", TenantConfig::unlimited("blue"));
    let running = submit_spec(&mut world, "blue", spec("cores", 0));
    world.plan();
    for (tenant, expected) in [("red", (0, 1)), ("green", (1, 0))] {
        let job = submit(&mut world, tenant);
        assert_eq!(adopt(&mut world, vec![room(job, &node, &[0, 1], &[running])]), expected, "{tenant}");
    }
}

/// Two tasks of a gang on one device, and two that need more cores together than their node has.
#[test]
fn tasks_of_one_gang_are_counted_beside_each_other() {
    let mut world = World::new();
    let node: muster_core::NodeId = "n1".parse().unwrap();
    let facts = Box::new(facts(4, "NVIDIA H100 80GB HBM3", 10, 64 * 1_024));
    world.ask(Command::RegisterNode { node: node.clone(), facts }).unwrap();
    for (cpus, devices) in [(1, [vec![0], vec![0]]), (6, [vec![0], vec![1]])] {
        let mut gang = spec("gang", 1);
        gang.tasks[0].count = 2;
        gang.tasks[0].each.cpus = cpus;
        // A second node, so that the gang could be placed at all.
        let (other, facts) =
            ("n2".parse().unwrap(), crate::world::facts(4, "NVIDIA H100 80GB HBM3", 10, 65_536));
        world.ask(Command::RegisterNode { node: other, facts: Box::new(facts) }).unwrap();
        let Ok(Answer::Job(job)) = world.ask(Command::SubmitJob(submission(gang))) else { panic!("refused") };
        let tasks = (0..).zip(devices).map(|(rank, gpus)| PlacedTask {
            rank,
            group: 0,
            node: node.clone(),
            gpus,
            share: None,
        });
        let start = Start {
            job,
            tasks: tasks.collect(),
            effective: None,
            expected_ms: None,
            lent: false,
            score: None,
        };
        let plan = Box::new(Plan { starts: vec![start], ..Plan::default() });
        let answer = world.ask(Command::AdoptPlan { plan, epoch: 1 });
        assert_eq!(answer, Ok(Answer::Adopted { taken: 0, left: 1 }), "{cpus} cores each");
    }
}

#[test]
fn an_elastic_gang_counts_as_large_as_it_starts() {
    for (tasks, taken) in [(1, 0), (2, 1), (3, 1), (4, 0), (5, 0)] {
        let (mut world, node) = one_node(8, 64);
        let mut config = TenantConfig::unlimited("red");
        config.maximum.gpus = Some(3);
        create(&mut world, "red", config);
        let mut gang = spec("gang", 1);
        (gang.tasks[0].count, gang.tasks[0].count_max) = (2, Some(4));
        let job = submit_spec(&mut world, "red", gang);
        let task = |rank: u8| PlacedTask {
            rank: rank.into(),
            group: 0,
            node: node.clone(),
            gpus: vec![rank],
            share: None,
        };
        let tasks_placed = (0..tasks).map(task).collect();
        let start =
            Start { job, tasks: tasks_placed, effective: None, expected_ms: None, lent: false, score: None };
        let plan = Box::new(Plan { starts: vec![start], ..Plan::default() });
        let answer = world.ask(Command::AdoptPlan { plan, epoch: 1 }).unwrap();
        assert_eq!(answer, Answer::Adopted { taken, left: 1 - taken }, "{tasks} tasks of 2 to 4, 3 allowed");
    }
}

#[test]
fn nobody_gives_way_to_a_lower_priority() {
    for (priority, taken) in [(99, 0), (100, 1)] {
        let (mut world, node) = one_node(2, 64);
        let settings = Settings { objective: Objective::Fast, ..Settings::default() };
        world.ask(Command::Configure { settings: Box::new(settings) }).unwrap();
        create(&mut world, "red", TenantConfig::unlimited("red"));
        let long =
            submit_spec(&mut world, "red", JobSpec { time_limit_ms: Some(8 * HOUR), ..spec("long", 2) });
        world.plan();
        let short = JobSpec { priority, time_limit_ms: Some(MINUTE), ..spec("short", 2) };
        let short = submit_spec(&mut world, "red", short);
        let claim = room(short, &node, &[0, 1], &[long]);
        assert_eq!(adopt(&mut world, vec![claim]), (taken, 1 - taken), "priority {priority}");
    }
}

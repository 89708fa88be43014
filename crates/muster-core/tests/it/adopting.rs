//! Plans that the planner would not draw: what `AdoptPlan` must see by itself.

use muster_core::command::{Answer, Command};
use muster_core::job::PlacedTask;
use muster_core::plan::{MakeRoom, Plan, Start};
use muster_core::tenant::TenantConfig;
use muster_core::{JobId, TenantId};

use crate::world::{World, facts, spec, submission};

fn tenant(world: &mut World, name: &str, guaranteed: u64) {
    let mut config = TenantConfig::unlimited(name);
    config.guaranteed.gpus = Some(guaranteed);
    let command = Command::CreateTenant { id: name.parse().unwrap(), config: Box::new(config) };
    world.ask(command).unwrap();
}

fn submit(world: &mut World, tenant: &str) -> JobId {
    let tenant: TenantId = tenant.parse().unwrap();
    let spec = muster_core::JobSpec { tenant, ..spec("job", 2) };
    match world.ask(Command::SubmitJob(submission(spec))) {
        Ok(Answer::Job(job)) => job,
        other => panic!("{other:?}"),
    }
}

#[test]
fn two_claims_of_one_plan_do_not_reach_into_a_guarantee() {
    let mut world = World::new();
    let node: muster_core::NodeId = "n1".parse().unwrap();
    let facts = Box::new(facts(4, "NVIDIA H100 80GB HBM3", 64, 64 * 1_024));
    world.ask(Command::RegisterNode { node: node.clone(), facts }).unwrap();
    for (name, guaranteed) in [("blue", 2), ("red", 2), ("green", 2)] {
        tenant(&mut world, name, guaranteed);
    }
    let running = [submit(&mut world, "blue"), submit(&mut world, "blue")];
    world.plan();
    let waiting = [submit(&mut world, "red"), submit(&mut world, "green")];
    let gpus = |job: &JobId| world.state.jobs[job].attempt().unwrap().tasks[0].gpus.clone();
    let rooms = waiting.iter().zip(&running).map(|(job, victim)| MakeRoom {
        job: *job,
        tasks: vec![PlacedTask { rank: 0, group: 0, node: node.clone(), gpus: gpus(victim) }],
        victims: vec![*victim],
    });
    let plan = Plan { claims: rooms.collect(), ..Plan::default() };
    let answer = world.ask(Command::AdoptPlan { plan: Box::new(plan), epoch: 1 });
    assert_eq!(answer, Ok(Answer::Adopted { taken: 1, left: 1 }), "blue borrows two GPUs, not four");
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
        let tasks =
            (0..).zip(devices).map(|(rank, gpus)| PlacedTask { rank, group: 0, node: node.clone(), gpus });
        let start = Start { job, tasks: tasks.collect(), effective: None, expected_ms: None, lent: false };
        let plan = Box::new(Plan { starts: vec![start], ..Plan::default() });
        let answer = world.ask(Command::AdoptPlan { plan, epoch: 1 });
        assert_eq!(answer, Ok(Answer::Adopted { taken: 0, left: 1 }), "{cpus} cores each");
    }
}

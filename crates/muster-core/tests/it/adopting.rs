//! Adoption of plans that the planner would not propose: each part is checked against the state.

mod rejections;

use muster_core::facts::plan::{Eviction, PlanPart, RejectedPart, Rejection};
use muster_core::objects::settings::Objective;
use muster_core::time::{HOUR, MINUTE};
use muster_core::{Command, JobId, Settings};

use crate::builders::{TenantBuilder, eviction, job, node, placed, plan_of_evictions, plan_of_starts, start, tenant};
use crate::world::World;

/// A cluster of the node `n1`.
fn one_node(gpus: usize, cpus: u32) -> World {
    let mut world = World::new();
    world.register("n1", node().gpus(gpus).cpus(cpus));
    world
}

/// A job of two H100 GPUs.
fn submit_pair(world: &mut World, tenant: &str) -> JobId {
    world.submit(job().tenant(tenant).gpus(2).model("H100"))
}

/// The number of adopted and of rejected evictions.
fn adopt(world: &mut World, evictions: Vec<Eviction>) -> (usize, usize) {
    let (gangs, rejected) = world.adopt(&plan_of_evictions(evictions));
    (gangs, rejected.len())
}

fn gpus_of(world: &World, job: JobId) -> Vec<u8> {
    world.state.jobs[&job].attempt().unwrap().tasks[0].gpus.clone()
}

#[test]
fn two_evictions_of_one_plan_do_not_violate_a_guarantee() {
    let guarantees: [fn() -> TenantBuilder; 2] =
        [|| tenant().guaranteed_gpus(2), || tenant().guaranteed_model("h100", 2)];
    for guarantee in guarantees {
        let mut world = one_node(4, 64);
        for name in ["blue", "red", "green"] {
            world.create_tenant(name, guarantee());
        }
        let running = [submit_pair(&mut world, "blue"), submit_pair(&mut world, "blue")];
        world.plan();
        let waiting = [submit_pair(&mut world, "red"), submit_pair(&mut world, "green")];
        let pairs = waiting.iter().zip(&running);
        let evictions =
            pairs.map(|(job, victim)| eviction(*job, "n1", &gpus_of(&world, *victim), &[*victim])).collect();
        assert_eq!(adopt(&mut world, evictions), (1, 1), "blue borrows two GPUs, not four");
    }
}

/// Two plans from the same snapshot: claimed devices count against the guarantee.
#[test]
fn claims_count_against_a_model_guarantee() {
    let mut world = one_node(4, 64);
    world.create_tenant("red", tenant().guaranteed_model("h100", 2));
    world.create_tenant("blue", tenant());
    let running = [submit_pair(&mut world, "blue"), submit_pair(&mut world, "blue")];
    world.plan();
    let waiting = [submit_pair(&mut world, "red"), submit_pair(&mut world, "red")];
    for (place, expected) in [(0, (1, 0)), (1, (0, 1))] {
        let gpus = gpus_of(&world, running[place]);
        let claim = eviction(waiting[place], "n1", &gpus, &[running[place]]);
        assert_eq!(adopt(&mut world, vec![claim]), expected, "eviction {place}");
    }
}

/// The devices are free and only cores are short: a job without devices of the model is not evicted for it.
#[test]
fn a_model_guarantee_reclaims_only_devices_of_the_model() {
    let mut world = one_node(2, 1);
    world.create_tenant("red", tenant().guaranteed_model("h100", 2));
    world.create_tenant("green", tenant().guaranteed_gpus(2));
    world.create_tenant("blue", tenant());
    let running = world.submit(job().tenant("blue").gpus(0));
    world.plan();
    for (tenant, expected) in [("red", (0, 1)), ("green", (1, 0))] {
        let job = submit_pair(&mut world, tenant);
        assert_eq!(adopt(&mut world, vec![eviction(job, "n1", &[0, 1], &[running])]), expected, "{tenant}");
    }
}

/// Two tasks of a gang on one device, and two that need more cores together than their node has.
#[test]
fn the_tasks_of_a_gang_are_counted_together() {
    for (cpus, devices) in [(1, [[0], [0]]), (6, [[0], [1]])] {
        let mut world = one_node(4, 10);
        // A second node, so that the gang is feasible.
        world.register("n2", node().cpus(10));
        let gang = world.submit(job().tasks(2).cpus(cpus));
        let tasks = (0..).zip(devices).map(|(rank, gpus)| placed(rank, "n1", &gpus)).collect();
        let rejected = RejectedPart { part: PlanPart::Start, job: gang, reason: Rejection::SpaceTaken };
        let adopted = world.adopt(&plan_of_starts(vec![start(gang, tasks)]));
        assert_eq!(adopted, (0, vec![rejected]), "{cpus} cores each");
    }
}

#[test]
fn an_elastic_gang_counts_with_its_actual_size() {
    for (tasks, adopted) in [(1, 0), (2, 1), (3, 1), (4, 0), (5, 0)] {
        let mut world = one_node(8, 64);
        world.create_tenant("red", tenant().gpus_max(3));
        let gang = world.submit(job().tenant("red").tasks(2).tasks_max(4));
        let tasks_placed = (0..tasks).map(|rank| placed(rank, "n1", &[rank as u8])).collect();
        let (gangs, rejected) = world.adopt(&plan_of_starts(vec![start(gang, tasks_placed)]));
        assert_eq!((gangs, rejected.len()), (adopted, 1 - adopted), "{tasks} tasks of 2 to 4, quota 3");
    }
}

#[test]
fn no_job_yields_to_a_lower_priority() {
    for (priority, adopted) in [(99, 0), (100, 1)] {
        let mut world = one_node(2, 64);
        let settings = Settings { objective: Objective::Fast, ..Settings::default() };
        world.run(Command::Configure { settings: Box::new(settings) }).unwrap();
        let long = world.submit(job().gpus(2).limit_ms(8 * HOUR));
        world.plan();
        let short = world.submit(job().gpus(2).priority(priority).limit_ms(MINUTE));
        let claim = eviction(short, "n1", &[0, 1], &[long]);
        assert_eq!(adopt(&mut world, vec![claim]), (adopted, 1 - adopted), "priority {priority}");
    }
}

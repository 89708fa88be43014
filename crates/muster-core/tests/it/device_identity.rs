//! A GPU is its UUID: a device that is missing never shifts the others, and jobs are not mistaken for jobs of others.

use muster_core::facts::command::{Actor, Command};
use muster_core::gpu::device::{GpuFacts, GpuStatus};
use muster_core::objects::node::Node;
use muster_testing::{gpu, job, node};

use crate::world::World;

/// Registers the node `n1` with these devices.
fn register(world: &mut World, gpus: Vec<GpuFacts>) {
    let facts = Box::new(node().gpu_facts(gpus).build());
    let command = Command::RegisterNode { node: "n1".parse().unwrap(), facts };
    let decision = world.state.decide(&Actor::system(), &command, world.now).unwrap();
    decision.events.iter().for_each(|event| world.state.apply(event));
    assert_eq!(world.state.check(), []);
}

fn devices(names: &str) -> Vec<GpuFacts> {
    names.split_whitespace().map(|name| gpu(name, muster_testing::H100)).collect()
}

fn n1(world: &World) -> &Node {
    &world.state.nodes[&"n1".parse().unwrap()]
}

/// The devices by index; those that are unhealthy with a `!`.
fn shown(world: &World) -> String {
    let node = n1(world);
    let device = |(gpu, health): (&GpuFacts, &muster_core::gpu::device::GpuHealth)| {
        format!("{}{}", gpu.uuid, if health.status == GpuStatus::Healthy { "" } else { "!" })
    };
    node.facts.gpus.iter().zip(&node.gpu_health).map(device).collect::<Vec<_>>().join(" ")
}

#[test]
fn the_order_in_which_an_agent_lists_devices_does_not_matter() {
    let mut world = World::new();
    register(&mut world, devices("a b c d"));
    register(&mut world, devices("d b a c"));
    assert_eq!(shown(&world), "a b c d");
}

#[test]
fn a_missing_device_leaves_a_hole_and_returns_to_its_index() {
    let mut world = World::new();
    register(&mut world, devices("a b c d"));
    register(&mut world, devices("a c d"));
    assert_eq!(shown(&world), "a b! c d");
    assert_eq!(n1(&world).gpu_health[1].why, "its agent no longer finds the device");
    register(&mut world, devices("a c d"));
    assert_eq!(shown(&world), "a b! c d");
    register(&mut world, devices("a b c d"));
    assert_eq!(shown(&world), "a b c d");
}

#[test]
fn a_new_device_takes_the_index_of_a_missing_one_and_not_its_health() {
    let mut world = World::new();
    register(&mut world, devices("a b c"));
    register(&mut world, devices("a c"));
    register(&mut world, devices("a c e"));
    assert_eq!(shown(&world), "a e c");
}

#[test]
fn missing_devices_behind_all_others_are_forgotten() {
    let mut world = World::new();
    register(&mut world, devices("a b c d"));
    register(&mut world, devices("a b"));
    assert_eq!(shown(&world), "a b");
}

#[test]
fn nvlink_peers_follow_their_devices() {
    let mut world = World::new();
    register(&mut world, devices("a b c"));
    let mut reported = devices("c a");
    reported[0].nvlink = vec![1];
    reported[1].nvlink = vec![0];
    register(&mut world, reported);
    let peers: Vec<_> = n1(&world).facts.gpus.iter().map(|gpu| gpu.nvlink.clone()).collect();
    assert_eq!((shown(&world).as_str(), peers), ("a b! c", vec![vec![2], vec![], vec![0]]));
}

/// Orders and leases name devices by index, so none that a job holds may vanish.
#[test]
fn a_registration_without_uuids_cannot_drop_a_device_in_use() {
    let mut nameless = devices("a");
    nameless[0].uuid = String::new();
    let register_nameless = |world: &World| {
        let facts = Box::new(node().gpu_facts(nameless.clone()).build());
        let command = Command::RegisterNode { node: "n1".parse().unwrap(), facts };
        world.state.decide(&Actor::system(), &command, world.now)
    };
    let mut world = World::new();
    register(&mut world, devices("a b"));
    assert!(register_nameless(&world).is_ok(), "nobody holds the second one");
    world.submit(job().gpus(2));
    world.plan();
    let refusal = register_nameless(&world).unwrap_err();
    assert!(refusal.to_string().contains("gpu-1, which is in use"), "{refusal}");
}

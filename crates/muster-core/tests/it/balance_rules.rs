//! `balance_rule(metric = "temperature")`: a device without a reading counts as the median of those that report.

use std::collections::BTreeMap;

use muster_core::Command;
use muster_core::gpu::device::GpuStatus;
use muster_core::objects::policy::rules::{BalanceStrategy, Metric, Rule, Rules, Ruleset};
use muster_core::objects::policy::{PolicyBundle, PolicyScope};

use crate::builders::{bundle, job, node, node_id};
use crate::naive_planner;
use crate::world::World;

/// Nodes of one GPU with these readings, and a policy with one balance rule.
fn cluster(readings: &[(&str, Option<i32>)], strategy: BalanceStrategy) -> World {
    let mut world = World::new();
    let rules = vec![Rule::Balance { metric: Metric::Temperature, strategy }];
    let ruleset = Ruleset { name: "rules".to_string(), rules };
    let schedules = BTreeMap::from([(ruleset.name.clone(), ruleset)]);
    let rules = Rules { pools: BTreeMap::new(), schedules };
    world.apply_policy(PolicyScope::Cluster, PolicyBundle { rules, ..bundle("balance", &[]) });
    for (name, temperature_c) in readings {
        world.register(name, node().gpus(1).model("H100"));
        let reading = Command::SetGpuHealth {
            node: node_id(name),
            gpu: 0,
            status: GpuStatus::Healthy,
            why: String::new(),
            cooling_until: None,
            temperature_c: *temperature_c,
            jobs: Default::default(),
        };
        world.run(reading).unwrap();
    }
    world
}

/// The nodes in the order in which one job after the other is placed on them.
fn placement_order(mut world: World) -> Vec<String> {
    let mut order = Vec::new();
    for _ in 0..world.state.nodes.len() {
        let job = world.submit(job());
        // The naive planner has its own score, written from the documented rule.
        naive_planner::compare(&world.state, world.now);
        world.plan();
        order.push(world.state.jobs[&job].attempt().unwrap().tasks[0].node.to_string());
    }
    order
}

#[test]
fn an_unknown_temperature_counts_as_the_median() {
    // The names sort against the temperatures, so that no tie helps.
    let readings = [("a-hot", Some(90)), ("b-unknown", None), ("c-mild", Some(60)), ("d-cold", Some(30))];
    // The median of 90, 60 and 30 is 60: `b-unknown` ties with `c-mild` and precedes it by name.
    let least = placement_order(cluster(&readings, BalanceStrategy::Least));
    assert_eq!(least, ["d-cold", "b-unknown", "c-mild", "a-hot"]);
    let most = placement_order(cluster(&readings, BalanceStrategy::Most));
    assert_eq!(most, ["a-hot", "b-unknown", "c-mild", "d-cold"]);
}

#[test]
fn without_any_reading_no_node_is_preferred() {
    let readings = [("a", None), ("b", None)];
    assert_eq!(placement_order(cluster(&readings, BalanceStrategy::Least)), ["a", "b"]);
    assert_eq!(placement_order(cluster(&readings, BalanceStrategy::Most)), ["a", "b"]);
}

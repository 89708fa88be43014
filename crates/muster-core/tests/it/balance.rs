//! `balance_rule(metric = "temperature")`: an unknown reading is neutral, neither cold nor hot.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_core::command::{Answer, Command};
use muster_core::node::GpuWord;
use muster_core::policy::{Bundle, Scope};
use muster_core::rules::{Extreme, Metric, Rule, Rules, Ruleset};

use crate::model;
use crate::world::{World, facts, spec, submission};

/// Nodes of one GPU with these readings, and a policy of one balance rule.
fn cluster(readings: &[(&str, Option<i32>)], strategy: Extreme) -> World {
    let mut world = World::new();
    let rules = vec![Rule::Balance { metric: Metric::Temperature, strategy }];
    let ruleset = Ruleset { name: "rules".to_string(), rules };
    let schedules = BTreeMap::from([(ruleset.name.clone(), ruleset)]);
    let bundle = Bundle {
        hash: "balance".to_string(),
        files: BTreeMap::from([("policy.gsky".to_string(), String::new())]),
        rules: Rules { pools: BTreeMap::new(), schedules },
        hooks: BTreeSet::new(),
        mentions: BTreeSet::new(),
    };
    let apply = Command::ApplyPolicy { scope: Scope::Cluster, bundle: Arc::new(bundle), why: String::new() };
    world.ask(apply).unwrap();
    for (name, temperature_c) in readings {
        let node: muster_core::NodeId = name.parse().unwrap();
        let facts = Box::new(facts(1, "H100", 8, 1 << 16));
        world.ask(Command::RegisterNode { node: node.clone(), facts }).unwrap();
        let (why, word) = (String::new(), GpuWord::Healthy);
        let reading = Command::SetGpuHealth {
            node,
            gpu: 0,
            word,
            why,
            cooling_until: None,
            temperature_c: *temperature_c,
            jobs: Default::default(),
        };
        world.ask(reading).unwrap();
    }
    world
}

/// The nodes in the order in which one job after the other goes to them.
fn filled(mut world: World) -> Vec<String> {
    let mut order = Vec::new();
    for _ in 0..world.state.nodes.len() {
        let Ok(Answer::Job(job)) = world.ask(Command::SubmitJob(submission(spec("job", 1)))) else {
            panic!("the job is accepted")
        };
        // The naive planner has its own score, written from the documented rule.
        model::compare(&world.state, world.now);
        world.plan();
        order.push(world.state.jobs[&job].attempt().unwrap().tasks[0].node.to_string());
    }
    order
}

#[test]
fn an_unknown_temperature_is_the_median_of_those_that_report() {
    // Names sort against the temperatures, so that no tie helps.
    let readings = [("a-hot", Some(90)), ("b-unknown", None), ("c-mild", Some(60)), ("d-cold", Some(30))];
    // The median of 90, 60 and 30 is 60: `b-unknown` ties with `c-mild` and precedes it by name.
    assert_eq!(filled(cluster(&readings, Extreme::Least)), ["d-cold", "b-unknown", "c-mild", "a-hot"]);
    assert_eq!(filled(cluster(&readings, Extreme::Most)), ["a-hot", "b-unknown", "c-mild", "d-cold"]);
}

#[test]
fn where_nothing_reports_no_node_is_preferred() {
    let readings = [("a", None), ("b", None)];
    assert_eq!(filled(cluster(&readings, Extreme::Least)), ["a", "b"]);
    assert_eq!(filled(cluster(&readings, Extreme::Most)), ["a", "b"]);
}

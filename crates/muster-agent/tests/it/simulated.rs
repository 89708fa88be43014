//! The simulated agents with a real clock and a real disk. Their decisions are unit-tested.

use std::time::Duration;

use muster_agent::logs::Stream;
use muster_agent::{Agent, SimulatedAgents, SimulatedAgentsConfig};
use muster_protocol::agent::{Exit, Registration, Report};

use crate::harness::{AgentHarness, command, order, wait_until};

#[test]
fn the_log_of_a_simulated_attempt_can_be_read() {
    let mut harness = AgentHarness::with_simulated_agents();
    let mut attempt_order = order(command(&["python", "train.py"]));
    attempt_order.annotations.insert("muster.sim/runtime".to_string(), "50ms".to_string());
    harness.send_orders(vec![attempt_order]);
    assert_eq!(harness.wait_for_exit(), Exit::Code(0));
    let log = harness.read_log(0, Stream::Stdout);
    assert!(log.contains("would run: python train.py") && log.contains("ended with exit code 0"), "{log}");
}

#[test]
fn one_thread_simulates_two_thousand_nodes() {
    let harness = AgentHarness::without_agent();
    let node = |number: u32| Registration {
        node: format!("n{number:04}"),
        hostname: String::new(),
        address: String::new(),
        cpus: 8,
        memory_mib: 1024,
        gpus: Vec::new(),
        numa: Vec::new(),
        rack: None,
        block: None,
        power_feed: None,
        labels: Default::default(),
        taints: Vec::new(),
        agent_version: String::new(),
        incarnation: String::new(),
        heartbeat_interval_ms: None,
        boot_id: String::new(),
        simulated: true,
    };
    let config = SimulatedAgentsConfig {
        heartbeat_interval: Duration::from_millis(200),
        ..SimulatedAgentsConfig::new((0..2_000).map(node).collect(), &harness.data_dir)
    };
    let mut agent = SimulatedAgents::start(config, harness.report_sink()).unwrap();
    wait_until("every node has sent three heartbeats", || harness.heartbeat_count() >= 6_000);
    agent.shutdown();
    let reports = harness.reports();
    let registered = reports.iter().filter_map(|report| match report {
        Report::Registered(registration) => Some(&registration.node),
        _ => None,
    });
    assert_eq!(registered.collect::<std::collections::BTreeSet<_>>().len(), 2_000);
}

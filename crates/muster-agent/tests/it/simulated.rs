//! The simulated cluster on a real clock and a real disk. Its decisions are tested beside the code.

use std::time::Duration;

use muster_agent::logs::Stream;
use muster_agent::{Agent, Simulated, SimulatedConfig};
use muster_protocol::agent::{Exit, Registration, Report};

use crate::bench::{Bench, command, order, wait_until};

#[test]
fn the_log_of_a_simulated_attempt_can_be_read() {
    let mut bench = Bench::simulated();
    let mut asked = order(command(&["python", "train.py"]));
    asked.annotations.insert("muster.sim/runtime".to_string(), "50ms".to_string());
    bench.order(vec![asked]);
    assert_eq!(bench.await_end(), Exit::Code(0));
    let log = bench.log(0, Stream::Stdout);
    assert!(log.contains("would run: python train.py") && log.contains("ended with exit code 0"), "{log}");
}

#[test]
fn two_thousand_nodes_live_on_one_thread() {
    let bench = Bench::empty();
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
        simulated: true,
    };
    let config = SimulatedConfig {
        heartbeat: Duration::from_millis(200),
        ..SimulatedConfig::new((0..2_000).map(node).collect(), &bench.data_dir)
    };
    let mut agent = Simulated::start(config, bench.mouth()).unwrap();
    wait_until("all have beaten three times", || bench.beats() >= 6_000);
    agent.shutdown();
    let heard = bench.heard();
    let registered = heard.iter().filter_map(|report| match report {
        Report::Registered(registration) => Some(&registration.node),
        _ => None,
    });
    assert_eq!(registered.collect::<std::collections::BTreeSet<_>>().len(), 2_000);
}

use super::*;
use crate::cluster::Cluster;
use crate::test_fixtures::order;
use muster_protocol::agent::Report;
use muster_protocol::agent::{AttemptOrder, StopOrder};

fn orders(generation: u64, attempts: Vec<AttemptOrder>) -> SimulatedInput {
    let (node, incarnation) = ("gpu01".to_string(), String::new());
    SimulatedInput::Orders(Orders {
        node,
        incarnation,
        epoch: 1,
        generation,
        attempts,
        nonce: 0,
        pools: Vec::new(),
        reboot_from: None,
    })
}

/// One health check at the start, and then none for an hour.
const REPORT_INTERVALS: ReportIntervals =
    ReportIntervals { heartbeat_ms: 1_000, readings_ms: 1_000, health_checks_ms: 3_600_000 };

/// The default cluster after its registration.
fn registered_cluster() -> SimulatedCluster {
    let mut cluster = SimulatedCluster::new(Cluster::default_dev().registrations(), REPORT_INTERVALS);
    cluster.step(1_000, SimulatedInput::Tick);
    cluster
}

/// Runs the steps of the cluster until `until_ms` and returns the reports about attempts and GPUs, with their times.
fn run_until(cluster: &mut SimulatedCluster, until_ms: i64) -> Vec<String> {
    let mut events = Vec::new();
    loop {
        let now_ms = cluster.wake_at_ms();
        if now_ms > until_ms {
            return events;
        }
        let effects = cluster.step(now_ms, SimulatedInput::Tick);
        events.extend(effects.iter().filter_map(describe_effect).map(|text| format!("{now_ms} {text}")));
        assert!(cluster.wake_at_ms() > now_ms, "a step must move the next wake-up forward");
    }
}

fn describe_effect(effect: &SimulatedEffect) -> Option<String> {
    match effect {
        SimulatedEffect::SendReport(Report::Started { job, .. }) => Some(format!("{job} started")),
        SimulatedEffect::SendReport(Report::Ended { job, exit, .. }) => Some(format!("{job} {exit:?}")),
        // Idle GPUs report all the time; only the readings of warm ones are compared.
        SimulatedEffect::SendReport(Report::GpuReading { temperature_c: Some(40), .. }) => None,
        SimulatedEffect::SendReport(Report::GpuReading { gpu, temperature_c, .. }) => {
            Some(format!("gpu {gpu} {temperature_c:?}"))
        }
        SimulatedEffect::SendReport(Report::Registered(_) | Report::Heartbeat { .. })
        | SimulatedEffect::WriteLog(_) => None,
        SimulatedEffect::SendReport(other) => Some(format!("{other:?}")),
    }
}

#[test]
fn every_node_registers_and_then_sends_heartbeats() {
    let mut cluster = SimulatedCluster::new(Cluster::default_dev().registrations(), REPORT_INTERVALS);
    let first = cluster.step(500, SimulatedInput::Tick);
    let registered =
        first.iter().filter(|effect| matches!(effect, SimulatedEffect::SendReport(Report::Registered(_)))).count();
    let readings =
        first.iter().filter(|effect| matches!(effect, SimulatedEffect::SendReport(Report::GpuReading { .. }))).count();
    assert_eq!((registered, readings, first.len()), (2, 8, 12), "the first health check is at once");
    assert_eq!(cluster.wake_at_ms(), 1_500);
    assert_eq!(cluster.step(1_499, SimulatedInput::Tick), []);
    assert_eq!(cluster.step(1_500, SimulatedInput::Tick).len(), 4, "no orders have acknowledged the registration");
    for node in Cluster::default_dev().registrations() {
        let known = Orders {
            node: node.node,
            incarnation: String::new(),
            epoch: 1,
            generation: 1,
            attempts: Vec::new(),
            nonce: 0,
            pools: Vec::new(),
            reboot_from: None,
        };
        cluster.step(1_600, SimulatedInput::Orders(known));
    }
    let heartbeats = cluster.step(2_500, SimulatedInput::Tick);
    assert!(
        heartbeats.iter().all(|effect| matches!(effect, SimulatedEffect::SendReport(Report::Heartbeat { .. }))),
        "{heartbeats:?}"
    );
    assert_eq!(heartbeats.len(), 2);
}

#[test]
fn a_simulated_attempt_starts_exits_and_repeats_its_exit_report_until_dropped() {
    let mut cluster = registered_cluster();
    let attempt_order = order("job-1", &[("muster.sim/runtime", "2s"), ("muster.sim/exit-code", "3")]);
    assert_eq!(
        cluster.step(1_001, orders(1, vec![attempt_order.clone()])).iter().filter_map(describe_effect).count(),
        0
    );
    assert_eq!(run_until(&mut cluster, 1_100), ["1050 job-1 started"]);
    let acknowledged = AttemptOrder { started: true, ..attempt_order };
    cluster.step(1_200, orders(2, vec![acknowledged]));
    assert_eq!(run_until(&mut cluster, 4_500), ["3050 job-1 Code(3)", "4050 job-1 Code(3)"]);
    cluster.step(4_600, orders(3, vec![]));
    assert_eq!(run_until(&mut cluster, 9_000), Vec::<String>::new());
}

#[test]
fn a_start_report_repeats_until_the_orders_acknowledge_it() {
    let mut cluster = registered_cluster();
    cluster.step(1_001, orders(1, vec![order("job-1", &[])]));
    assert_eq!(run_until(&mut cluster, 3_500), ["1050 job-1 started", "2050 job-1 started", "3050 job-1 started"]);
}

#[test]
fn after_a_restart_the_same_deadline_holds() {
    let attempt_order = AttemptOrder { started: true, ..order("job-1", &[("muster.sim/runtime", "5s")]) };
    let mut cluster = SimulatedCluster::new(Cluster::default_dev().registrations(), REPORT_INTERVALS);
    cluster.step(4_000, orders(9, vec![attempt_order]));
    assert_eq!(run_until(&mut cluster, 6_100), ["6050 job-1 Code(0)"]);
}

#[test]
fn an_attempt_that_ended_unobserved_reports_start_then_exit() {
    let mut cluster = registered_cluster();
    let effects = cluster.step(90_000, orders(1, vec![order("job-1", &[("muster.sim/runtime", "1s")])]));
    let message: Vec<_> = effects.iter().filter_map(describe_effect).collect();
    assert_eq!(message, ["job-1 started", "job-1 Code(0)"]);
}

#[test]
fn a_stop_after_the_exit_does_not_change_it() {
    let mut cluster = registered_cluster();
    let attempt_order = order("job-1", &[("muster.sim/runtime", "1s")]);
    cluster.step(1_001, orders(1, vec![attempt_order.clone()]));
    run_until(&mut cluster, 2_100);
    let stop = Some(StopOrder { since_ms: 1_500, grace_ms: 30_000, why: "late".to_string() });
    cluster.step(2_200, orders(2, vec![AttemptOrder { stop: stop.clone(), ..attempt_order }]));
    assert_eq!(run_until(&mut cluster, 3_100), ["3050 job-1 Code(0)"]);
    cluster.step(3_200, orders(3, vec![AttemptOrder { stop, ..order("job-2", &[]) }]));
    assert_eq!(run_until(&mut cluster, 4_000).len(), 0, "reported in the same step");
}

#[test]
fn older_orders_are_ignored() {
    let mut cluster = registered_cluster();
    cluster.step(1_001, orders(5, vec![order("job-1", &[("muster.sim/runtime", "1s")])]));
    cluster.step(1_002, orders(4, vec![]));
    assert_eq!(run_until(&mut cluster, 2_100), ["1050 job-1 started", "2050 job-1 Code(0)"]);
}

#[test]
fn an_attempt_with_invalid_annotations_does_not_start() {
    let mut cluster = registered_cluster();
    cluster.step(1_001, orders(1, vec![order("job-1", &[("muster.sim/runtime", "soon")])]));
    let events = run_until(&mut cluster, 1_100);
    assert_eq!(events.len(), 1);
    assert!(events[0].contains("NotStarted") && events[0].contains("`soon` is not a duration"), "{events:?}");
}

#[test]
fn gpus_heat_while_an_attempt_runs_and_cool_after_it() {
    let mut cluster = registered_cluster();
    let attempt_order = order("job-1", &[("muster.sim/runtime", "1500ms"), ("muster.sim/temperature", "70")]);
    cluster.step(1_001, orders(1, vec![attempt_order]));
    let events = run_until(&mut cluster, 9_000);
    let readings: Vec<_> = events.iter().filter(|line| line.contains("gpu 1")).collect();
    assert_eq!(readings[0], "1050 gpu 1 Some(70)");
    assert_eq!(readings.last().unwrap().split_once(' ').unwrap().1, "gpu 1 Some(50)");
    assert!(readings.len() >= 3, "{readings:?}");
}

#[test]
fn logs_show_start_and_exit_of_a_simulated_attempt() {
    let mut cluster = registered_cluster();
    cluster.step(1_001, orders(1, vec![order("job-1", &[("muster.sim/runtime", "2s")])]));
    let mut log = String::new();
    while cluster.wake_at_ms() < 4_000 {
        for effect in cluster.step(cluster.wake_at_ms(), SimulatedInput::Tick) {
            if let SimulatedEffect::WriteLog(line) = effect {
                log.push_str(&line.text);
            }
        }
    }
    assert_eq!(
        log,
        "[simulated] job-1 `demo`, attempt 1: rank 0 of 1 on gpu01 with GPUs 1\n\
         [simulated] would run: train\n[simulated] simulates work for 2s\n\
         [simulated] ended with exit code 0\n"
    );
}

#[test]
fn the_same_inputs_give_the_same_reports() {
    let run = || {
        let mut cluster = registered_cluster();
        let attempts = (1..20).map(|n| order(&format!("job-{n}"), &[("muster.sim/temperature", "80")])).collect();
        cluster.step(1_001, orders(1, attempts));
        run_until(&mut cluster, 30_000)
    };
    assert_eq!(run(), run());
}

#[test]
fn heartbeats_continue_after_the_clock_is_set_back() {
    let mut cluster = registered_cluster();
    cluster.step(900_000, SimulatedInput::Tick);
    assert_eq!(cluster.step(5_000, SimulatedInput::Tick).len(), 4, "both nodes send a heartbeat and register");
    assert_eq!(cluster.wake_at_ms(), 6_000);
}

use super::*;
use crate::cluster::Cluster;
use crate::test_fixtures::order;
use muster_protocol::agent::{AttemptOrder, Exit, Report, StopOrder};

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
        secrets: Vec::new(),
    })
}

/// Both clocks show the same, unless a test sets one of them.
fn at(ms: i64) -> ClockReading {
    ClockReading { wall_ms: ms, monotonic_ms: ms }
}

/// One health check at the start, and then none for an hour.
const REPORT_INTERVALS: ReportIntervals =
    ReportIntervals { heartbeat_ms: 1_000, readings_ms: 1_000, health_checks_ms: 3_600_000 };

/// The default cluster after its registration.
fn registered_cluster() -> SimulatedCluster {
    let mut cluster = SimulatedCluster::new(Cluster::default_dev().registrations(), REPORT_INTERVALS);
    cluster.step(at(1_000), SimulatedInput::Tick);
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
        let effects = cluster.step(at(now_ms), SimulatedInput::Tick);
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
    let first = cluster.step(at(500), SimulatedInput::Tick);
    let registered =
        first.iter().filter(|effect| matches!(effect, SimulatedEffect::SendReport(Report::Registered(_)))).count();
    let readings =
        first.iter().filter(|effect| matches!(effect, SimulatedEffect::SendReport(Report::GpuReading { .. }))).count();
    assert_eq!((registered, readings, first.len()), (2, 8, 12), "the first health check is at once");
    assert_eq!(cluster.wake_at_ms(), 1_500);
    assert_eq!(cluster.step(at(1_499), SimulatedInput::Tick), []);
    assert_eq!(cluster.step(at(1_500), SimulatedInput::Tick).len(), 4, "no orders have acknowledged the registration");
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
            secrets: Vec::new(),
        };
        cluster.step(at(1_600), SimulatedInput::Orders(known));
    }
    let heartbeats = cluster.step(at(2_500), SimulatedInput::Tick);
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
        cluster.step(at(1_001), orders(1, vec![attempt_order.clone()])).iter().filter_map(describe_effect).count(),
        0
    );
    assert_eq!(run_until(&mut cluster, 1_100), ["1050 job-1 started"]);
    let acknowledged = AttemptOrder { started: true, ..attempt_order };
    cluster.step(at(1_200), orders(2, vec![acknowledged]));
    assert_eq!(run_until(&mut cluster, 4_500), ["3050 job-1 Code(3)", "4050 job-1 Code(3)"]);
    cluster.step(at(4_600), orders(3, vec![]));
    assert_eq!(run_until(&mut cluster, 9_000), Vec::<String>::new());
}

#[test]
fn a_start_report_repeats_until_the_orders_acknowledge_it() {
    let mut cluster = registered_cluster();
    cluster.step(at(1_001), orders(1, vec![order("job-1", &[])]));
    assert_eq!(run_until(&mut cluster, 3_500), ["1050 job-1 started", "2050 job-1 started", "3050 job-1 started"]);
}

#[test]
fn after_a_restart_the_same_deadline_holds() {
    let attempt_order = AttemptOrder { started: true, ..order("job-1", &[("muster.sim/runtime", "5s")]) };
    let mut cluster = SimulatedCluster::new(Cluster::default_dev().registrations(), REPORT_INTERVALS);
    cluster.step(at(4_000), orders(9, vec![attempt_order]));
    assert_eq!(run_until(&mut cluster, 6_100), ["6050 job-1 Code(0)"]);
}

#[test]
fn an_attempt_that_ended_unobserved_reports_start_then_exit() {
    let mut cluster = registered_cluster();
    let effects = cluster.step(at(90_000), orders(1, vec![order("job-1", &[("muster.sim/runtime", "1s")])]));
    let message: Vec<_> = effects.iter().filter_map(describe_effect).collect();
    assert_eq!(message, ["job-1 started", "job-1 Code(0)"]);
}

#[test]
fn a_stop_after_the_exit_does_not_change_it() {
    let mut cluster = registered_cluster();
    let attempt_order = order("job-1", &[("muster.sim/runtime", "1s")]);
    cluster.step(at(1_001), orders(1, vec![attempt_order.clone()]));
    run_until(&mut cluster, 2_100);
    let stop = Some(StopOrder { since_ms: 1_500, grace_ms: 30_000, why: "late".to_string() });
    cluster.step(at(2_200), orders(2, vec![AttemptOrder { stop: stop.clone(), ..attempt_order }]));
    assert_eq!(run_until(&mut cluster, 3_100), ["3050 job-1 Code(0)"]);
    cluster.step(at(3_200), orders(3, vec![AttemptOrder { stop, ..order("job-2", &[]) }]));
    assert_eq!(run_until(&mut cluster, 4_000).len(), 0, "reported in the same step");
}

#[test]
fn older_orders_are_ignored() {
    let mut cluster = registered_cluster();
    cluster.step(at(1_001), orders(5, vec![order("job-1", &[("muster.sim/runtime", "1s")])]));
    cluster.step(at(1_002), orders(4, vec![]));
    assert_eq!(run_until(&mut cluster, 2_100), ["1050 job-1 started", "2050 job-1 Code(0)"]);
}

#[test]
fn an_attempt_with_invalid_annotations_does_not_start() {
    let mut cluster = registered_cluster();
    cluster.step(at(1_001), orders(1, vec![order("job-1", &[("muster.sim/runtime", "soon")])]));
    let events = run_until(&mut cluster, 1_100);
    assert_eq!(events.len(), 1);
    assert!(events[0].contains("NotStarted") && events[0].contains("`soon` is not a duration"), "{events:?}");
}

#[test]
fn gpus_heat_while_an_attempt_runs_and_cool_after_it() {
    let mut cluster = registered_cluster();
    let attempt_order = order("job-1", &[("muster.sim/runtime", "1500ms"), ("muster.sim/temperature", "70")]);
    cluster.step(at(1_001), orders(1, vec![attempt_order]));
    let events = run_until(&mut cluster, 9_000);
    let readings: Vec<_> = events.iter().filter(|line| line.contains("gpu 1")).collect();
    assert_eq!(readings[0], "1050 gpu 1 Some(70)");
    assert_eq!(readings.last().unwrap().split_once(' ').unwrap().1, "gpu 1 Some(50)");
    assert!(readings.len() >= 3, "{readings:?}");
}

#[test]
fn logs_show_start_and_exit_of_a_simulated_attempt() {
    let mut cluster = registered_cluster();
    cluster.step(at(1_001), orders(1, vec![order("job-1", &[("muster.sim/runtime", "2s")])]));
    let mut log = String::new();
    while cluster.wake_at_ms() < 4_000 {
        for effect in cluster.step(at(cluster.wake_at_ms()), SimulatedInput::Tick) {
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
        cluster.step(at(1_001), orders(1, attempts));
        run_until(&mut cluster, 30_000)
    };
    assert_eq!(run(), run());
}

#[test]
fn a_wall_clock_that_is_set_back_changes_neither_heartbeats_nor_deadlines() {
    let mut cluster = registered_cluster();
    cluster.step(at(1_001), orders(1, vec![order("job-1", &[("muster.sim/runtime", "3s")])]));
    let set_back = |monotonic_ms| ClockReading { wall_ms: monotonic_ms - 900_000, monotonic_ms };
    let heartbeats = cluster.step(set_back(2_000), SimulatedInput::Tick);
    assert!(heartbeats.iter().any(|effect| matches!(effect, SimulatedEffect::SendReport(Report::Heartbeat { .. }))));
    let exits_at = |cluster: &mut SimulatedCluster, ms| {
        let effects = cluster.step(set_back(ms), SimulatedInput::Tick);
        effects.iter().filter_map(describe_effect).filter(|text| text.contains("Code")).count()
    };
    assert_eq!((exits_at(&mut cluster, 4_049), exits_at(&mut cluster, 4_050)), (0, 1));
}

#[test]
fn after_a_restart_the_grace_of_a_stop_ends_at_the_same_time() {
    let annotations = [("muster.sim/ignore-stop", "true"), ("muster.sim/runtime", "1h")];
    let stop = Some(StopOrder { since_ms: 2_000, grace_ms: 7_000, why: "test".to_string() });
    let stopping = AttemptOrder { started: true, stop, ..order("job-1", &annotations) };
    for restarted_at_ms in [2_000, 8_999] {
        let mut cluster = SimulatedCluster::new(Cluster::default_dev().registrations(), REPORT_INTERVALS);
        cluster.step(at(restarted_at_ms), orders(9, vec![stopping.clone()]));
        assert_eq!(run_until(&mut cluster, 9_500), ["9000 job-1 Signal(9)"], "restarted at {restarted_at_ms}");
    }
    let mut late = SimulatedCluster::new(Cluster::default_dev().registrations(), REPORT_INTERVALS);
    let effects = late.step(at(60_000), orders(9, vec![stopping]));
    let ended = effects.iter().find_map(|effect| match effect {
        SimulatedEffect::SendReport(Report::Ended { exit, stopped, ended_ms_ago, .. }) => {
            Some((exit.clone(), *stopped, *ended_ms_ago))
        }
        _ => None,
    });
    assert_eq!(ended, Some((Exit::Signal(9), true, Some(51_000))), "it ended while no agent ran");
}

#[test]
fn an_attempt_that_the_orders_drop_is_stopped() {
    let mut cluster = registered_cluster();
    cluster.step(at(1_001), orders(1, vec![order("job-1", &[("muster.sim/temperature", "70")])]));
    run_until(&mut cluster, 2_000);
    cluster.step(at(2_500), orders(2, vec![]));
    let mut log = String::new();
    while cluster.wake_at_ms() < 3_000 {
        for effect in cluster.step(at(cluster.wake_at_ms()), SimulatedInput::Tick) {
            if let SimulatedEffect::WriteLog(line) = effect {
                log.push_str(&line.text);
            }
        }
    }
    assert_eq!(log, "[simulated] ended by signal 15 (stop requested: the orders no longer contain this attempt)\n");
    assert_eq!(run_until(&mut cluster, 30_000).last().unwrap(), "4500 gpu 1 Some(50)", "it cools, and nothing follows");
}

/// The server lost its journal and gives the same job id to another job.
#[test]
fn another_placement_of_the_same_number_replaces_the_attempt() {
    let mut cluster = registered_cluster();
    cluster.step(at(1_001), orders(1, vec![order("job-1", &[("muster.sim/runtime", "1h")])]));
    run_until(&mut cluster, 2_000);
    let other = AttemptOrder { placed_at_ms: 3_000, ..order("job-1", &[("muster.sim/runtime", "2s")]) };
    cluster.step(at(3_001), orders(2, vec![other]));
    assert_eq!(run_until(&mut cluster, 5_500), ["3051 job-1 started", "4051 job-1 started", "5050 job-1 Code(0)"]);
}

#[test]
fn an_attempt_ends_itself_when_no_heartbeat_is_acknowledged() {
    let fenced = || AttemptOrder { self_fence_ms: Some(10_000), started: false, ..order("job-1", &[]) };
    let mut cluster = registered_cluster();
    cluster.step(at(1_001), orders(1, vec![fenced()]));
    run_until(&mut cluster, 1_100);
    cluster.step(at(1_101), orders(2, vec![AttemptOrder { started: true, ..fenced() }]));
    run_until(&mut cluster, 8_000);
    let echo = HeartbeatEcho { node: "gpu01".to_string(), sent_at_boot_ms: 7_000 };
    cluster.step(at(8_000), SimulatedInput::HeartbeatEcho(echo));
    let events = run_until(&mut cluster, 17_500);
    assert_eq!(events.len(), 1, "{events:?}");
    assert!(events[0].starts_with("17000 job-1 Unknown(\"self-fenced"), "{events:?}");
}

use super::*;
use crate::cluster::Cluster;
use crate::sample::order;
use muster_protocol::agent::{Order, Stop};

fn orders(generation: u64, attempts: Vec<Order>) -> Input {
    let (node, incarnation) = ("gpu01".to_string(), String::new());
    Input::Orders(Orders { node, incarnation, epoch: 1, generation, attempts, pools: Vec::new() })
}

/// One health check at the start, and then none for an hour.
const PACES: Paces = Paces { heartbeat_ms: 1_000, readings_ms: 1_000, health_checks_ms: 3_600_000 };

/// The default cluster after its first words.
fn world() -> World {
    let mut world = World::new(Cluster::default_dev().registrations(), PACES);
    world.step(1_000, Input::Tick);
    world
}

/// Let time pass in the world's own steps, and tell what was said of attempts and GPUs, with the time.
fn play(world: &mut World, until_ms: i64) -> Vec<String> {
    let mut story = Vec::new();
    loop {
        let now_ms = world.wake_at_ms();
        if now_ms > until_ms {
            return story;
        }
        let acts = world.step(now_ms, Input::Tick);
        story.extend(acts.iter().filter_map(words).map(|words| format!("{now_ms} {words}")));
        assert!(world.wake_at_ms() > now_ms, "the world must not spin");
    }
}

fn words(act: &Act) -> Option<String> {
    match act {
        Act::Say(Report::Started { job, .. }) => Some(format!("{job} started")),
        Act::Say(Report::Ended { job, exit, .. }) => Some(format!("{job} {exit:?}")),
        // Idle GPUs report all the time; only warm ones are part of the story.
        Act::Say(Report::GpuReading { temperature_c: Some(40), .. }) => None,
        Act::Say(Report::GpuReading { gpu, temperature_c, .. }) => {
            Some(format!("gpu {gpu} {temperature_c:?}"))
        }
        Act::Say(Report::Registered(_) | Report::Heartbeat { .. }) | Act::Log(_) => None,
    }
}

#[test]
fn every_node_registers_and_then_beats() {
    let mut world = World::new(Cluster::default_dev().registrations(), PACES);
    let first = world.step(500, Input::Tick);
    let registered = first.iter().filter(|act| matches!(act, Act::Say(Report::Registered(_)))).count();
    let readings = first.iter().filter(|act| matches!(act, Act::Say(Report::GpuReading { .. }))).count();
    assert_eq!((registered, readings, first.len()), (2, 8, 12), "the first health check is at once");
    assert_eq!(world.wake_at_ms(), 1_500);
    assert_eq!(world.step(1_499, Input::Tick), []);
    assert_eq!(world.step(1_500, Input::Tick).len(), 4, "nobody has shown that it knows them");
    for node in Cluster::default_dev().registrations() {
        let known = Orders {
            node: node.node,
            incarnation: String::new(),
            epoch: 1,
            generation: 1,
            attempts: Vec::new(),
            pools: Vec::new(),
        };
        world.step(1_600, Input::Orders(known));
    }
    let beats = world.step(2_500, Input::Tick);
    assert!(beats.iter().all(|act| matches!(act, Act::Say(Report::Heartbeat { .. }))), "{beats:?}");
    assert_eq!(beats.len(), 2);
}

#[test]
fn an_attempt_starts_ends_and_repeats_its_end_until_dropped() {
    let mut world = world();
    let asked = order("job-1", &[("muster.sim/runtime", "2s"), ("muster.sim/exit-code", "3")]);
    assert_eq!(world.step(1_001, orders(1, vec![asked.clone()])).iter().filter_map(words).count(), 0);
    assert_eq!(play(&mut world, 1_100), ["1050 job-1 started"]);
    let heard = Order { started: true, ..asked };
    world.step(1_200, orders(2, vec![heard]));
    assert_eq!(play(&mut world, 4_500), ["3050 job-1 Code(3)", "4050 job-1 Code(3)"]);
    world.step(4_600, orders(3, vec![]));
    assert_eq!(play(&mut world, 9_000), Vec::<String>::new());
}

#[test]
fn a_start_is_repeated_until_the_orders_know_it() {
    let mut world = world();
    world.step(1_001, orders(1, vec![order("job-1", &[])]));
    assert_eq!(play(&mut world, 3_500), ["1050 job-1 started", "2050 job-1 started", "3050 job-1 started"]);
}

#[test]
fn after_a_restart_the_same_deadline_holds() {
    let asked = Order { started: true, ..order("job-1", &[("muster.sim/runtime", "5s")]) };
    let mut world = World::new(Cluster::default_dev().registrations(), PACES);
    world.step(4_000, orders(9, vec![asked]));
    assert_eq!(play(&mut world, 6_100), ["6050 job-1 Code(0)"]);
}

#[test]
fn one_that_ended_while_nobody_looked_says_both_words_in_order() {
    let mut world = world();
    let acts = world.step(90_000, orders(1, vec![order("job-1", &[("muster.sim/runtime", "1s")])]));
    let said: Vec<_> = acts.iter().filter_map(words).collect();
    assert_eq!(said, ["job-1 started", "job-1 Code(0)"]);
}

#[test]
fn a_stop_ends_it_and_a_later_stop_does_not_change_the_end() {
    let mut world = world();
    let asked = order("job-1", &[("muster.sim/runtime", "1s")]);
    world.step(1_001, orders(1, vec![asked.clone()]));
    play(&mut world, 2_100);
    let stop = Some(Stop { since_ms: 1_500, grace_ms: 30_000, why: "late".to_string() });
    world.step(2_200, orders(2, vec![Order { stop: stop.clone(), ..asked }]));
    assert_eq!(play(&mut world, 3_100), ["3050 job-1 Code(0)"]);
    world.step(3_200, orders(3, vec![Order { stop, ..order("job-2", &[]) }]));
    assert_eq!(play(&mut world, 4_000).len(), 0, "said in the same step");
}

#[test]
fn older_orders_are_ignored() {
    let mut world = world();
    world.step(1_001, orders(5, vec![order("job-1", &[("muster.sim/runtime", "1s")])]));
    world.step(1_002, orders(4, vec![]));
    assert_eq!(play(&mut world, 2_100), ["1050 job-1 started", "2050 job-1 Code(0)"]);
}

#[test]
fn bad_wishes_do_not_start() {
    let mut world = world();
    world.step(1_001, orders(1, vec![order("job-1", &[("muster.sim/runtime", "soon")])]));
    let story = play(&mut world, 1_100);
    assert_eq!(story.len(), 1);
    assert!(story[0].contains("NotStarted") && story[0].contains("`soon` is not a duration"), "{story:?}");
}

#[test]
fn gpus_heat_while_it_runs_and_cool_after() {
    let mut world = world();
    let asked = order("job-1", &[("muster.sim/runtime", "1500ms"), ("muster.sim/temperature", "70")]);
    world.step(1_001, orders(1, vec![asked]));
    let story = play(&mut world, 9_000);
    let readings: Vec<_> = story.iter().filter(|line| line.contains("gpu 1")).collect();
    assert_eq!(readings[0], "1050 gpu 1 Some(70)");
    assert_eq!(readings.last().unwrap().split_once(' ').unwrap().1, "gpu 1 Some(50)");
    assert!(readings.len() >= 3, "{readings:?}");
}

#[test]
fn logs_tell_the_story() {
    let mut world = world();
    world.step(1_001, orders(1, vec![order("job-1", &[("muster.sim/runtime", "2s")])]));
    let mut log = String::new();
    while world.wake_at_ms() < 4_000 {
        for act in world.step(world.wake_at_ms(), Input::Tick) {
            if let Act::Log(line) = act {
                log.push_str(&line.text);
            }
        }
    }
    assert_eq!(
        log,
        "[simulated] job-1 `demo`, attempt 1: rank 0 of 1 on gpu01 with GPUs 1\n\
         [simulated] would run: train\n[simulated] pretends to work for 2s\n\
         [simulated] ended with exit code 0\n"
    );
}

#[test]
fn the_same_inputs_give_the_same_words() {
    let run = || {
        let mut world = world();
        let attempts =
            (1..20).map(|n| order(&format!("job-{n}"), &[("muster.sim/temperature", "80")])).collect();
        world.step(1_001, orders(1, attempts));
        play(&mut world, 30_000)
    };
    assert_eq!(run(), run());
}

#[test]
fn a_clock_put_back_silences_nobody() {
    let mut world = world();
    world.step(900_000, Input::Tick);
    assert_eq!(world.step(5_000, Input::Tick).len(), 4, "both nodes beat and register");
    assert_eq!(world.wake_at_ms(), 6_000);
}

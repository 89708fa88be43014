//! The desk over a machine that is only remembered.

mod memory;

use muster_protocol::agent::{Exit, Order, Orders, Registration, Report, Stop};

use super::standing::{self, MayRun, Standing};
use super::{Desk, Moment};
use crate::machine::{AttemptKey, Machine};
use crate::records::{Claim, ExitRecord, Intent};
use crate::{inventory, sample};
use memory::Memory;

const EVERY_MS: i64 = 1_000;

/// A desk, the time, and what it said besides that it is there.
struct House {
    desk: Desk<Memory>,
    now_ms: i64,
    generation: u64,
    heard: Vec<Report>,
}

impl House {
    fn over(machine: Memory) -> House {
        let desk = Desk::new(registration(), EVERY_MS, machine);
        House { desk, now_ms: 1_000_000, generation: 1, heard: Vec::new() }
    }

    /// The agent ends, and another begins on the same machine.
    fn restarted(self) -> House {
        House { now_ms: self.now_ms, ..House::over(self.desk.into_machine()) }
    }

    fn turn(&mut self, orders: Option<Orders>) {
        let now = Moment { wall_ms: self.now_ms, mono_ms: self.now_ms - 999_000 };
        let heard = &mut self.heard;
        self.desk.turn(now, orders, &mut |report| match report {
            Report::Registered(_) | Report::Heartbeat { .. } => {}
            report => heard.push(report),
        });
    }

    fn order(&mut self, attempts: &[Order]) {
        self.generation += 1;
        self.turn(Some(orders(self.generation, attempts)));
    }

    /// Look ten times a second.
    fn pass_ms(&mut self, ms: i64) {
        for _ in 0..ms / 100 {
            self.now_ms += 100;
            self.turn(None);
        }
    }

    fn memory(&mut self) -> &mut Memory {
        self.desk.machine_mut()
    }

    fn ends(&self) -> Vec<&Exit> {
        let ends = self.heard.iter().filter_map(|report| match report {
            Report::Ended { exit, .. } => Some(exit),
            _ => None,
        });
        ends.collect()
    }
}

fn registration() -> Registration {
    inventory::local("n1", Vec::new()).unwrap()
}

fn orders(generation: u64, attempts: &[Order]) -> Orders {
    Orders {
        node: "n1".to_string(),
        incarnation: String::new(),
        epoch: 1,
        generation,
        attempts: attempts.to_vec(),
        pools: Vec::new(),
    }
}

fn order() -> Order {
    sample::order("job-1", &[])
}

fn key() -> AttemptKey {
    AttemptKey::new("job-1", 1).unwrap()
}

fn stop(since_ms: i64, grace_ms: i64) -> Option<Stop> {
    Some(Stop { since_ms, grace_ms, why: "test".to_string() })
}

fn record(exit: Exit) -> ExitRecord {
    ExitRecord { exit, stopped: false, placed_at_ms: order().placed_at_ms, ended_at_ms: Some(1) }
}

#[test]
fn orders_older_than_the_newest_are_ignored() {
    let mut house = House::over(Memory::default());
    house.turn(Some(orders(7, &[order()])));
    house.turn(Some(orders(6, &[])));
    assert_eq!(house.memory().stop(&key()).unwrap(), None);
    house.turn(Some(orders(8, &[])));
    assert!(house.memory().stop(&key()).unwrap().is_some());
}

#[test]
fn an_order_that_could_lead_outside_is_not_followed() {
    let mut house = House::over(Memory::default());
    house.order(&[sample::order("../job-1", &[]), order()]);
    assert_eq!(house.memory().launches, [key()]);
}

#[test]
fn an_end_is_repeated_until_the_orders_no_longer_name_it() {
    let mut house = House::over(Memory::default());
    house.order(&[order()]);
    house.pass_ms(100);
    house.memory().finish(&key(), record(Exit::Code(3)));
    house.pass_ms(5 * EVERY_MS);
    assert_eq!(house.ends(), [&Exit::Code(3); 5]);
    house.order(&[]);
    house.pass_ms(5 * EVERY_MS);
    assert_eq!(house.ends().len(), 5);
    assert!(house.memory().untidied().is_empty());
}

#[test]
fn an_attempt_that_left_a_trace_is_never_launched_again() {
    let stories: [fn(&mut House); 4] = [
        |house| house.memory().lose_shim(&key()),
        |house| house.memory().finish(&key(), record(Exit::Code(0))),
        |house| {
            house.memory().finish(&key(), record(Exit::Code(0)));
            house.order(&[]); // It is tidied up; then the server asks for it once more.
        },
        |_| {},
    ];
    for story in stories {
        let mut house = House::over(Memory::default());
        house.order(&[order()]);
        story(&mut house);
        for _ in 0..2 {
            house.order(&[order()]);
            house.pass_ms(3_000);
            house = house.restarted();
        }
        assert_eq!(house.memory().launches, [key()]);
    }
}

#[test]
fn a_launch_that_was_cut_off_is_given_up_and_not_repeated() {
    let mut memory = Memory::default();
    let intent = Intent { order: order(), boot_id: memory.boot_id().to_string() };
    memory.begin(&key(), &intent).unwrap();
    let mut house = House::over(memory);
    house.order(&[order()]);
    house.pass_ms(200);
    assert!(matches!(house.ends()[..], [Exit::Unknown(_)]), "{:?}", house.heard);
    assert_eq!(house.memory().claim(&key()).unwrap(), Some(Claim::Abandoned));
    assert!(house.memory().launches.is_empty());
}

#[test]
fn what_cannot_be_written_down_is_not_started() {
    let mut house = House::over(Memory::default());
    house.memory().is_full = true;
    house.order(&[order()]);
    house.memory().is_full = false; // Room comes too late: it was decided, and will be said.
    house.pass_ms(100);
    assert!(matches!(house.ends()[..], [Exit::NotStarted(_)]), "{:?}", house.heard);
    house.order(&[order()]);
    house.pass_ms(3_000);
    assert!(house.memory().launches.is_empty());
}

#[test]
fn a_shim_that_cannot_be_started_is_on_disk_before_it_is_said() {
    let mut house = House::over(Memory::default());
    house.memory().has_no_shim = true;
    house.order(&[order()]);
    assert!(house.heard.is_empty());
    let mut house = house.restarted();
    house.memory().has_no_shim = false;
    house.order(&[order()]);
    assert!(matches!(house.ends()[..], [Exit::NotStarted(_)]), "{:?}", house.heard);
    assert!(house.memory().launches.is_empty());
}

#[test]
fn a_hanging_shim_has_its_grace_from_when_it_could_know() {
    let mut house = House::over(Memory::default());
    house.order(&[order()]);
    house.order(&[Order { stop: stop(house.now_ms, 10_000), ..order() }]);
    house.now_ms += 20_000; // The disk took its time.
    house.turn(None);
    house.pass_ms(14_900);
    assert!(house.memory().killed.is_empty());
    house.pass_ms(100);
    assert_eq!(house.memory().killed, [key()]);
    house.pass_ms(300);
    assert!(matches!(house.ends()[..], [Exit::Unknown(_)]), "{:?}", house.heard);
}

#[test]
fn a_shorter_grace_hurries_and_a_longer_one_changes_nothing() {
    let mut house = House::over(Memory::default());
    house.order(&[order()]);
    let told_at_ms = house.now_ms;
    for grace_ms in [60_000, 2_000, 60_000] {
        house.order(&[Order { stop: stop(told_at_ms, grace_ms), ..order() }]);
        house.pass_ms(100);
    }
    house.pass_ms(6_700);
    assert!(house.memory().killed.is_empty());
    house.pass_ms(300);
    assert_eq!(house.memory().killed, [key()]);
}

#[test]
fn a_grace_that_is_over_is_not_given_again_before_the_shim_has_read_it() {
    let mut house = House::over(Memory::default());
    house.order(&[order()]);
    let now_ms = house.now_ms;
    house.order(&[Order { stop: stop(now_ms - 8_000, 2_000), ..order() }]);
    house.order(&[Order { stop: stop(now_ms, 2_000), ..order() }]);
    assert_eq!(house.memory().stop(&key()).unwrap().map(|stop| stop.grace_ms), Some(0));
}

#[test]
fn an_attempt_of_another_life_makes_room() {
    let mut house = House::over(Memory::default());
    house.order(&[order()]);
    house.memory().finish(&key(), record(Exit::Code(0)));
    house.order(&[]); // Of what it was, only the exit record tells.
    let anew = Order { placed_at_ms: order().placed_at_ms + 1, ..order() };
    let mut house = house.restarted();
    house.order(&[anew]);
    house.pass_ms(100);
    assert_eq!(house.memory().launches, [key(), key()]);
}

#[test]
fn an_attempt_is_traced_from_intent_to_exit() {
    let mut memory = Memory::default();
    let boot_id = memory.boot_id().to_string();
    assert_eq!(standing::of(&mut memory, &key(), &boot_id, MayRun::No).unwrap(), Standing::Absent);
    let intent = Intent { order: order(), boot_id: boot_id.clone() };
    memory.begin(&key(), &intent).unwrap();
    assert_eq!(standing::of(&mut memory, &key(), &boot_id, MayRun::No).unwrap(), Standing::Unclaimed);
    memory.start_shim(&key()).unwrap();
    let shim = memory.shim(&key()).unwrap();
    assert_eq!(standing::of(&mut memory, &key(), &boot_id, MayRun::No).unwrap(), Standing::Alive(shim));
    memory.finish(&key(), record(Exit::Code(3)));
    let ended = Standing::Ended(record(Exit::Code(3)));
    assert_eq!(standing::of(&mut memory, &key(), &boot_id, MayRun::No).unwrap(), ended);
}

#[test]
fn a_shim_of_another_boot_is_gone_whoever_has_its_pid() {
    let mut memory = Memory::default();
    memory.start_shim(&key()).unwrap();
    let why = "the machine was restarted".to_string();
    let lost = Standing::Lost { why, shim: None };
    assert_eq!(standing::of(&mut memory, &key(), "another boot", MayRun::No).unwrap(), lost);
}

#[test]
fn a_damaged_record_is_a_lost_shim() {
    let mut memory = Memory::default();
    memory.start_shim(&key()).unwrap();
    memory.damaged.insert("claim");
    let boot_id = memory.boot_id().to_string();
    let found = standing::of(&mut memory, &key(), &boot_id, MayRun::No).unwrap();
    assert!(matches!(found, Standing::Lost { shim: None, .. }));
}

#[test]
fn an_attempt_with_a_damaged_record_ends_and_says_so() {
    for damaged in ["claim", "intent", "stop"] {
        let mut house = House::over(Memory::default());
        house.order(&[order()]);
        house.memory().damaged.insert(damaged);
        let mut house = house.restarted();
        house.memory().lose_shim(&key());
        house.order(&[order()]);
        house.pass_ms(300);
        assert!(matches!(house.ends()[..], [Exit::Unknown(_)]), "{damaged}: {:?}", house.heard);
    }
}

#[test]
fn orders_for_a_former_incarnation_are_refused_and_make_it_register() {
    let registration = Registration { incarnation: "b".to_string(), ..registration() };
    let mut desk = Desk::new(registration, EVERY_MS, Memory::default());
    let mut heard = Vec::new();
    let mut turn = |ms: i64, incarnation: &str, generation: u64| {
        let orders = Orders { incarnation: incarnation.to_string(), ..orders(generation, &[order()]) };
        let now = Moment { wall_ms: ms, mono_ms: ms };
        desk.turn(now, Some(orders), &mut |report| heard.push(report));
        desk.machine().launches.len()
    };
    assert_eq!(turn(1, "a", 900), 0, "it was meant for the agent before this one");
    assert_eq!(turn(2, "b", 7), 1, "an order for others is not the newest");
    assert_eq!(turn(EVERY_MS + 2, "a", 900), 1);
    turn(2 * EVERY_MS + 2, "b", 7);
    let registered = heard.iter().filter(|report| matches!(report, Report::Registered(_))).count();
    assert_eq!(registered, 2, "at its start, and when the server spoke to another: {heard:?}");
}

#[test]
fn an_end_is_told_with_the_time_since_then() {
    let mut house = House::over(Memory::default());
    house.order(&[order()]);
    house.pass_ms(100);
    let ended_at_ms = Some(house.now_ms - 40);
    house.memory().finish(&key(), ExitRecord { ended_at_ms, ..record(Exit::Code(0)) });
    house.now_ms += 25_000; // The agent, or its server, was away.
    house.heard.clear();
    house.turn(None);
    let said = house.heard.iter().find_map(|report| match report {
        Report::Ended { ended_ms_ago, .. } => Some(*ended_ms_ago),
        _ => None,
    });
    assert_eq!(said, Some(Some(25_040)));
}

/// Somebody deletes the folders of the attempts under a running job.
#[test]
fn an_attempt_whose_records_are_gone_is_found_by_its_processes() {
    for started in [false, true] {
        let mut house = House::over(Memory::default());
        house.order(&[order()]);
        house.memory().lose_records();
        house.pass_ms(300);
        let mut house = house.restarted();
        house.order(&[Order { started, ..order() }]);
        house.pass_ms(3_000);
        assert_eq!(house.memory().launches, [key()], "it is not launched again");
        assert!(house.ends().is_empty() && house.memory().killed.is_empty(), "it runs on: {:?}", house.heard);
        house.memory().finish(&key(), record(Exit::Code(5)));
        house.pass_ms(300);
        assert_eq!(house.ends()[0], &Exit::Code(5));
    }
}

/// What is left of it is killed before it is said to be over.
#[test]
fn an_attempt_whose_records_and_shim_are_gone_is_over_when_nothing_is_left() {
    let mut house = House::over(Memory::default());
    house.order(&[order()]);
    house.memory().lose_shim(&key());
    house.memory().lose_records();
    let mut house = house.restarted();
    house.order(&[Order { started: true, ..order() }]);
    assert_eq!((house.ends().len(), &house.memory().killed[..]), (0, &[key()][..]));
    house.pass_ms(300);
    assert!(matches!(house.ends()[..], [Exit::Unknown(_), ..]), "{:?}", house.heard);
}

/// Its agent goes on: it remembers what it has launched.
#[test]
fn records_that_vanish_under_an_agent_cause_no_second_launch() {
    let mut house = House::over(Memory::default());
    house.order(&[order()]);
    house.memory().lose_shim(&key());
    house.memory().lose_records();
    house.pass_ms(3_000);
    assert_eq!(house.memory().launches, [key()]);
    assert!(matches!(house.ends()[..], [Exit::Unknown(_), ..]), "{:?}", house.heard);
}

#[test]
fn processes_that_nobody_asks_for_end_although_their_records_are_gone() {
    let mut house = House::over(Memory::default());
    house.order(&[order()]);
    house.memory().lose_records();
    let mut house = house.restarted();
    house.order(&[]);
    assert!(house.memory().stop(&key()).unwrap().is_some());
}

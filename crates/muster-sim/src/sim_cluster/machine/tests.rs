//! A simulated shim keeps its self-fence deadline by the clock of its machine.

use muster_agent::Reconciler;
use muster_agent::clock::ClockReading;
use muster_protocol::agent::{Orders, Report, RunSpec, TaskOrder};

use super::super::clock::SimTime;
use super::*;

const WITHIN_MS: i64 = 20_000;
const HEARTBEAT_MS: i64 = 1_000;

/// One machine with an agent, without a network.
struct Harness {
    time: SimTime,
    clock: MachineClock,
    machine: SimMachine,
    agent: Option<Reconciler<AgentMachine>>,
    events: Vec<(i64, MachineEvent)>,
    /// A leader acknowledges each heartbeat at once.
    is_connected: bool,
    reports: Vec<Report>,
    observations: Vec<(i64, MachineObservation)>,
}

impl Harness {
    /// The seed is chosen so that the task runs longer than the test.
    fn new() -> Harness {
        let time = SimTime::default();
        let clock = MachineClock::new(&time);
        let seed = (0..).find(|seed| TaskBehaviour::drawn_for(*seed, &order(), 0).runs_ms > 100_000).unwrap_or(0);
        let machine = SimMachine::new(seed, &clock);
        let agent = Some(Reconciler::new(registration("n0", 1), HEARTBEAT_MS, machine.for_agent(1)));
        let (events, reports, observations) = Default::default();
        Harness { time, clock, machine, agent, events, is_connected: true, reports, observations }
    }

    fn reconcile(&mut self, orders: Option<Orders>) {
        let now = ClockReading { wall_ms: self.clock.wall_ms(), monotonic_ms: self.clock.monotonic_ms() };
        let Some(agent) = &mut self.agent else { return };
        let mut reports = Vec::new();
        agent.reconcile(now, orders, &mut |report| reports.push(report));
        for report in &reports {
            if let (Report::Heartbeat { sent_at_boot_ms, .. }, true) = (report, self.is_connected) {
                agent.acknowledge_heartbeat(*sent_at_boot_ms);
            }
        }
        self.reports.extend(reports);
    }

    fn advance_ms(&mut self, ms: i64) {
        for _ in 0..ms / 10 {
            self.time.set(self.time.ms() + 10);
            let pending = self.machine.take_pending_events();
            self.events.extend(pending.into_iter().map(|(delay_ms, event)| (self.time.ms() + delay_ms, event)));
            let due: Vec<_> = self.events.extract_if(.., |(at_ms, _)| *at_ms <= self.time.ms()).collect();
            due.into_iter().for_each(|(_, event)| self.machine.handle_event(event));
            self.reconcile(None);
            let observed = self.machine.take_observations().into_iter().map(|seen| (self.clock.monotonic_ms(), seen));
            self.observations.extend(observed);
        }
    }

    /// When the tasks were gone, by the clock of the machine.
    fn gone_at_ms(&self) -> Option<i64> {
        let gone = |seen: &MachineObservation| matches!(seen, MachineObservation::TasksGone { .. });
        self.observations.iter().find(|(_, seen)| gone(seen)).map(|(at_ms, _)| *at_ms)
    }

    fn newest_acknowledged_ms(&self) -> i64 {
        let sent = self.reports.iter().filter_map(|report| match report {
            Report::Heartbeat { sent_at_boot_ms, .. } => Some(*sent_at_boot_ms),
            _ => None,
        });
        sent.max().unwrap_or_default()
    }
}

fn order() -> AttemptOrder {
    let task = TaskOrder {
        rank: 0,
        group: String::new(),
        group_rank: 0,
        gpus: vec![0],
        share: None,
        numa_nodes: Vec::new(),
        cpus: 1,
        memory_mib: 1,
    };
    AttemptOrder {
        job: "job-1".to_string(),
        attempt: 1,
        placed_at_ms: 1,
        started: false,
        tasks: vec![task],
        gang_size: 1,
        nodes: Vec::new(),
        node_rank: 0,
        master_address: String::new(),
        run: RunSpec::default(),
        name: String::new(),
        tenant: String::new(),
        user: String::new(),
        annotations: BTreeMap::new(),
        gpu_milliwatts_max: None,
        self_fence_ms: Some(WITHIN_MS),
        signal: None,
        stop: None,
    }
}

fn orders() -> Orders {
    let (node, incarnation) = ("n0".to_string(), String::new());
    Orders {
        node,
        incarnation,
        epoch: 1,
        generation: 1,
        attempts: vec![order()],
        nonce: 0,
        pools: Vec::new(),
        reboot_from: None,
    }
}

/// A running attempt, renewed until now. Returns when the newest acknowledged heartbeat was sent.
fn cut_off_after_two_deadlines(harness: &mut Harness) -> i64 {
    harness.reconcile(None);
    harness.reconcile(Some(orders()));
    harness.advance_ms(2 * WITHIN_MS);
    assert_eq!(harness.gone_at_ms(), None, "renewals arrive");
    harness.is_connected = false;
    harness.newest_acknowledged_ms()
}

fn exit_of(harness: &Harness) -> Option<Exit> {
    let state = harness.machine.0.borrow();
    state.attempt_dirs.values().next().and_then(|dir| dir.exit.as_ref()).map(|record| record.exit.clone())
}

#[test]
fn a_simulated_shim_kills_its_tasks_at_the_deadline() {
    let mut harness = Harness::new();
    let acknowledged_ms = cut_off_after_two_deadlines(&mut harness);
    harness.advance_ms(2 * WITHIN_MS);
    let gone_at_ms = harness.gone_at_ms().expect("the tasks are killed");
    let deadline_ms = acknowledged_ms + WITHIN_MS;
    assert!((deadline_ms - 2 * HEARTBEAT_MS..deadline_ms + 500).contains(&gone_at_ms), "{gone_at_ms}, {deadline_ms}");
    assert!(matches!(exit_of(&harness), Some(Exit::Unknown(why)) if why.starts_with("self-fenced")));
}

#[test]
fn a_dead_agent_cannot_extend_the_life_of_an_attempt() {
    let mut harness = Harness::new();
    let acknowledged_ms = cut_off_after_two_deadlines(&mut harness);
    harness.agent = None;
    harness.clock.set_wall_offset_ms(-3_600_000); // The wall clock does not matter.
    harness.advance_ms(2 * WITHIN_MS);
    let gone_at_ms = harness.gone_at_ms().expect("the tasks are killed");
    assert!(gone_at_ms <= acknowledged_ms + WITHIN_MS + 500, "{gone_at_ms}");
}

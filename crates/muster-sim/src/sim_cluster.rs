//! A whole cluster on one thread: servers, database, agents, machines, network, users and operators, all from one seed.
//!
//! The code of servers and agents is the product's own. What is played here is what surrounds them: time, chance, disks
//! and processes, and messages that are late, lost or doubled. One thing happens at a time, and after each the laws are
//! looked at. When a story is told, everything is healed, and the cluster must come to rest.

mod actions;
mod clock;
mod healing;
mod laws;
mod machine;
mod network;
mod paused;
mod server;
#[cfg(test)]
mod tests;
mod clients;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use muster_agent::reconciler::{Reconciler, ClockReading};
use muster_core::objects::settings::Settings;
use muster_core::{Answer, NodeId, Timestamp};
use muster_protocol::agent::{Orders, Registration, Report};
use muster_server::cluster::CommandError;
use muster_store::Entry;
use muster_store::memory::{MemoryConnection, SimulatedFault, MemoryDatabase};

use crate::random::Random;
use crate::fault_schedule::FaultSchedule;
use clock::{MachineClock, SimTime};
use laws::{BrokenLaw, Laws};
use machine::{MachineEvent, SimMachine, AgentMachine};
use network::NetworkConditions;
use paused::Pausable;
use server::{ServerProcess, EngineStep};
use clients::Clients;

/// How often nodes say that they are there.
const HEARTBEAT_INTERVAL_MS: i64 = 2_000;
/// How long the cluster may take to come to rest once all is healed.
const REST_TIMEOUT_MS: i64 = 3_600_000;

/// What came of a story that went well.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunSummary {
    /// Things that happened, with those after the healing.
    pub steps: u64,
    /// Entries of the journal.
    pub entries: u64,
    /// Jobs that were accepted.
    pub jobs: u64,
    /// Simulated time.
    pub simulated_ms: i64,
    /// How often someone began to lead.
    pub leaderships: u64,
    /// How many events of each kind there were.
    pub events: BTreeMap<&'static str, u64>,
}

/// A story that ended badly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFailure {
    /// Which law.
    pub law: String,
    /// At which step.
    pub step: u64,
}

/// Tell a story to its end.
pub fn run_schedule(story: &FaultSchedule) -> Result<RunSummary, RunFailure> {
    let mut world = SimCluster::new(story);
    world.run_catching_panics()
}

/// Tell a story and write down what happens.
pub fn run_schedule_traced(story: &FaultSchedule) -> (Result<RunSummary, RunFailure>, Vec<String>) {
    let mut world = SimCluster::new(story);
    world.trace = Some(Vec::new());
    (world.run_catching_panics(), world.trace.unwrap_or_default())
}

/// Tell a story and give away its journal.
pub fn journal_of_schedule(story: &FaultSchedule) -> Result<Vec<Entry>, RunFailure> {
    let mut world = SimCluster::new(story);
    let outcome = world.run_until_rest().and_then(|()| world.database.entries().map_err(|fault| fault.to_string()));
    outcome.map_err(|law| RunFailure { law, step: world.steps })
}

/// Something that will happen.
#[derive(Debug)]
enum SimEvent {
    Engine(usize),
    Planner(usize),
    Dispatch(usize),
    HeartbeatCheck(usize),
    WriteSavepoint(usize),
    Agent(usize),
    Machine(usize, u64, MachineEvent),
    ToServer(usize, ServerMessage),
    ToNode(usize, Box<Orders>),
    ToUser(u64, Result<Answer, CommandError>),
    RetryRequest(u64),
    ApplyAction(usize),
    RestartServer(usize),
    RestartAgent(usize),
    BootNode(usize),
    ReconnectDatabase(usize),
    Resume(Pausable),
    CleanUp,
}

#[derive(Debug)]
enum ServerMessage {
    Report(Box<Report>),
    Request(u64),
}

/// Where a server process runs, or will again.
struct ServerHost {
    name: String,
    clock: MachineClock,
    connection: MemoryConnection,
    process: Option<ServerProcess>,
    paused_until_ms: i64,
    /// When each of its threads wakes next; other wakings are out of date.
    thread_wakes_at_ms: BTreeMap<&'static str, i64>,
}

/// A node and its agent.
struct SimNode {
    registration: Registration,
    clock: MachineClock,
    host: SimMachine,
    is_powered_on: bool,
    agent: Option<Reconciler<AgentMachine>>,
    agent_starts: u64,
    agent_wakes_at_ms: i64,
    /// The agent does nothing until then.
    agent_paused_until_ms: i64,
    /// Nothing on it does.
    frozen_until_ms: i64,
}

impl SimNode {
    /// It is on, and its agent has not begun.
    fn new(registration: Registration, seed: u64, clock: MachineClock) -> SimNode {
        SimNode {
            registration,
            host: SimMachine::new(seed, &clock),
            clock,
            is_powered_on: true,
            agent: None,
            agent_starts: 0,
            agent_wakes_at_ms: 0,
            agent_paused_until_ms: 0,
            frozen_until_ms: 0,
        }
    }
}

struct SimCluster<'a> {
    schedule: &'a FaultSchedule,
    time: SimTime,
    random: Random,
    event_queue: BTreeMap<(i64, u64), SimEvent>,
    events_queued: u64,
    /// What would have happened to those who stand still.
    deferred_events: BTreeMap<Pausable, Vec<SimEvent>>,
    database: MemoryDatabase,
    servers: Vec<ServerHost>,
    nodes: Vec<SimNode>,
    node_names: Vec<String>,
    network: NetworkConditions,
    /// Until when a server and a node cannot reach each other.
    partitions: BTreeMap<(usize, usize), i64>,
    clients: Clients,
    settings: Settings,
    laws: Laws,
    steps: u64,
    is_healed: bool,
    /// What happened, in words, if someone wants to read it.
    trace: Option<Vec<String>>,
}

impl<'a> SimCluster<'a> {
    fn new(story: &'a FaultSchedule) -> SimCluster<'a> {
        let sun = SimTime::default();
        let mut random = Random(story.seed ^ 0x5eed);
        let database = MemoryDatabase::default();
        let servers = (0..story.server_count).map(|index| ServerHost {
            name: format!("server-{index}"),
            clock: MachineClock::new(&sun),
            connection: database.connect(),
            process: None,
            paused_until_ms: 0,
            thread_wakes_at_ms: BTreeMap::new(),
        });
        let servers = servers.collect();
        let names: Vec<String> = (0..story.node_gpus.len()).map(|index| format!("n{index}")).collect();
        let nodes = names.iter().zip(&story.node_gpus).map(|(name, gpus)| {
            SimNode::new(machine::registration(name, *gpus), random.next_u64(), MachineClock::new(&sun))
        });
        let nodes = nodes.collect();
        let settings = Settings {
            stop_grace_ms: 2_000,
            preemption_cooldown_ms: 5_000,
            claim_ms: 10_000,
            max_wait_ms: 120_000,
            cooling_ms: 10_000,
            ..Settings::default()
        };
        let weather = NetworkConditions { until_ms: 0, loss_per_mille: 0, delay_ms_max: 20 };
        let mut world = SimCluster {
            schedule: story,
            time: sun,
            random,
            event_queue: BTreeMap::new(),
            events_queued: 0,
            deferred_events: BTreeMap::new(),
            database,
            servers,
            nodes,
            node_names: names,
            network: weather,
            partitions: BTreeMap::new(),
            clients: Clients::new(story),
            settings,
            laws: Laws::new(!story.actions.iter().any(|(_, act)| act.disturbs_clocks())),
            steps: 0,
            is_healed: false,
            trace: None,
        };
        (0..world.servers.len()).for_each(|server| world.start_server(server));
        (0..world.nodes.len()).for_each(|node| world.start_agent(node));
        for index in 0..story.actions.len() {
            world.schedule_at(story.actions[index].0, SimEvent::ApplyAction(index));
        }
        world
    }

    fn summary(&self) -> RunSummary {
        let jobs = self.laws.expected_state().next_job - 1;
        let (leaders, events) = self.laws.leaderships_and_events();
        let entries = self.laws.published_count();
        RunSummary { steps: self.steps, entries, jobs, simulated_ms: self.time.ms(), leaderships: leaders, events }
    }

    /// A panic is a failure like any other.
    fn run_catching_panics(&mut self) -> Result<RunSummary, RunFailure> {
        let outcome = catch_unwind(AssertUnwindSafe(|| self.run_until_rest()));
        let outcome = outcome.unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
            Err(format!("panicked: {}", text.unwrap_or_default()))
        });
        outcome.map(|()| self.summary()).map_err(|law| RunFailure { law, step: self.steps })
    }

    fn run_until_rest(&mut self) -> Result<(), BrokenLaw> {
        while self.steps < self.schedule.steps {
            self.step()?;
        }
        self.heal();
        let until = self.time.ms() + REST_TIMEOUT_MS;
        while self.time.ms() < until {
            self.step()?;
            if self.laws.check_rest().is_ok() && self.clients.all_answered() && self.uncleaned_node().is_none() {
                return self.check_final_state();
            }
        }
        self.laws.check_rest()?;
        if let Some(node) = self.uncleaned_node() {
            return Err(format!("{node} was never tidied up"));
        }
        Err("somebody was never answered".to_string())
    }

    /// A node on which something of an attempt is left.
    fn uncleaned_node(&self) -> Option<&str> {
        let node = self.nodes.iter().position(|place| !place.host.is_clean())?;
        self.node_names.get(node).map(String::as_str)
    }

    /// At rest: what the leader believes is what the journal says.
    fn check_final_state(&mut self) -> Result<(), BrokenLaw> {
        let leader = self
            .servers
            .iter()
            .filter_map(|place| place.process.as_ref()?.state())
            .max_by_key(|state| state.seq);
        leader.map_or(Ok(()), |state| self.laws.check_leader_state(state))
    }

    fn step(&mut self) -> Result<(), BrokenLaw> {
        let Some(((at, _), coming)) = self.event_queue.pop_first() else {
            return Err("nothing will ever happen again".to_string());
        };
        self.time.set(at);
        self.database.set_clock_ms(clock::SIM_START_UNIX_MS + at);
        self.handle_event(coming)?;
        self.collect_machine_events()
    }

    // ---- time

    fn now(&self) -> i64 {
        self.time.ms()
    }

    fn schedule_at(&mut self, ms: i64, coming: SimEvent) {
        self.events_queued += 1;
        self.event_queue.insert((ms.max(self.now()), self.events_queued), coming);
    }

    fn schedule_after(&mut self, from_ms: i64, to_ms: i64, coming: SimEvent) {
        let ms = self.now() + self.random.between(from_ms, to_ms);
        self.schedule_at(ms, coming);
    }

    fn handle_event(&mut self, coming: SimEvent) -> Result<(), BrokenLaw> {
        let Some(coming) = self.defer_if_paused(coming) else { return Ok(()) };
        if !self.is_current(&coming) {
            return Ok(());
        }
        self.steps += 1;
        self.trace_line(|| format!("{coming:?}"));
        match coming {
            SimEvent::Engine(server) => return self.run_engine(server),
            SimEvent::Planner(server) => self.run_planner(server),
            SimEvent::Dispatch(server) => self.run_dispatch(server),
            SimEvent::HeartbeatCheck(server) => self.check_heartbeats(server),
            SimEvent::WriteSavepoint(server) => self.write_savepoint(server),
            SimEvent::Agent(node) => self.run_agent(node, None),
            SimEvent::Machine(node, _, due) => self.nodes[node].host.handle_event(due),
            SimEvent::ToServer(server, message) => self.deliver_to_server(server, message),
            SimEvent::ToNode(node, orders) => self.run_agent(node, Some(*orders)),
            SimEvent::ToUser(letter, answer) => return self.deliver_answer(letter, answer),
            SimEvent::RetryRequest(letter) => self.retry_request(letter),
            SimEvent::ApplyAction(index) => self.apply_action(index),
            SimEvent::RestartServer(server) => self.start_server(server),
            SimEvent::RestartAgent(node) => self.start_agent(node),
            SimEvent::BootNode(node) => self.start_node(node),
            SimEvent::ReconnectDatabase(server) => self.servers[server].connection.inject_fault(SimulatedFault::None),
            SimEvent::Resume(who) => self.resume(who),
            SimEvent::CleanUp => self.clean_up(),
        }
        Ok(())
    }

    /// Whether it concerns someone who still lives, and is not out of date.
    fn is_current(&self, coming: &SimEvent) -> bool {
        let awake = |server: usize, thread: &str| {
            let place = &self.servers[server];
            place.process.is_some() && place.thread_wakes_at_ms.get(thread).is_some_and(|at| *at <= self.now())
        };
        match coming {
            SimEvent::Engine(server) => awake(*server, "engine"),
            SimEvent::Planner(server) => awake(*server, "planner"),
            SimEvent::Dispatch(server) => awake(*server, "dispatch"),
            SimEvent::HeartbeatCheck(server) => awake(*server, "silence"),
            SimEvent::WriteSavepoint(server) => awake(*server, "save"),
            SimEvent::Agent(node) => {
                self.nodes[*node].agent.is_some() && self.nodes[*node].agent_wakes_at_ms <= self.now()
            }
            SimEvent::Machine(node, boot, _) => self.nodes[*node].host.boot() == *boot,
            SimEvent::ToServer(server, _) => self.servers[*server].process.is_some(),
            SimEvent::ToNode(node, _) => self.nodes[*node].agent.is_some(),
            _ => true,
        }
    }

    /// Wake a thread of a server between two moments from now, unless it wakes sooner anyway.
    fn wake_thread(&mut self, server: usize, thread: &'static str, from_ms: i64, to_ms: i64) {
        let sleeps_ms = self.random.between(from_ms, to_ms);
        let at = self.now() + self.servers[server].clock.true_duration_ms(sleeps_ms);
        let wakes = &mut self.servers[server].thread_wakes_at_ms;
        if wakes.get(thread).is_some_and(|known| *known > self.time.ms() && *known <= at) {
            return;
        }
        wakes.insert(thread, at);
        let coming = match thread {
            "engine" => SimEvent::Engine(server),
            "planner" => SimEvent::Planner(server),
            "dispatch" => SimEvent::Dispatch(server),
            "silence" => SimEvent::HeartbeatCheck(server),
            _ => SimEvent::WriteSavepoint(server),
        };
        self.schedule_at(at, coming);
    }

    fn trace_line(&mut self, words: impl FnOnce() -> String) {
        let (step, ms) = (self.steps, self.time.ms());
        if let Some(diary) = &mut self.trace {
            diary.push(format!("{step:>6} {:>10.3} s  {}", ms as f64 / 1_000.0, words()));
        }
    }

    // ---- servers

    fn start_server(&mut self, server: usize) {
        let place = &mut self.servers[server];
        if place.process.is_none() {
            place.process = Some(ServerProcess::new(&place.name, &place.clock, place.connection.clone()));
            place.thread_wakes_at_ms.clear();
            place.paused_until_ms = 0;
            place.clock.unfreeze();
            self.deferred_events.remove(&Pausable::Server(server));
            self.wake_thread(server, "engine", 1, 200);
            self.wake_thread(server, "planner", 50, 500);
            self.wake_thread(server, "silence", 1_000, 1_000);
            self.wake_thread(server, "save", 3_000, 30_000);
        }
    }

    fn run_engine(&mut self, server: usize) -> Result<(), BrokenLaw> {
        let settings = self.settings.clone();
        let Some(process) = &mut self.servers[server].process else { return Ok(()) };
        let turned = process.run_engine(&settings).map_err(|fault| format!("a server ends: {fault}"))?;
        match turned {
            EngineStep::Nothing => {}
            EngineStep::BecameLeader(batch) => {
                let durable = self.database.entries().map_err(|fault| format!("unreadable: {fault}"))?;
                self.laws.check_leader_journal(&durable, &self.node_names)?;
                drop(batch);
                self.check_leader_state(server)?;
                self.wake_thread(server, "dispatch", 1, 100);
            }
            EngineStep::Persisted(batch) => {
                for entry in &batch.entries {
                    self.trace_line(|| format!("        {} {:?}", entry.seq, entry.event));
                }
                self.laws.publish(&batch, &self.node_names)?;
                self.laws.check_state_laws()?;
                if self.laws.published_count().is_multiple_of(8) {
                    self.check_leader_state(server)?;
                }
                self.wake_thread(server, "dispatch", 1, 100);
                self.wake_thread(server, "planner", 20, 600);
            }
        }
        self.send_answers(server);
        self.wake_thread(server, "engine", 200, 900);
        Ok(())
    }

    fn check_leader_state(&self, server: usize) -> Result<(), BrokenLaw> {
        let state = self.servers[server].process.as_ref().and_then(ServerProcess::state);
        state.map_or(Ok(()), |state| self.laws.check_leader_state(state))
    }

    fn send_answers(&mut self, server: usize) {
        let Some(process) = &mut self.servers[server].process else { return };
        for (letter, answer) in process.take_answers() {
            self.send_message(None, SimEvent::ToUser(letter, answer));
        }
    }

    fn run_planner(&mut self, server: usize) {
        if let Some(process) = &mut self.servers[server].process {
            process.run_planner();
        }
        self.wake_thread(server, "engine", 1, 30);
        self.wake_thread(server, "planner", 700, 2_500);
    }

    fn run_dispatch(&mut self, server: usize) {
        let Some(process) = &mut self.servers[server].process else { return };
        for (node, orders) in process.run_dispatch() {
            self.send_orders(server, &node, orders);
        }
    }

    fn send_orders(&mut self, server: usize, node: &NodeId, orders: Orders) {
        if let Some(index) = self.node_names.iter().position(|name| name == node.as_str()) {
            self.send_message(Some((server, index)), SimEvent::ToNode(index, Box::new(orders)));
        }
    }

    fn check_heartbeats(&mut self, server: usize) {
        if let Some(process) = &mut self.servers[server].process {
            process.check_heartbeats();
        }
        self.wake_thread(server, "engine", 1, 30);
        self.wake_thread(server, "silence", 1_000, 1_000);
    }

    fn write_savepoint(&mut self, server: usize) {
        if let Some(process) = &self.servers[server].process {
            process.write_savepoint();
        }
        self.wake_thread(server, "save", 3_000, 30_000);
    }

    fn deliver_to_server(&mut self, server: usize, message: ServerMessage) {
        let Some(process) = &mut self.servers[server].process else { return };
        match message {
            ServerMessage::Report(report) => {
                let node = match &*report {
                    Report::Heartbeat { node } => node.parse::<NodeId>().ok(),
                    Report::Registered(registration) => registration.node.parse::<NodeId>().ok(),
                    _ => None,
                };
                process.receive_report(*report);
                // Whoever says that it is there is told what it owes: orders may have been lost.
                let orders = node.and_then(|node| Some((node.clone(), process.orders(&node)?)));
                if let Some((node, orders)) = orders {
                    self.send_orders(server, &node, orders);
                }
            }
            ServerMessage::Request(letter) => {
                if let Some((by, command)) = self.clients.request(letter) {
                    process.receive_request(letter, by, command);
                }
            }
        }
        self.wake_thread(server, "engine", 1, 30);
    }

    // ---- nodes

    fn start_node(&mut self, node: usize) {
        let place = &mut self.nodes[node];
        if !place.is_powered_on {
            place.is_powered_on = true;
            place.frozen_until_ms = 0;
            place.clock.unfreeze();
            self.deferred_events.remove(&Pausable::Machine(node));
        }
        self.start_agent(node);
    }

    fn start_agent(&mut self, node: usize) {
        let place = &mut self.nodes[node];
        if place.is_powered_on && place.agent.is_none() {
            place.agent_starts += 1;
            place.agent_paused_until_ms = 0;
            self.deferred_events.remove(&Pausable::Agent(node));
            let machine = place.host.for_agent(place.agent_starts);
            let incarnation = format!("{}-{}", place.registration.node, place.agent_starts);
            let registration = Registration { incarnation, ..place.registration.clone() };
            place.agent = Some(Reconciler::new(registration, HEARTBEAT_INTERVAL_MS, machine));
            place.agent_wakes_at_ms = self.time.ms();
            self.schedule_at(self.now(), SimEvent::Agent(node));
        }
    }

    fn run_agent(&mut self, node: usize, orders: Option<Orders>) {
        let place = &mut self.nodes[node];
        let Some(desk) = &mut place.agent else { return };
        let wall_ms = place.clock.wall_ms();
        let moment = ClockReading { wall_ms, monotonic_ms: place.clock.monotonic_ms() };
        let mut said = Vec::new();
        let wakes_ms = desk.reconcile(moment, orders, &mut |report| said.push(report));
        // An agent oversleeps a little, and never sleeps longer than its driver lets it.
        let sleeps_ms = (wakes_ms - wall_ms).clamp(1, 1_000) + self.random.between(0, 900);
        let sleeps_ms = self.nodes[node].clock.true_duration_ms(sleeps_ms);
        self.nodes[node].agent_wakes_at_ms = self.now() + sleeps_ms;
        self.schedule_at(self.now() + sleeps_ms, SimEvent::Agent(node));
        for report in said {
            for server in 0..self.servers.len() {
                let message = ServerMessage::Report(Box::new(report.clone()));
                self.send_message(Some((server, node)), SimEvent::ToServer(server, message));
            }
        }
    }

    /// What was begun on machines takes its course, and what happened there is judged.
    fn collect_machine_events(&mut self) -> Result<(), BrokenLaw> {
        for node in 0..self.nodes.len() {
            let host = self.nodes[node].host.clone();
            for (delay_ms, due) in host.take_pending_events() {
                self.schedule_at(self.now() + delay_ms, SimEvent::Machine(node, host.boot(), due));
            }
            let now = Timestamp(clock::SIM_START_UNIX_MS + self.now());
            for seen in host.take_observations() {
                self.laws.observe(node, seen, now)?;
            }
        }
        Ok(())
    }

    // ---- users

    fn send_request(&mut self, letter: u64) {
        let server = self.random.below(self.servers.len() as u64) as usize;
        self.send_message(None, SimEvent::ToServer(server, ServerMessage::Request(letter)));
        self.schedule_after(2_000, 6_000, SimEvent::RetryRequest(letter));
    }

    fn retry_request(&mut self, letter: u64) {
        if self.clients.take_retry(letter) {
            self.send_request(letter);
        }
    }

    fn deliver_answer(&mut self, letter: u64, answer: Result<Answer, CommandError>) -> Result<(), BrokenLaw> {
        if let Ok(Answer::Job(job)) = &answer {
            self.laws.check_answer(letter, *job)?;
        }
        self.clients.receive_answer(letter, &answer);
        Ok(())
    }
}

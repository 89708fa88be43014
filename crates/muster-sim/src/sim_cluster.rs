//! The fault simulator: a whole cluster on one thread (servers, database, agents, machines, network, users and
//! operators), from one seed.
//!
//! Servers and agents run production code, with both sides of the agent link. Clocks, randomness, disks, processes and
//! the network are simulated; connections break, and requests of users can be delayed, lost or duplicated. The laws are checked after every event. At the end of a schedule
//! all faults are removed and the cluster must come to rest.

mod actions;
mod agent_link;
mod certificate;
mod clients;
mod clock;
mod enrolment;
mod gang_starts;
mod healing;
mod laws;
mod machine;
mod network;
mod paused;
mod server;
mod server_link;
#[cfg(test)]
mod tests;
mod transport;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use muster_core::objects::settings::Settings;
use muster_core::{Answer, Timestamp};
use muster_protocol::agent::Registration;
use muster_server::cluster::CommandError;
use muster_store::Entry;
use muster_store::memory::{MemoryConnection, MemoryDatabase, SimulatedFault};

use crate::fault_schedule::FaultSchedule;
use crate::random::Random;
use agent_link::AgentProcess;
use clients::Clients;
use clock::{MachineClock, SimTime};
use enrolment::{Call, CallAnswer, JoinProgress, NodeIdentity};
use laws::{BrokenLaw, Laws};
use machine::{MachineEvent, MachineObservation, SimMachine};
use network::NetworkConditions;
use paused::Pausable;
use server::{EngineStep, ServerProcess};
use transport::{EndCause, SimConnection};

const HEARTBEAT_INTERVAL_MS: i64 = 2_000;
/// The bounds on the start of gangs, by seed.
const GANG_START_TIMEOUTS_MS: [i64; 3] = [4_000, 20_000, 300_000];
/// The longest time from the end of all faults until the cluster is at rest.
const REST_TIMEOUT_MS: i64 = 3_600_000;

/// The counts of a run that broke no law.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunSummary {
    /// Simulated events, including those after the end of all faults.
    pub steps: u64,
    /// Journal entries.
    pub entries: u64,
    /// Accepted jobs.
    pub jobs: u64,
    pub simulated_ms: i64,
    /// Leader terms.
    pub leaderships: u64,
    /// The number of journal events of each kind.
    pub events: BTreeMap<&'static str, u64>,
}

/// A run that broke a law.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFailure {
    pub law: String,
    pub step: u64,
}

/// Runs a schedule until the cluster is at rest.
pub fn run_schedule(schedule: &FaultSchedule) -> Result<RunSummary, RunFailure> {
    let mut cluster = SimCluster::new(schedule);
    cluster.run_catching_panics()
}

/// Runs a schedule and returns a line for each simulated event.
pub fn run_schedule_traced(schedule: &FaultSchedule) -> (Result<RunSummary, RunFailure>, Vec<String>) {
    let mut cluster = SimCluster::new(schedule);
    cluster.trace = Some(Vec::new());
    (cluster.run_catching_panics(), cluster.trace.unwrap_or_default())
}

/// Runs a schedule and returns its journal.
pub fn journal_of_schedule(schedule: &FaultSchedule) -> Result<Vec<Entry>, RunFailure> {
    let mut cluster = SimCluster::new(schedule);
    let outcome = cluster.run_until_rest().and_then(|()| cluster.database.entries().map_err(|fault| fault.to_string()));
    outcome.map_err(|law| RunFailure { law, step: cluster.steps })
}

/// A scheduled event of the simulation.
#[derive(Debug)]
enum SimEvent {
    Engine(usize),
    Planner(usize),
    Dispatch(usize),
    HeartbeatCheck(usize),
    WriteSavepoint(usize),
    Agent(usize),
    Machine(usize, u64, MachineEvent),
    /// The request of a user.
    ToServer(usize, u64),
    /// The link of an agent has something to do.
    Link(usize),
    /// A server checks the connections of agents.
    LinkCheck(usize),
    /// A node asks a server for the connection with this number.
    ConnectArrives(usize, usize, u64),
    Connected(usize, u64),
    FrameToServer(usize, u64),
    FrameToAgent(usize, u64),
    AgentSeesEnd(usize, u64),
    ServerSeesEnd(usize, u64),
    CallArrives(usize, u64),
    CallAnswered(u64, CallAnswer),
    /// No answer of the server at this position of the list.
    CallTimesOut(u64, usize),
    /// An operator looks after a node.
    AttendNode(usize),
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

impl SimEvent {
    /// Whether it counts as a step: the timers of links and operators do not, because they only wait most of the time.
    fn is_step(&self) -> bool {
        !matches!(
            self,
            SimEvent::Link(_) | SimEvent::LinkCheck(_) | SimEvent::AttendNode(_) | SimEvent::CallTimesOut(..)
        )
    }
}

/// The machine of a server process, which may be down.
struct ServerHost {
    name: String,
    /// Of its agent link.
    address: String,
    /// Counts the starts of the process.
    start: u64,
    clock: MachineClock,
    connection: MemoryConnection,
    process: Option<ServerProcess>,
    paused_until_ms: i64,
    /// When each thread wakes next; other wake events are stale.
    thread_wakes_at_ms: BTreeMap<&'static str, i64>,
}

/// A node and its agent.
struct SimNode {
    registration: Registration,
    clock: MachineClock,
    host: SimMachine,
    is_powered_on: bool,
    /// On its disk.
    identity: Option<NodeIdentity>,
    join: JoinProgress,
    /// An operator lets it join again although it is a member.
    is_joining_again: bool,
    /// The secret of the last join token.
    last_secret: String,
    agent: Option<AgentProcess>,
    agent_starts: u64,
    agent_wakes_at_ms: i64,
    link_wakes_at_ms: i64,
    agent_paused_until_ms: i64,
    /// Agent, shims and tasks do nothing until then.
    frozen_until_ms: i64,
}

impl SimNode {
    /// A node that is powered on, without an agent.
    fn new(registration: Registration, seed: u64, clock: MachineClock) -> SimNode {
        SimNode {
            registration,
            host: SimMachine::new(seed, &clock),
            clock,
            is_powered_on: true,
            identity: None,
            join: JoinProgress::Idle,
            is_joining_again: false,
            last_secret: String::new(),
            agent: None,
            agent_starts: 0,
            agent_wakes_at_ms: 0,
            link_wakes_at_ms: 0,
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
    /// The events of paused components.
    deferred_events: BTreeMap<Pausable, Vec<SimEvent>>,
    database: MemoryDatabase,
    servers: Vec<ServerHost>,
    /// All machines; a later one may have taken over the name of an earlier one.
    nodes: Vec<SimNode>,
    node_names: Vec<String>,
    network: NetworkConditions,
    /// Until when each pair of server and node is partitioned.
    partitions: BTreeMap<(usize, usize), i64>,
    /// Until when messages from a server to a node are lost, and those to the server if the flag is set.
    cuts: BTreeMap<(usize, usize, bool), i64>,
    /// Until when the agent of a node, or with the flag the server, reads nothing from their connection.
    stalled_readers: BTreeMap<(usize, bool), i64>,
    connections: BTreeMap<u64, SimConnection>,
    connections_opened: u64,
    calls: BTreeMap<u64, Call>,
    calls_made: u64,
    /// Calls whose answer nobody uses.
    stray_calls: BTreeSet<u64>,
    clients: Clients,
    settings: Settings,
    laws: Laws,
    steps: u64,
    is_healed: bool,
    /// A line for each event, if requested.
    trace: Option<Vec<String>>,
}

impl<'a> SimCluster<'a> {
    fn new(schedule: &'a FaultSchedule) -> SimCluster<'a> {
        let time = SimTime::default();
        let mut random = Random(schedule.seed ^ 0x5eed);
        let database = MemoryDatabase::default();
        let servers = (0..schedule.server_count).map(|index| ServerHost {
            name: format!("server-{index}"),
            address: format!("server-{index}:50052"),
            start: 0,
            clock: MachineClock::new(&time),
            connection: database.connect(),
            process: None,
            paused_until_ms: 0,
            thread_wakes_at_ms: BTreeMap::new(),
        });
        let servers = servers.collect();
        let node_names: Vec<String> = (0..schedule.node_gpus.len()).map(|index| format!("n{index}")).collect();
        let nodes = node_names.iter().zip(&schedule.node_gpus).map(|(name, gpus)| {
            SimNode::new(machine::registration(name, *gpus), random.next_u64(), MachineClock::new(&time))
        });
        let nodes = nodes.collect();
        let settings = Settings {
            stop_grace_ms: 2_000,
            preemption_cooldown_ms: 5_000,
            claim_ms: 10_000,
            max_wait_ms: 120_000,
            cooling_ms: 10_000,
            self_fence_ms: schedule.self_fence_ms.unwrap_or_default(),
            // The shortest is shorter than the silence after which the node of a paused agent is suspect.
            gang_start_timeout_ms: GANG_START_TIMEOUTS_MS[(schedule.seed % 3) as usize],
            ..Settings::default()
        };
        let network = NetworkConditions { until_ms: 0, loss_per_mille: 0, delay_ms_max: 20 };
        let mut cluster = SimCluster {
            schedule,
            time,
            random,
            event_queue: BTreeMap::new(),
            events_queued: 0,
            deferred_events: BTreeMap::new(),
            database,
            servers,
            nodes,
            node_names,
            network,
            partitions: BTreeMap::new(),
            cuts: BTreeMap::new(),
            stalled_readers: BTreeMap::new(),
            connections: BTreeMap::new(),
            connections_opened: 0,
            calls: BTreeMap::new(),
            calls_made: 0,
            stray_calls: BTreeSet::new(),
            clients: Clients::new(schedule),
            settings,
            laws: Laws::new(!schedule.actions.iter().any(|(_, action)| action.disturbs_clocks())),
            steps: 0,
            is_healed: false,
            trace: None,
        };
        (0..cluster.servers.len()).for_each(|server| cluster.start_server(server));
        (0..cluster.nodes.len()).for_each(|node| cluster.attend_node(node));
        for index in 0..schedule.actions.len() {
            cluster.schedule_at(schedule.actions[index].0, SimEvent::ApplyAction(index));
        }
        cluster
    }

    fn summary(&self) -> RunSummary {
        let jobs = self.laws.expected_state().next_job - 1;
        let (leaderships, events) = self.laws.leaderships_and_events();
        let entries = self.laws.published_count();
        RunSummary { steps: self.steps, entries, jobs, simulated_ms: self.time.ms(), leaderships, events }
    }

    /// Reports a panic as a broken law.
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
        self.heal()?;
        let until = self.time.ms() + REST_TIMEOUT_MS;
        while self.time.ms() < until {
            self.step()?;
            let is_linked = self.undrained_node().is_none();
            if is_linked
                && self.laws.check_rest().is_ok()
                && self.clients.all_answered()
                && self.uncleaned_node().is_none()
            {
                return self.check_final_state();
            }
        }
        self.laws.check_rest()?;
        if let Some(node) = self.uncleaned_node() {
            return Err(format!("{node} still has attempts that were not cleaned up"));
        }
        if let Some(node) = self.undrained_node() {
            return Err(format!("the reports of {node} are never acknowledged"));
        }
        Err("a client request was never answered".to_string())
    }

    /// A node with an attempt that is not cleaned up.
    fn uncleaned_node(&self) -> Option<&str> {
        let node = self.nodes.iter().position(|node| !node.host.is_clean())?;
        self.node_names.get(node).map(String::as_str)
    }

    /// A node that belongs to the cluster and whose reports were not all acknowledged since the end of all faults.
    fn undrained_node(&self) -> Option<&str> {
        let has_drained = |node: usize| self.nodes[node].agent.as_ref().is_some_and(|agent| agent.link.has_drained);
        let node = (0..self.nodes.len()).find(|node| !self.is_retired(*node) && !has_drained(*node))?;
        self.node_names.get(node).map(String::as_str)
    }

    /// At rest, the state of the leader equals the state of the journal.
    fn check_final_state(&mut self) -> Result<(), BrokenLaw> {
        let leader =
            self.servers.iter().filter_map(|host| host.process.as_ref()?.state()).max_by_key(|state| state.seq);
        leader.map_or(Ok(()), |state| self.laws.check_leader_state(state))
    }

    fn step(&mut self) -> Result<(), BrokenLaw> {
        let Some(((at, _), event)) = self.event_queue.pop_first() else {
            return Err("the event queue is empty before the cluster is at rest".to_string());
        };
        self.time.set(at);
        self.database.set_clock_ms(clock::SIM_START_UNIX_MS + at);
        self.handle_event(event)?;
        self.collect_machine_events()
    }

    // ---- time

    fn now(&self) -> i64 {
        self.time.ms()
    }

    fn schedule_at(&mut self, ms: i64, event: SimEvent) {
        self.events_queued += 1;
        self.event_queue.insert((ms.max(self.now()), self.events_queued), event);
    }

    fn schedule_after(&mut self, from_ms: i64, to_ms: i64, event: SimEvent) {
        let ms = self.now() + self.random.between(from_ms, to_ms);
        self.schedule_at(ms, event);
    }

    fn handle_event(&mut self, event: SimEvent) -> Result<(), BrokenLaw> {
        let Some(event) = self.defer_if_paused(event) else { return Ok(()) };
        if !self.is_current(&event) {
            return Ok(());
        }
        self.steps += u64::from(event.is_step());
        self.trace_line(|| format!("{event:?}"));
        match event {
            SimEvent::Engine(server) => return self.run_engine(server),
            SimEvent::Planner(server) => self.run_planner(server),
            SimEvent::Dispatch(server) => return self.run_dispatch(server),
            SimEvent::HeartbeatCheck(server) => self.check_heartbeats(server),
            SimEvent::WriteSavepoint(server) => self.write_savepoint(server),
            SimEvent::Agent(node) => return self.run_agent(node),
            SimEvent::Machine(node, _, machine_event) => self.nodes[node].host.handle_event(machine_event),
            SimEvent::ToServer(server, request) => self.deliver_to_server(server, request),
            SimEvent::Link(node) => return self.run_link(node),
            SimEvent::LinkCheck(server) => return self.check_connections(server),
            SimEvent::ConnectArrives(server, node, connection) => self.accept(server, node, connection),
            SimEvent::Connected(node, connection) => return self.see_connected(node, connection),
            SimEvent::FrameToServer(server, connection) => return self.receive_agent_frame(server, connection),
            SimEvent::FrameToAgent(node, connection) => return self.receive_frame(node, connection),
            SimEvent::AgentSeesEnd(node, connection) => return self.see_end(node, connection, EndCause::Closed),
            SimEvent::ServerSeesEnd(_, connection) => self.close_server_end(connection, EndCause::Closed),
            SimEvent::CallArrives(server, call) => self.receive_call(server, call),
            SimEvent::CallAnswered(call, answer) => self.receive_call_answer(call, answer),
            SimEvent::CallTimesOut(call, position) => self.time_out_call(call, position),
            SimEvent::AttendNode(node) => self.attend_node(node),
            SimEvent::ToUser(request, answer) => return self.deliver_answer(request, answer),
            SimEvent::RetryRequest(request) => self.retry_request(request),
            SimEvent::ApplyAction(index) => return self.apply_action(index),
            SimEvent::RestartServer(server) => self.start_server(server),
            SimEvent::RestartAgent(node) => self.start_agent(node),
            SimEvent::BootNode(node) => self.start_node(node),
            SimEvent::ReconnectDatabase(server) => self.servers[server].connection.inject_fault(SimulatedFault::None),
            SimEvent::Resume(component) => self.resume(component),
            SimEvent::CleanUp => return self.clean_up(),
        }
        Ok(())
    }

    /// True if the component of the event is alive and the event is not stale.
    fn is_current(&self, event: &SimEvent) -> bool {
        let awake = |server: usize, thread: &str| {
            let host = &self.servers[server];
            host.process.is_some() && host.thread_wakes_at_ms.get(thread).is_some_and(|at| *at <= self.now())
        };
        match event {
            SimEvent::Engine(server) => awake(*server, "engine"),
            SimEvent::Planner(server) => awake(*server, "planner"),
            SimEvent::Dispatch(server) => awake(*server, "dispatch"),
            SimEvent::HeartbeatCheck(server) => awake(*server, "heartbeats"),
            SimEvent::WriteSavepoint(server) => awake(*server, "savepoint"),
            SimEvent::LinkCheck(server) => awake(*server, "link"),
            SimEvent::Link(node) => {
                self.nodes[*node].agent.is_some() && self.nodes[*node].link_wakes_at_ms <= self.now()
            }
            SimEvent::Agent(node) => {
                self.nodes[*node].agent.is_some() && self.nodes[*node].agent_wakes_at_ms <= self.now()
            }
            SimEvent::Machine(node, boot, _) => self.nodes[*node].host.boot() == *boot,
            SimEvent::ToServer(server, _) => self.servers[*server].process.is_some(),
            _ => true,
        }
    }

    /// Wakes a thread of a server after a random delay, unless the thread wakes sooner anyway.
    fn wake_thread(&mut self, server: usize, thread: &'static str, from_ms: i64, to_ms: i64) {
        let sleep_ms = self.random.between(from_ms, to_ms);
        let at = self.now() + self.servers[server].clock.true_duration_ms(sleep_ms);
        let wakes = &mut self.servers[server].thread_wakes_at_ms;
        if wakes.get(thread).is_some_and(|known| *known > self.time.ms() && *known <= at) {
            return;
        }
        wakes.insert(thread, at);
        let event = match thread {
            "engine" => SimEvent::Engine(server),
            "planner" => SimEvent::Planner(server),
            "dispatch" => SimEvent::Dispatch(server),
            "heartbeats" => SimEvent::HeartbeatCheck(server),
            "link" => SimEvent::LinkCheck(server),
            _ => SimEvent::WriteSavepoint(server),
        };
        self.schedule_at(at, event);
    }

    fn trace_line(&mut self, text: impl FnOnce() -> String) {
        let (step, ms) = (self.steps, self.time.ms());
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{step:>6} {:>10.3} s  {}", ms as f64 / 1_000.0, text()));
        }
    }

    // ---- servers

    fn start_server(&mut self, server: usize) {
        let addresses = self.servers.iter().map(|host| host.address.clone()).collect();
        let host = &mut self.servers[server];
        if host.process.is_none() {
            host.start += 1;
            host.process = Some(ServerProcess::new(&host.name, &host.clock, host.connection.clone(), addresses));
            host.thread_wakes_at_ms.clear();
            host.paused_until_ms = 0;
            host.clock.unfreeze();
            self.deferred_events.remove(&Pausable::Server(server));
            self.wake_thread(server, "engine", 1, 200);
            self.wake_thread(server, "planner", 50, 500);
            self.wake_thread(server, "heartbeats", 1_000, 1_000);
            self.wake_thread(server, "savepoint", 3_000, 30_000);
            self.wake_thread(server, "link", 100, 900);
        }
    }

    fn run_engine(&mut self, server: usize) -> Result<(), BrokenLaw> {
        let settings = self.settings.clone();
        let Some(process) = &mut self.servers[server].process else { return Ok(()) };
        let engine_step = process.run_engine(&settings).map_err(|fault| format!("a server exits: {fault}"))?;
        match engine_step {
            EngineStep::Nothing => {}
            EngineStep::BecameLeader(batch) => {
                let durable = self.database.entries().map_err(|fault| format!("cannot read the journal: {fault}"))?;
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
        for (request, answer) in process.take_answers() {
            self.send_message(SimEvent::ToUser(request, answer));
        }
        let Some(process) = &mut self.servers[server].process else { return };
        for (call, answer) in process.take_enrolments() {
            self.answer_call(server, call, answer);
        }
    }

    fn run_planner(&mut self, server: usize) {
        if let Some(process) = &mut self.servers[server].process {
            process.run_planner();
        }
        self.wake_thread(server, "engine", 1, 30);
        self.wake_thread(server, "planner", 700, 2_500);
    }

    fn run_dispatch(&mut self, server: usize) -> Result<(), BrokenLaw> {
        let Some(process) = &mut self.servers[server].process else { return Ok(()) };
        process.run_dispatch();
        self.pump_server(server)
    }

    fn check_heartbeats(&mut self, server: usize) {
        if let Some(process) = &mut self.servers[server].process {
            process.check_heartbeats();
        }
        self.wake_thread(server, "engine", 1, 30);
        self.wake_thread(server, "heartbeats", 1_000, 1_000);
    }

    fn write_savepoint(&mut self, server: usize) {
        if let Some(process) = &self.servers[server].process {
            process.write_savepoint();
        }
        self.wake_thread(server, "savepoint", 3_000, 30_000);
    }

    fn deliver_to_server(&mut self, server: usize, request: u64) {
        let Some(process) = &mut self.servers[server].process else { return };
        if let Some((by, command)) = self.clients.request(request) {
            process.receive_request(request, by, command);
        }
        self.wake_thread(server, "engine", 1, 30);
    }

    // ---- nodes

    fn start_node(&mut self, node: usize) {
        let sim_node = &mut self.nodes[node];
        if !sim_node.is_powered_on {
            sim_node.is_powered_on = true;
            sim_node.frozen_until_ms = 0;
            sim_node.clock.unfreeze();
            self.deferred_events.remove(&Pausable::Machine(node));
        }
        self.start_agent(node);
    }

    /// Schedules the pending events of the machines and checks their observations against the laws.
    fn collect_machine_events(&mut self) -> Result<(), BrokenLaw> {
        for node in 0..self.nodes.len() {
            let host = self.nodes[node].host.clone();
            for (delay_ms, machine_event) in host.take_pending_events() {
                self.schedule_at(self.now() + delay_ms, SimEvent::Machine(node, host.boot(), machine_event));
            }
            if host.take_new_changes() {
                self.wake_agent(node);
            }
            let now = Timestamp(clock::SIM_START_UNIX_MS + self.now());
            for observation in host.take_observations() {
                // A server tells an installation that is no longer the enrolled one to stop whatever it runs. Such is also
                // an agent that joins again and has not received the answer yet.
                let is_ordered_by_revocation =
                    matches!(observation, MachineObservation::StopRequested { .. }) && self.is_revoked(node);
                if !is_ordered_by_revocation {
                    self.laws.observe(node, observation, now)?;
                }
            }
        }
        Ok(())
    }

    // ---- users

    fn send_request(&mut self, request: u64) {
        let server = self.random.below(self.servers.len() as u64) as usize;
        self.send_message(SimEvent::ToServer(server, request));
        self.schedule_after(2_000, 6_000, SimEvent::RetryRequest(request));
    }

    fn retry_request(&mut self, request: u64) {
        if self.clients.take_retry(request) {
            self.send_request(request);
        }
    }

    fn deliver_answer(&mut self, request: u64, answer: Result<Answer, CommandError>) -> Result<(), BrokenLaw> {
        if let Ok(Answer::Job(job)) = &answer {
            self.laws.check_answer(request, *job)?;
        }
        self.clients.receive_answer(request, &answer);
        Ok(())
    }
}

//! A whole cluster on one thread: servers, database, agents, machines, network, users and operators, all from one seed.
//!
//! The code of servers and agents is the product's own. What is played here is what surrounds them: time, chance, disks
//! and processes, and messages that are late, lost or doubled. One thing happens at a time, and after each the laws are
//! looked at. When a story is told, everything is healed, and the cluster must come to rest.

mod acts;
mod clock;
mod healing;
mod laws;
mod machine;
mod network;
mod pauses;
mod server;
#[cfg(test)]
mod tests;
mod users;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use muster_agent::desk::{Desk, Moment};
use muster_core::settings::Settings;
use muster_core::{Answer, NodeId, Timestamp};
use muster_protocol::agent::{Orders, Registration, Report};
use muster_server::cluster::Declined;
use muster_store::Entry;
use muster_store::memory::{Connection, Fault, Memory};

use crate::random::Random;
use crate::story::Story;
use clock::{MachineClock, Sun};
use laws::{Broken, Laws};
use machine::{Due, Host, HostOfAgent};
use network::Weather;
use pauses::Who;
use server::{Server, Turned};
use users::Users;

/// How often nodes say that they are there.
const HEARTBEAT_MS: i64 = 2_000;
/// How long the cluster may take to come to rest once all is healed.
const REST_MS: i64 = 3_600_000;

/// What came of a story that went well.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Told {
    /// Things that happened, with those after the healing.
    pub steps: u64,
    /// Entries of the journal.
    pub entries: u64,
    /// Jobs that were accepted.
    pub jobs: u64,
    /// Simulated time.
    pub ms: i64,
    /// How often someone began to lead.
    pub leaders: u64,
    /// How many events of each kind there were.
    pub events: BTreeMap<&'static str, u64>,
}

/// A story that ended badly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Which law.
    pub law: String,
    /// At which step.
    pub step: u64,
}

/// Tell a story to its end.
pub fn tell(story: &Story) -> Result<Told, Failure> {
    let mut world = World::new(story);
    world.run_to_the_end()
}

/// Tell a story and write down what happens.
pub fn tell_in_full(story: &Story) -> (Result<Told, Failure>, Vec<String>) {
    let mut world = World::new(story);
    world.diary = Some(Vec::new());
    (world.run_to_the_end(), world.diary.unwrap_or_default())
}

/// Tell a story and give away its journal.
pub fn journal_of(story: &Story) -> Result<Vec<Entry>, Failure> {
    let mut world = World::new(story);
    let outcome = world.run().and_then(|()| world.database.entries().map_err(|fault| fault.to_string()));
    outcome.map_err(|law| Failure { law, step: world.steps })
}

/// Something that will happen.
#[derive(Debug)]
enum Coming {
    Engine(usize),
    Planner(usize),
    Dispatch(usize),
    Silence(usize),
    Save(usize),
    Agent(usize),
    Machine(usize, u64, Due),
    ToServer(usize, ToServer),
    ToNode(usize, Box<Orders>),
    ToUser(u64, Result<Answer, Declined>),
    Retry(u64),
    Act(usize),
    ServerIsBack(usize),
    AgentIsBack(usize),
    NodeIsBack(usize),
    DatabaseIsBack(usize),
    GoesOn(Who),
    Tidy,
}

#[derive(Debug)]
enum ToServer {
    Report(Box<Report>),
    Letter(u64),
}

/// Where a server process runs, or will again.
struct ServerPlace {
    name: String,
    clock: MachineClock,
    connection: Connection,
    process: Option<Server>,
    paused_until: i64,
    /// When each of its threads wakes next; other wakings are out of date.
    wakes: BTreeMap<&'static str, i64>,
}

/// A node and its agent.
struct NodePlace {
    registration: Registration,
    clock: MachineClock,
    host: Host,
    is_on: bool,
    agent: Option<Desk<HostOfAgent>>,
    lives: u64,
    wakes_at: i64,
    /// The agent does nothing until then.
    agent_paused_until: i64,
    /// Nothing on it does.
    frozen_until: i64,
}

impl NodePlace {
    /// It is on, and its agent has not begun.
    fn new(registration: Registration, seed: u64, clock: MachineClock) -> NodePlace {
        NodePlace {
            registration,
            host: Host::new(seed, &clock),
            clock,
            is_on: true,
            agent: None,
            lives: 0,
            wakes_at: 0,
            agent_paused_until: 0,
            frozen_until: 0,
        }
    }
}

struct World<'a> {
    story: &'a Story,
    sun: Sun,
    random: Random,
    queue: BTreeMap<(i64, u64), Coming>,
    queued: u64,
    /// What would have happened to those who stand still.
    waits: BTreeMap<Who, Vec<Coming>>,
    database: Memory,
    servers: Vec<ServerPlace>,
    nodes: Vec<NodePlace>,
    names: Vec<String>,
    weather: Weather,
    /// Until when a server and a node cannot reach each other.
    cuts: BTreeMap<(usize, usize), i64>,
    users: Users,
    settings: Settings,
    laws: Laws,
    steps: u64,
    is_healed: bool,
    /// What happened, in words, if someone wants to read it.
    diary: Option<Vec<String>>,
}

impl<'a> World<'a> {
    fn new(story: &'a Story) -> World<'a> {
        let sun = Sun::default();
        let mut random = Random(story.seed ^ 0x5eed);
        let database = Memory::default();
        let servers = (0..story.servers).map(|index| ServerPlace {
            name: format!("server-{index}"),
            clock: MachineClock::new(&sun),
            connection: database.connect(),
            process: None,
            paused_until: 0,
            wakes: BTreeMap::new(),
        });
        let servers = servers.collect();
        let names: Vec<String> = (0..story.nodes.len()).map(|index| format!("n{index}")).collect();
        let nodes = names.iter().zip(&story.nodes).map(|(name, gpus)| {
            NodePlace::new(machine::registration(name, *gpus), random.number(), MachineClock::new(&sun))
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
        let weather = Weather { until: 0, per_mille: 0, delay_ms_max: 20 };
        let mut world = World {
            story,
            sun,
            random,
            queue: BTreeMap::new(),
            queued: 0,
            waits: BTreeMap::new(),
            database,
            servers,
            nodes,
            names,
            weather,
            cuts: BTreeMap::new(),
            users: Users::new(story),
            settings,
            laws: Laws::new(!story.acts.iter().any(|(_, act)| act.disturbs_clocks())),
            steps: 0,
            is_healed: false,
            diary: None,
        };
        (0..world.servers.len()).for_each(|server| world.start_server(server));
        (0..world.nodes.len()).for_each(|node| world.start_agent(node));
        for index in 0..story.acts.len() {
            world.at(story.acts[index].0, Coming::Act(index));
        }
        world
    }

    fn told(&self) -> Told {
        let jobs = self.laws.state().next_job - 1;
        let (leaders, events) = self.laws.counts();
        let entries = self.laws.published();
        Told { steps: self.steps, entries, jobs, ms: self.sun.ms(), leaders, events }
    }

    /// A panic is a failure like any other.
    fn run_to_the_end(&mut self) -> Result<Told, Failure> {
        let outcome = catch_unwind(AssertUnwindSafe(|| self.run()));
        let outcome = outcome.unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
            Err(format!("panicked: {}", text.unwrap_or_default()))
        });
        outcome.map(|()| self.told()).map_err(|law| Failure { law, step: self.steps })
    }

    fn run(&mut self) -> Result<(), Broken> {
        while self.steps < self.story.steps {
            self.step()?;
        }
        self.heal();
        let until = self.sun.ms() + REST_MS;
        while self.sun.ms() < until {
            self.step()?;
            if self.laws.rest().is_ok() && self.users.all_answered() && self.untidied().is_none() {
                return self.end();
            }
        }
        self.laws.rest()?;
        if let Some(node) = self.untidied() {
            return Err(format!("{node} was never tidied up"));
        }
        Err("somebody was never answered".to_string())
    }

    /// A node on which something of an attempt is left.
    fn untidied(&self) -> Option<&str> {
        let node = self.nodes.iter().position(|place| !place.host.is_tidy())?;
        self.names.get(node).map(String::as_str)
    }

    /// At rest: what the leader believes is what the journal says.
    fn end(&mut self) -> Result<(), Broken> {
        let leader = self
            .servers
            .iter()
            .filter_map(|place| place.process.as_ref()?.state())
            .max_by_key(|state| state.seq);
        leader.map_or(Ok(()), |state| self.laws.agree(state))
    }

    fn step(&mut self) -> Result<(), Broken> {
        let Some(((at, _), coming)) = self.queue.pop_first() else {
            return Err("nothing will ever happen again".to_string());
        };
        self.sun.set(at);
        self.database.set_time(clock::BEGIN_MS + at);
        self.happen(coming)?;
        self.look_at_machines()
    }

    // ---- time

    fn now(&self) -> i64 {
        self.sun.ms()
    }

    fn at(&mut self, ms: i64, coming: Coming) {
        self.queued += 1;
        self.queue.insert((ms.max(self.now()), self.queued), coming);
    }

    fn after(&mut self, from_ms: i64, to_ms: i64, coming: Coming) {
        let ms = self.now() + self.random.between(from_ms, to_ms);
        self.at(ms, coming);
    }

    fn happen(&mut self, coming: Coming) -> Result<(), Broken> {
        let Some(coming) = self.unless_paused(coming) else { return Ok(()) };
        if !self.is_current(&coming) {
            return Ok(());
        }
        self.steps += 1;
        self.note(|| format!("{coming:?}"));
        match coming {
            Coming::Engine(server) => return self.engine(server),
            Coming::Planner(server) => self.planner(server),
            Coming::Dispatch(server) => self.dispatch(server),
            Coming::Silence(server) => self.silence(server),
            Coming::Save(server) => self.save(server),
            Coming::Agent(node) => self.agent(node, None),
            Coming::Machine(node, _, due) => self.nodes[node].host.happen(due),
            Coming::ToServer(server, message) => self.arrive(server, message),
            Coming::ToNode(node, orders) => self.agent(node, Some(*orders)),
            Coming::ToUser(letter, answer) => return self.answer(letter, answer),
            Coming::Retry(letter) => self.write_again(letter),
            Coming::Act(index) => self.act(index),
            Coming::ServerIsBack(server) => self.start_server(server),
            Coming::AgentIsBack(node) => self.start_agent(node),
            Coming::NodeIsBack(node) => self.start_node(node),
            Coming::DatabaseIsBack(server) => self.servers[server].connection.fail(Fault::None),
            Coming::GoesOn(who) => self.goes_on(who),
            Coming::Tidy => self.tidy(),
        }
        Ok(())
    }

    /// Whether it concerns someone who still lives, and is not out of date.
    fn is_current(&self, coming: &Coming) -> bool {
        let awake = |server: usize, thread: &str| {
            let place = &self.servers[server];
            place.process.is_some() && place.wakes.get(thread).is_some_and(|at| *at <= self.now())
        };
        match coming {
            Coming::Engine(server) => awake(*server, "engine"),
            Coming::Planner(server) => awake(*server, "planner"),
            Coming::Dispatch(server) => awake(*server, "dispatch"),
            Coming::Silence(server) => awake(*server, "silence"),
            Coming::Save(server) => awake(*server, "save"),
            Coming::Agent(node) => {
                self.nodes[*node].agent.is_some() && self.nodes[*node].wakes_at <= self.now()
            }
            Coming::Machine(node, boot, _) => self.nodes[*node].host.boot() == *boot,
            Coming::ToServer(server, _) => self.servers[*server].process.is_some(),
            Coming::ToNode(node, _) => self.nodes[*node].agent.is_some(),
            _ => true,
        }
    }

    /// Wake a thread of a server between two moments from now, unless it wakes sooner anyway.
    fn wake(&mut self, server: usize, thread: &'static str, from_ms: i64, to_ms: i64) {
        let sleeps_ms = self.random.between(from_ms, to_ms);
        let at = self.now() + self.servers[server].clock.lasts_ms(sleeps_ms);
        let wakes = &mut self.servers[server].wakes;
        if wakes.get(thread).is_some_and(|known| *known > self.sun.ms() && *known <= at) {
            return;
        }
        wakes.insert(thread, at);
        let coming = match thread {
            "engine" => Coming::Engine(server),
            "planner" => Coming::Planner(server),
            "dispatch" => Coming::Dispatch(server),
            "silence" => Coming::Silence(server),
            _ => Coming::Save(server),
        };
        self.at(at, coming);
    }

    fn note(&mut self, words: impl FnOnce() -> String) {
        let (step, ms) = (self.steps, self.sun.ms());
        if let Some(diary) = &mut self.diary {
            diary.push(format!("{step:>6} {:>10.3} s  {}", ms as f64 / 1_000.0, words()));
        }
    }

    // ---- servers

    fn start_server(&mut self, server: usize) {
        let place = &mut self.servers[server];
        if place.process.is_none() {
            place.process = Some(Server::new(&place.name, &place.clock, place.connection.clone()));
            place.wakes.clear();
            place.paused_until = 0;
            place.clock.go_on();
            self.waits.remove(&Who::Server(server));
            self.wake(server, "engine", 1, 200);
            self.wake(server, "planner", 50, 500);
            self.wake(server, "silence", 1_000, 1_000);
            self.wake(server, "save", 3_000, 30_000);
        }
    }

    fn engine(&mut self, server: usize) -> Result<(), Broken> {
        let settings = self.settings.clone();
        let Some(process) = &mut self.servers[server].process else { return Ok(()) };
        let turned = process.engine(&settings).map_err(|fault| format!("a server ends: {fault}"))?;
        match turned {
            Turned::Nothing => {}
            Turned::Leads(batch) => {
                let durable = self.database.entries().map_err(|fault| format!("unreadable: {fault}"))?;
                self.laws.lead(&durable, &self.names)?;
                drop(batch);
                self.agree_with(server)?;
                self.wake(server, "dispatch", 1, 100);
            }
            Turned::Wrote(batch) => {
                for entry in &batch.entries {
                    self.note(|| format!("        {} {:?}", entry.seq, entry.event));
                }
                self.laws.publish(&batch, &self.names)?;
                self.laws.check()?;
                if self.laws.published().is_multiple_of(8) {
                    self.agree_with(server)?;
                }
                self.wake(server, "dispatch", 1, 100);
                self.wake(server, "planner", 20, 600);
            }
        }
        self.send_answers(server);
        self.wake(server, "engine", 200, 900);
        Ok(())
    }

    fn agree_with(&self, server: usize) -> Result<(), Broken> {
        let state = self.servers[server].process.as_ref().and_then(Server::state);
        state.map_or(Ok(()), |state| self.laws.agree(state))
    }

    fn send_answers(&mut self, server: usize) {
        let Some(process) = &mut self.servers[server].process else { return };
        for (letter, answer) in process.answers() {
            self.send(None, Coming::ToUser(letter, answer));
        }
    }

    fn planner(&mut self, server: usize) {
        if let Some(process) = &mut self.servers[server].process {
            process.planner();
        }
        self.wake(server, "engine", 1, 30);
        self.wake(server, "planner", 700, 2_500);
    }

    fn dispatch(&mut self, server: usize) {
        let Some(process) = &mut self.servers[server].process else { return };
        for (node, orders) in process.dispatch() {
            self.send_orders(server, &node, orders);
        }
    }

    fn send_orders(&mut self, server: usize, node: &NodeId, orders: Orders) {
        if let Some(index) = self.names.iter().position(|name| name == node.as_str()) {
            self.send(Some((server, index)), Coming::ToNode(index, Box::new(orders)));
        }
    }

    fn silence(&mut self, server: usize) {
        if let Some(process) = &mut self.servers[server].process {
            process.silence();
        }
        self.wake(server, "engine", 1, 30);
        self.wake(server, "silence", 1_000, 1_000);
    }

    fn save(&mut self, server: usize) {
        if let Some(process) = &self.servers[server].process {
            process.save();
        }
        self.wake(server, "save", 3_000, 30_000);
    }

    fn arrive(&mut self, server: usize, message: ToServer) {
        let Some(process) = &mut self.servers[server].process else { return };
        match message {
            ToServer::Report(report) => {
                let node = match &*report {
                    Report::Heartbeat { node } => node.parse::<NodeId>().ok(),
                    Report::Registered(registration) => registration.node.parse::<NodeId>().ok(),
                    _ => None,
                };
                process.hear(*report);
                // Whoever says that it is there is told what it owes: orders may have been lost.
                let orders = node.and_then(|node| Some((node.clone(), process.orders(&node)?)));
                if let Some((node, orders)) = orders {
                    self.send_orders(server, &node, orders);
                }
            }
            ToServer::Letter(letter) => {
                if let Some((by, command)) = self.users.letter(letter) {
                    process.receive(letter, by, command);
                }
            }
        }
        self.wake(server, "engine", 1, 30);
    }

    // ---- nodes

    fn start_node(&mut self, node: usize) {
        let place = &mut self.nodes[node];
        if !place.is_on {
            place.is_on = true;
            place.frozen_until = 0;
            place.clock.go_on();
            self.waits.remove(&Who::Machine(node));
        }
        self.start_agent(node);
    }

    fn start_agent(&mut self, node: usize) {
        let place = &mut self.nodes[node];
        if place.is_on && place.agent.is_none() {
            place.lives += 1;
            place.agent_paused_until = 0;
            self.waits.remove(&Who::Agent(node));
            let machine = place.host.for_agent(place.lives);
            let incarnation = format!("{}-{}", place.registration.node, place.lives);
            let registration = Registration { incarnation, ..place.registration.clone() };
            place.agent = Some(Desk::new(registration, HEARTBEAT_MS, machine));
            place.wakes_at = self.sun.ms();
            self.at(self.now(), Coming::Agent(node));
        }
    }

    fn agent(&mut self, node: usize, orders: Option<Orders>) {
        let place = &mut self.nodes[node];
        let Some(desk) = &mut place.agent else { return };
        let wall_ms = place.clock.wall_ms();
        let moment = Moment { wall_ms, mono_ms: place.clock.mono_ms() };
        let mut said = Vec::new();
        let wakes_ms = desk.turn(moment, orders, &mut |report| said.push(report));
        // An agent oversleeps a little, and never sleeps longer than its driver lets it.
        let sleeps_ms = (wakes_ms - wall_ms).clamp(1, 1_000) + self.random.between(0, 900);
        let sleeps_ms = self.nodes[node].clock.lasts_ms(sleeps_ms);
        self.nodes[node].wakes_at = self.now() + sleeps_ms;
        self.at(self.now() + sleeps_ms, Coming::Agent(node));
        for report in said {
            for server in 0..self.servers.len() {
                let message = ToServer::Report(Box::new(report.clone()));
                self.send(Some((server, node)), Coming::ToServer(server, message));
            }
        }
    }

    /// What was begun on machines takes its course, and what happened there is judged.
    fn look_at_machines(&mut self) -> Result<(), Broken> {
        for node in 0..self.nodes.len() {
            let host = self.nodes[node].host.clone();
            for (delay_ms, due) in host.take_due() {
                self.at(self.now() + delay_ms, Coming::Machine(node, host.boot(), due));
            }
            let now = Timestamp(clock::BEGIN_MS + self.now());
            for seen in host.take_seen() {
                self.laws.see(node, seen, now)?;
            }
        }
        Ok(())
    }

    // ---- users

    fn write(&mut self, letter: u64) {
        let server = self.random.below(self.servers.len() as u64) as usize;
        self.send(None, Coming::ToServer(server, ToServer::Letter(letter)));
        self.after(2_000, 6_000, Coming::Retry(letter));
    }

    fn write_again(&mut self, letter: u64) {
        if self.users.asks_again(letter) {
            self.write(letter);
        }
    }

    fn answer(&mut self, letter: u64, answer: Result<Answer, Declined>) -> Result<(), Broken> {
        if let Ok(Answer::Job(job)) = &answer {
            self.laws.tell(letter, *job)?;
        }
        self.users.hear(letter, &answer);
        Ok(())
    }
}

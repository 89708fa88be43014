//! Step 11, report: what agents say becomes commands; and who has fallen silent.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use muster_agent::Mouth;
use muster_core::command::{JobsOnGpu, Said};
use muster_core::job;
use muster_core::node::{GpuFacts, GpuWord, NodeFacts, NodeWord, NumaFacts};
use muster_core::partition::MigInstance;
use muster_core::{Actor, Command, JobId, NodeId, State, Timestamp};
use muster_protocol::agent::{Exit, Registration, Report};
use tracing::{debug, warn};

use crate::clock::Clock;
use crate::cluster::{Cluster, Role};
use crate::readings::{Readings, reporting_node};

/// Least silence after which a node gets no new work; three heartbeats and a bit where they are rare.
const SUSPECT_AFTER: Duration = Duration::from_secs(5);
/// Least silence after which its jobs wait for its return or its fence; ten heartbeats where they are rare.
const UNREACHABLE_AFTER: Duration = Duration::from_secs(30);

/// Understands what agents say and notices who has fallen silent. Nothing here waits: the simulator runs it too.
#[derive(Default)]
pub struct Hearing {
    heard: BTreeMap<NodeId, Duration>,
    heartbeat: Duration,
}

impl Hearing {
    /// For agents that send a heartbeat this often.
    pub fn every(heartbeat: Duration) -> Hearing {
        Hearing { heartbeat, ..Hearing::default() }
    }

    /// The command that a report means; `None` if it says nothing new.
    pub fn hear(&mut self, state: &State, report: Report, clock: &dyn Clock) -> Option<Command> {
        let Ok(node) = reporting_node(&report).parse::<NodeId>() else {
            warn!(node = reporting_node(&report), "a report under a name that no node can have");
            return None;
        };
        self.heard.insert(node.clone(), clock.elapsed());
        match report {
            Report::Registered(registration) => {
                Some(Command::RegisterNode { node, facts: Box::new(facts(*registration)) })
            }
            Report::Heartbeat { .. } => welcome_back(state, node),
            Report::Started { job, attempt, incarnation, .. } => {
                let job = job.parse().ok()?;
                let part = PartOfNode { node, job, attempt };
                part.may_be_reported_by(state, &incarnation).then(|| part.report(Said::Started))
            }
            Report::Ended { job, attempt, exit, stopped, ended_ms_ago, incarnation, .. } => {
                let part = PartOfNode { node, job: job.parse().ok()?, attempt };
                let said = Said::Ended { exit: core_exit(exit), stopped, ended_ms_ago };
                part.may_be_reported_by(state, &incarnation).then(|| part.report(said))
            }
            Report::GpuReading { gpu, temperature_c, errors, last_error, .. } => {
                let reading = Reading { gpu, temperature_c, errors, last_error };
                health(state, node, reading, clock.now())
            }
        }
    }

    /// What follows of nodes that have said nothing for too long.
    pub fn silence(&mut self, state: &State, clock: &dyn Clock) -> Vec<Command> {
        let elapsed = clock.elapsed();
        let mut commands = Vec::new();
        for node in state.nodes.values().filter(|node| !node.declared) {
            let heard = *self.heard.entry(node.id.clone()).or_insert(elapsed);
            let silent = elapsed.saturating_sub(heard);
            if let Some(word) = self.worse(node.state.word, silent) {
                let why = format!("no word from its agent for {} s", silent.as_secs());
                commands.push(Command::SetNodeState { node: node.id.clone(), word, why });
            }
        }
        commands
    }

    /// The state that silence leads to, if it is another one.
    fn worse(&self, word: NodeWord, silent: Duration) -> Option<NodeWord> {
        let late = Duration::from_secs(2);
        match word {
            NodeWord::Ready if silent >= SUSPECT_AFTER.max(self.heartbeat * 3 + late) => {
                Some(NodeWord::Suspect)
            }
            NodeWord::Suspect if silent >= UNREACHABLE_AFTER.max(self.heartbeat * 10) => {
                Some(NodeWord::Unreachable)
            }
            _ => None,
        }
    }

    /// A control plane that was away must not take its own absence for theirs.
    pub fn forget(&mut self) {
        self.heard.clear();
    }
}

/// One node's part of an attempt.
struct PartOfNode {
    node: NodeId,
    job: JobId,
    attempt: u32,
}

impl PartOfNode {
    /// Whether a report of an incarnation still counts. A former one counts as long as the server knows that the part
    /// has started, because then no later incarnation launches it. Otherwise the newest may have launched it again,
    /// after the loss of a disk, and the report of the former one does not speak of that launch.
    fn may_be_reported_by(&self, state: &State, incarnation: &str) -> bool {
        let known = state.nodes.get(&self.node).map(|node| node.facts.incarnation.as_str());
        let attempt = state.jobs.get(&self.job).and_then(|job| job.attempt());
        let attempt = attempt.filter(|attempt| attempt.number == self.attempt);
        let has_started = attempt.is_some_and(|attempt| attempt.parts.get(&self.node).is_some());
        known == Some(incarnation) || has_started
    }

    fn report(self, said: Said) -> Command {
        Command::ReportTask { node: self.node, job: self.job, attempt: self.attempt, said }
    }
}

/// A heartbeat of a node that was out of sight brings it back.
fn welcome_back(state: &State, node: NodeId) -> Option<Command> {
    let known = state.nodes.get(&node)?;
    let away = matches!(known.state.word, NodeWord::Suspect | NodeWord::Unreachable);
    away.then(|| Command::RegisterNode { node, facts: Box::new(known.facts.clone()) })
}

/// Listens to the agents of a server.
pub struct Ear {
    cluster: Cluster,
    clock: Arc<dyn Clock>,
    hearing: Mutex<Hearing>,
    readings: Arc<Readings>,
}

impl Ear {
    /// An ear for this cluster, whose agents send a heartbeat this often.
    pub fn new(cluster: Cluster, clock: Arc<dyn Clock>, heartbeat: Duration) -> Arc<Ear> {
        let hearing = Mutex::new(Hearing::every(heartbeat));
        Arc::new(Ear { cluster, clock, hearing, readings: Arc::default() })
    }

    /// What the agents last reported.
    pub fn readings(&self) -> Arc<Readings> {
        self.readings.clone()
    }

    /// What the agents speak into.
    pub fn mouth(self: &Arc<Ear>) -> Mouth {
        let ear = self.clone();
        Arc::new(move |report| ear.hear(report))
    }

    fn hear(&self, report: Report) {
        self.readings.note(&report, self.clock.now());
        let command = self.cluster.read(|state| self.hearing().hear(state, report, &*self.clock));
        command.into_iter().for_each(|command| self.tell(command));
    }

    fn tell(&self, command: Command) {
        // Agents repeat themselves, so a report that finds no leader costs a moment.
        if let Err(declined) = self.cluster.tell(Actor::system(), command) {
            debug!(%declined, "a report was not taken");
        }
    }

    /// Take note of nodes that have said nothing for too long. Called every second or so.
    pub fn notice_silence(&self) {
        if !matches!(self.cluster.role(), Role::Leading { .. }) {
            self.hearing().forget();
            return;
        }
        let commands = self.cluster.read(|state| {
            self.readings.keep(self.clock.now(), |node| state.nodes.contains_key(node));
            let mut commands = self.hearing().silence(state, &*self.clock);
            commands.extend(unnoted(state, &self.readings, self.clock.now()));
            commands
        });
        commands.into_iter().for_each(|command| self.tell(command));
    }

    fn hearing(&self) -> std::sync::MutexGuard<'_, Hearing> {
        self.hearing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What an agent says, in the words of the core.
pub fn facts(registration: Registration) -> NodeFacts {
    let gpu = |gpu: muster_protocol::agent::Gpu| GpuFacts {
        uuid: gpu.uuid,
        model: gpu.model,
        memory_mib: gpu.memory_mib,
        numa_node: gpu.numa_node,
        nvlink: gpu.nvlink,
        socket: gpu.socket,
        pcie_switch: gpu.pcie_switch,
        mig: gpu.mig.into_iter().map(|one| MigInstance { profile: one.profile, start: one.start }).collect(),
        power_limit_milliwatts: gpu.power_limit_milliwatts,
    };
    let numa = |numa: muster_protocol::agent::Numa| NumaFacts {
        cpus: numa.cpus,
        memory_mib: numa.memory_mib,
        socket: numa.socket,
    };
    NodeFacts {
        hostname: registration.hostname,
        address: registration.address,
        cpus: registration.cpus,
        memory_mib: registration.memory_mib,
        gpus: registration.gpus.into_iter().map(gpu).collect(),
        numa: registration.numa.into_iter().map(numa).collect(),
        rack: registration.rack,
        block: registration.block,
        power_feed: registration.power_feed,
        labels: registration.labels,
        taints: registration.taints,
        agent_version: registration.agent_version,
        incarnation: registration.incarnation,
        simulated: registration.simulated,
    }
}

fn core_exit(exit: Exit) -> job::Exit {
    match exit {
        Exit::Code(code) => job::Exit::Code { code },
        Exit::Signal(signal) => job::Exit::Signal { signal },
        Exit::NotStarted(why) => job::Exit::NotStarted { why },
        Exit::Unknown(why) => job::Exit::Unknown { why },
    }
}

/// What a GPU was read as.
struct Reading {
    gpu: u8,
    temperature_c: Option<i32>,
    errors: u32,
    last_error: String,
}

/// What newest readings mean that the state does not know yet. While no policy looks at temperatures they are not noted,
/// and idle GPUs report seldom: without this, policies that were just put into force would see only GPUs that changed since.
fn unnoted(state: &State, readings: &Readings, now: Timestamp) -> Vec<Command> {
    if state.policies.rules().is_none() {
        return Vec::new();
    }
    let gpus = state.nodes.values().flat_map(|node| {
        let gpus = 0..node.gpu_health.len() as u8;
        gpus.map(|gpu| (node.id.clone(), gpu))
    });
    let command = |(node, gpu): (NodeId, u8)| {
        let newest = readings.of_gpu(&node, gpu)?;
        let (temperature_c, errors) = (newest.temperature_c, newest.errors);
        let last_error = newest.last_error.unwrap_or_default();
        health(state, node, Reading { gpu, temperature_c, errors, last_error }, now)
    };
    gpus.filter_map(command).collect()
}

/// The command that a reading means, if it changes anything.
fn health(state: &State, node: NodeId, reading: Reading, now: Timestamp) -> Option<Command> {
    let known = state.nodes.get(&node)?.gpu_health.get(usize::from(reading.gpu))?;
    let settings = &state.settings;
    let word = GpuWord::of_reading(reading.temperature_c, reading.errors);
    let hot = settings.thermal && reading.temperature_c.is_some_and(|c| c > settings.thermal_limit_c);
    // While it stays hot the period is renewed only when half of it is over: readings come every second.
    let fresh = known.cooling_until.is_some_and(|until| until.since(now) > settings.cooling_ms / 2);
    let cooling_until = if hot && !fresh { Some(now.plus(settings.cooling_ms)) } else { known.cooling_until };
    let looked_at = state.policies.rules().is_some() && known.is_news(reading.temperature_c);
    if word == known.read_word() && cooling_until == known.cooling_until && !looked_at {
        return None;
    }
    let why = match (reading.temperature_c, word) {
        (_, GpuWord::Healthy) => String::new(),
        (Some(celsius), _) if reading.last_error.is_empty() => format!("{celsius} °C"),
        (celsius, _) => format!("{} errors, {}; {:?} °C", reading.errors, reading.last_error, celsius),
    };
    let temperature_c = reading.temperature_c;
    let jobs = JobsOnGpu::Keep;
    Some(Command::SetGpuHealth { node, gpu: reading.gpu, word, why, cooling_until, temperature_c, jobs })
}

#[cfg(test)]
mod tests {
    use muster_agent::Cluster;
    use muster_core::command::SubmitJob;
    use muster_core::tenant::TenantConfig;
    use muster_core::wiring::{Closeness, Wiring};
    use muster_core::{JobSpec, Settings};

    use super::*;

    /// A state with one job, placed on a node whose agent is `b`.
    struct Play(State);

    impl Play {
        fn with_job() -> Play {
            let mut play = Play(State::empty());
            let config = Box::new(TenantConfig::unlimited("default"));
            play.tell(&Command::CreateTenant { id: "default".parse().unwrap(), config });
            let mut facts = registered("nodes: [{name: n, count: 1, box: dgx-a100}]").remove(0);
            facts.incarnation = "b".to_string();
            play.tell(&Command::RegisterNode { node: "n1".parse().unwrap(), facts: Box::new(facts) });
            let spec: JobSpec = muster_json::from_str(
                r#"{"name":"demo","tenant":"default","user":"ada","priority":100,"run":{"command":["true"]},
                    "tasks":[{"name":"task","count":1,"each":{"gpus":1,"cpus":1,"memory_mib":1}}]}"#,
            )
            .unwrap();
            play.tell(&Command::SubmitJob(SubmitJob {
                spec: Arc::new(spec),
                array: None,
                hold: false,
                key: None,
                is_operator: false,
                known_key: None,
                known_outcomes: BTreeMap::new(),
            }));
            let plan = Box::new(muster_core::plan::plan(&play.0, Timestamp(1)).plan);
            play.tell(&Command::AdoptPlan { plan, epoch: 1 });
            play
        }

        fn tell(&mut self, command: &Command) {
            let decision = self.0.decide(&Actor::system(), command, Timestamp(1)).unwrap();
            decision.events.iter().for_each(|event| self.0.apply(event));
        }

        fn hear(&self, report: Report) -> Option<Command> {
            Hearing::default().hear(&self.0, report, &crate::clock::SystemClock)
        }
    }

    fn registered(text: &str) -> Vec<NodeFacts> {
        Cluster::parse(text).unwrap().registrations().into_iter().map(facts).collect()
    }

    #[test]
    fn the_wiring_of_a_node_arrives_whole() {
        let nodes =
            registered("nodes: [{name: a, count: 3, box: dgx-a100, nodes_per_rack: 1, racks_per_block: 2}]");
        assert_eq!((nodes[2].rack.as_deref(), nodes[2].block.as_deref()), (Some("r3"), Some("b2")));
        let numa = &nodes[0].numa[7];
        assert_eq!((numa.cpus, numa.memory_mib, numa.socket), (16, 262_144, 1));
        assert_eq!(nodes[0].gpus[7].pcie_switch, Some(3));
        let wiring = Wiring::of(&nodes[0]);
        assert_eq!(wiring.closeness(0b0000_0011), Closeness::NvlinkNuma);
        assert_eq!(wiring.closeness(0b0000_1111), Closeness::NvlinkSocket);
        assert_eq!(wiring.closeness(0b0001_1111), Closeness::NvlinkNode);
        assert_eq!(wiring.numa_nodes(0b0001_0001), [3, 7]);
    }

    /// A node whose agent began again, and a report of the agent before.
    #[test]
    fn a_former_incarnation_speaks_only_of_parts_that_are_known_to_run() {
        let mut cluster = Play::with_job();
        let ended = |incarnation: &str| Report::Ended {
            node: "n1".to_string(),
            job: "job-1".to_string(),
            attempt: 1,
            exit: Exit::Code(0),
            stopped: false,
            ended_ms_ago: Some(5),
            incarnation: incarnation.to_string(),
        };
        assert!(cluster.hear(ended("a")).is_none(), "`b` may have launched it again");
        assert!(cluster.hear(ended("b")).is_some());
        cluster.tell(&Command::ReportTask {
            node: "n1".parse().unwrap(),
            job: "job-1".parse().unwrap(),
            attempt: 1,
            said: Said::Started,
        });
        assert!(cluster.hear(ended("a")).is_some(), "`b` never launches what is known to have started");
    }

    #[test]
    fn an_agent_that_says_nothing_of_its_wiring_is_understood() {
        let text = r#"{"node":"a","cpus":8,"memory_mib":1024,
            "gpus":[{"uuid":"x","model":"y","memory_mib":7},{"uuid":"z","model":"y","memory_mib":7}]}"#;
        let node = facts(muster_json::from_str(text).unwrap());
        assert_eq!((node.block.as_ref(), node.numa.len(), node.gpus[0].socket), (None, 0, None));
        assert_eq!(Wiring::of(&node).closeness(0b11), Closeness::Numa);
    }

    /// The command that a reading of 80 °C leads to, as cooling time in ms.
    fn cooling_ms(settings: Settings) -> Option<i64> {
        let mut state = State::default();
        let facts = registered(
            "nodes: [{name: n, cpus: 8, memory_gib: 64, gpus: {model: T4, count: 1, memory_mib: 16384}}]",
        )
        .remove(0);
        let node: NodeId = "n".parse().unwrap();
        let now = Timestamp(1_000);
        for command in [
            Command::Configure { settings: Box::new(settings) },
            Command::RegisterNode { node: node.clone(), facts: Box::new(facts) },
        ] {
            let decision = state.decide(&Actor::system(), &command, now).unwrap();
            decision.events.iter().for_each(|event| state.apply(event));
        }
        let reading = Reading { gpu: 0, temperature_c: Some(80), errors: 0, last_error: String::new() };
        match health(&state, node, reading, now)? {
            Command::SetGpuHealth { cooling_until, .. } => cooling_until.map(|until| until.since(now)),
            other => panic!("{other:?}"),
        }
    }

    /// What a GPU is after each of these: the declaration of an operator, or a temperature that its agent reads.
    fn health_after(steps: &[(Option<GpuWord>, i32)]) -> Vec<(GpuWord, String)> {
        let mut state = State::default();
        let facts = registered("nodes: [{name: n, count: 1, box: dgx-a100}]").remove(0);
        let (node, now): (NodeId, _) = ("n1".parse().unwrap(), Timestamp(1_000));
        let register = Command::RegisterNode { node: node.clone(), facts: Box::new(facts) };
        let tell = |state: &mut State, by: &Actor, command: &Command| {
            let decision = state.decide(by, command, now).unwrap();
            decision.events.iter().for_each(|event| state.apply(event));
        };
        tell(&mut state, &Actor::system(), &register);
        let mut seen = Vec::new();
        for (declared, celsius) in steps {
            let operator = Actor::local("ada");
            let command = match declared {
                Some(word) => Some(Command::SetGpuHealth {
                    node: node.clone(),
                    gpu: 0,
                    word: *word,
                    why: "fan".to_string(),
                    cooling_until: None,
                    temperature_c: None,
                    jobs: JobsOnGpu::Keep,
                }),
                None => {
                    let temperature_c = Some(*celsius);
                    let reading = Reading { gpu: 0, temperature_c, errors: 0, last_error: String::new() };
                    health(&state, node.clone(), reading, now)
                }
            };
            let by = if declared.is_some() { operator } else { Actor::system() };
            command.iter().for_each(|command| tell(&mut state, &by, command));
            let health = &state.nodes[&node].gpu_health[0];
            seen.push((health.word, health.why.clone()));
        }
        seen
    }

    #[test]
    fn no_reading_erases_what_an_operator_declared() {
        use GpuWord::{Degraded, Healthy, Unhealthy, Warning};
        let steps = [
            (None, 40),
            (Some(Degraded), 0),
            (None, 40),
            (None, 70),
            (None, 90),
            (Some(Warning), 0),
            (None, 70),
            (None, 40),
            (Some(Healthy), 0),
            (None, 70),
        ];
        let fan = |word| (word, "fan".to_string());
        let expected = vec![
            (Healthy, String::new()),
            fan(Degraded),
            fan(Degraded),
            fan(Degraded),
            (Unhealthy, "90 °C".to_string()),
            (Unhealthy, "its agent reads it as unhealthy".to_string()),
            fan(Warning),
            fan(Warning),
            fan(Healthy),
            (Warning, "70 °C".to_string()),
        ];
        assert_eq!(health_after(&steps), expected);
    }

    #[test]
    fn settings_say_when_a_gpu_cools_and_for_how_long() {
        let usual = Settings::default();
        assert_eq!(cooling_ms(usual.clone()), Some(usual.cooling_ms));
        assert_eq!(cooling_ms(Settings { cooling_ms: 7_000, ..usual.clone() }), Some(7_000));
        assert_eq!(cooling_ms(Settings { thermal_limit_c: 85, ..usual.clone() }), None);
        assert_eq!(cooling_ms(Settings { thermal: false, ..usual }), None);
    }
}

//! Step 11, report: reports of agents become commands, and nodes without heartbeats become suspect and unreachable.

use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};

use muster_agent::ReportSink;
use muster_core::facts::command::{JobsOnGpu, TaskReport};
use muster_core::gpu::device::{GpuFacts, GpuStatus, MigInstance, NumaFacts};
use muster_core::objects::job;
use muster_core::objects::node::{NodeFacts, PowerAction, Service, Sight};
use muster_core::{Actor, Command, JobId, NodeId, State, Timestamp};
use muster_protocol::agent::{Exit, INVALID_JOB, Registration, Report};
use tracing::{debug, warn};

use crate::clock::Clock;
use crate::cluster::{Cluster, ServerRole};
use crate::dispatch::DispatchInput;
use crate::readings::{Readings, reporting_node};
use crate::silence::{SilenceMonitor, SilenceTimeouts};

/// Turns reports into commands and detects silent nodes. Nothing here blocks: the simulator runs it too.
#[derive(Default)]
pub struct HeartbeatMonitor {
    silence: SilenceMonitor,
}

impl HeartbeatMonitor {
    pub fn new(timeouts: SilenceTimeouts) -> HeartbeatMonitor {
        HeartbeatMonitor { silence: SilenceMonitor::new(timeouts) }
    }

    /// The command for a report; `None` if the report changes nothing.
    pub fn command_for_report(&mut self, state: &State, report: Report, clock: &dyn Clock) -> Option<Command> {
        let Ok(node) = reporting_node(&report).parse::<NodeId>() else {
            warn!(node = reporting_node(&report), "ignored a report with an invalid node name");
            return None;
        };
        self.silence.record_report(&node, clock.elapsed());
        match report {
            Report::Registered(registration) => {
                Some(Command::RegisterNode { node, facts: Box::new(node_facts(*registration)) })
            }
            Report::Heartbeat { .. } => seen_after_silence(state, node),
            Report::Started { job, attempt, incarnation, .. } => {
                let job = job.parse().ok()?;
                let part = AttemptPart { node, job, attempt };
                part.accepts_report_from(state, &incarnation).then(|| part.report_command(TaskReport::Started))
            }
            Report::Ended { job, attempt, exit, stopped, ended_ms_ago, prolog_failed, incarnation, .. } => {
                let part = AttemptPart { node, job: job.parse().ok()?, attempt };
                let report = match exit {
                    Exit::NotStarted(why) if prolog_failed => TaskReport::PrologFailed { why },
                    exit => TaskReport::Ended { exit: exit_from_report(exit), stopped, ended_ms_ago },
                };
                part.accepts_report_from(state, &incarnation).then(|| part.report_command(report))
            }
            Report::EpilogFailed { job, attempt, why, incarnation, .. } => {
                let part = AttemptPart { node, job: job.parse().ok()?, attempt };
                let report = TaskReport::EpilogFailed { why };
                part.accepts_report_from(state, &incarnation).then(|| part.report_command(report))
            }
            Report::Unkillable { job, attempt, processes, incarnation, .. } => {
                let part = AttemptPart { node, job: job.parse().ok()?, attempt };
                let report = TaskReport::Unkillable { processes };
                part.accepts_report_from(state, &incarnation).then(|| part.report_command(report))
            }
            Report::NodeHealth { failure, incarnation, .. } => {
                let known = state.nodes.get(&node)?;
                let is_current = known.facts.incarnation == incarnation;
                let is_news =
                    failure.is_some() || known.health_failure.is_some() || known.state.service.status != Service::Ready;
                (is_current && is_news).then_some(Command::ReportHealth { node, failure })
            }
            Report::RebootFailed { why, incarnation, .. } => {
                let is_current = state.nodes.get(&node)?.facts.incarnation == incarnation;
                let failure = Some(format!("by its agent: {why}"));
                let attempts = Vec::new();
                is_current.then_some(Command::ReportPower { node, action: PowerAction::Reboot, failure, attempts })
            }
            Report::GpuReading { gpu, temperature_c, errors, last_error, .. } => {
                let reading = GpuHealthReading { gpu, temperature_c, errors, last_error };
                command_for_reading(state, node, reading, clock.now())
            }
        }
    }

    /// The commands for nodes that have not reported for too long, in the term of this server with this epoch.
    pub fn commands_for_silent_nodes(&mut self, state: &State, epoch: u64, clock: &dyn Clock) -> Vec<Command> {
        self.silence.commands(state, epoch, clock.elapsed())
    }

    /// This server does not lead.
    pub fn reset(&mut self) {
        self.silence.reset();
    }
}

/// The tasks of an attempt on one node.
struct AttemptPart {
    node: NodeId,
    job: JobId,
    attempt: u32,
}

impl AttemptPart {
    /// Whether a report of this incarnation of the agent counts. The report of a former incarnation counts once the part
    /// is recorded as started, because no later incarnation launches the part then. Before that, the newest incarnation
    /// may have launched the part again after the loss of a disk, and the report does not refer to that launch.
    fn accepts_report_from(&self, state: &State, incarnation: &str) -> bool {
        let known = state.nodes.get(&self.node).map(|node| node.facts.incarnation.as_str());
        let attempt = state.jobs.get(&self.job).and_then(|job| job.attempt());
        let attempt = attempt.filter(|attempt| attempt.number == self.attempt);
        let has_started = attempt.is_some_and(|attempt| attempt.reports.get(&self.node).is_some());
        known == Some(incarnation) || has_started
    }

    fn report_command(self, report: TaskReport) -> Command {
        Command::ReportTask { node: self.node, job: self.job, attempt: self.attempt, report }
    }
}

/// A heartbeat of a silent node makes it seen. What an operator fenced returns when its agent registers again, or when
/// an operator lifts the fence.
fn seen_after_silence(state: &State, node: NodeId) -> Option<Command> {
    let sight = &state.nodes.get(&node)?.state.sight;
    let returns = match sight.status {
        Sight::Seen => false,
        Sight::Suspect | Sight::Unreachable => true,
        Sight::Fenced => sight.by == Actor::system().name,
    };
    returns.then(|| Command::SetNodeSight { node, sight: Sight::Seen, silent_ms: 0, fenced: Vec::new() })
}

/// Receives the reports of the agents of a server.
pub struct ReportReceiver {
    cluster: Cluster,
    clock: Arc<dyn Clock>,
    heartbeats: Mutex<HeartbeatMonitor>,
    readings: Arc<Readings>,
    to_dispatch: Sender<DispatchInput>,
}

impl ReportReceiver {
    pub fn new(
        cluster: Cluster,
        clock: Arc<dyn Clock>,
        timeouts: SilenceTimeouts,
        to_dispatch: Sender<DispatchInput>,
    ) -> Arc<ReportReceiver> {
        let heartbeats = Mutex::new(HeartbeatMonitor::new(timeouts));
        Arc::new(ReportReceiver { cluster, clock, heartbeats, readings: Arc::default(), to_dispatch })
    }

    pub fn readings(&self) -> Arc<Readings> {
        self.readings.clone()
    }

    /// The callback through which agents in this process report.
    pub fn report_sink(self: &Arc<ReportReceiver>) -> ReportSink {
        let receiver = self.clone();
        Arc::new(move |report| receiver.receive(report))
    }

    /// Takes over a report of the agent of a node.
    pub fn receive(&self, report: Report) {
        self.readings.record(&report, self.clock.now());
        let heartbeat = DispatchInput::of_report(&report, self.clock.elapsed());
        self.cluster.read(|state| {
            let mut heartbeats = self.lock_heartbeats();
            let command = heartbeats.command_for_report(state, report, &*self.clock);
            // Under the lock: a fence that was measured before this report is enqueued before the command that makes the
            // node seen.
            command.into_iter().for_each(|command| self.enqueue(command));
        });
        if let Some(heartbeat) = heartbeat {
            // Only once it is recorded: dispatch acknowledges it, and the node counts on that. A failed send means that
            // the dispatch thread has ended: the server stops.
            drop(self.to_dispatch.send(heartbeat));
        }
    }

    /// Never blocks.
    fn enqueue(&self, command: Command) {
        // Agents repeat their reports, so a declined one is only delayed.
        if let Err(declined) = self.cluster.enqueue(Actor::system(), command) {
            debug!(%declined, "report not accepted");
        }
    }

    /// Change the state of silent nodes, and record readings that the state lacks. Called about once a second.
    pub fn report_silent_nodes(&self) {
        let ServerRole::Leading { term } = self.cluster.role() else {
            self.lock_heartbeats().reset();
            return;
        };
        self.cluster.read(|state| {
            self.readings.forget_unknown_nodes(self.clock.now(), |node| state.nodes.contains_key(node));
            let mut heartbeats = self.lock_heartbeats();
            let commands = heartbeats.commands_for_silent_nodes(state, term.epoch, &*self.clock);
            // Under the lock: see `receive`.
            commands.into_iter().for_each(|command| self.enqueue(command));
            drop(heartbeats);
            let readings = commands_for_unrecorded_readings(state, &self.readings, self.clock.now());
            readings.into_iter().for_each(|command| self.enqueue(command));
        });
    }

    fn lock_heartbeats(&self) -> std::sync::MutexGuard<'_, HeartbeatMonitor> {
        self.heartbeats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A registration of an agent as the core's node facts.
pub fn node_facts(registration: Registration) -> NodeFacts {
    let gpu = |gpu: muster_protocol::agent::RegisteredGpu| GpuFacts {
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
    let numa = |numa: muster_protocol::agent::RegisteredNumaNode| NumaFacts {
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
        heartbeat_interval_ms: registration.heartbeat_interval_ms,
        boot_id: registration.boot_id,
        simulated: registration.simulated,
    }
}

fn exit_from_report(exit: Exit) -> job::Exit {
    match exit {
        Exit::Code(code) => job::Exit::Code { code },
        Exit::Signal(signal) => job::Exit::Signal { signal },
        Exit::OutOfMemory { limit_mib } => job::Exit::OutOfMemory { limit_mib },
        Exit::NotStarted(why) => match why.strip_prefix(INVALID_JOB) {
            Some(why) => job::Exit::InvalidJob { why: why.to_string() },
            None => job::Exit::NotStarted { why },
        },
        Exit::Unknown(why) => job::Exit::Unknown { why },
    }
}

/// Health values of one GPU from its newest reading.
struct GpuHealthReading {
    gpu: u8,
    temperature_c: Option<i32>,
    errors: u32,
    last_error: String,
}

/// Commands for readings that were never recorded. Without policies, temperatures are not recorded and idle GPUs report
/// rarely; a newly applied policy must still see the current value of every GPU.
fn commands_for_unrecorded_readings(state: &State, readings: &Readings, now: Timestamp) -> Vec<Command> {
    if state.policies.rules().is_none() {
        return Vec::new();
    }
    let gpus = state.nodes.values().flat_map(|node| {
        let gpus = 0..node.gpu_health.len() as u8;
        gpus.map(|gpu| (node.id.clone(), gpu))
    });
    let command = |(node, gpu): (NodeId, u8)| {
        let newest = readings.latest_of_gpu(&node, gpu)?;
        let (temperature_c, errors) = (newest.temperature_c, newest.errors);
        let last_error = newest.last_error.unwrap_or_default();
        command_for_reading(state, node, GpuHealthReading { gpu, temperature_c, errors, last_error }, now)
    };
    gpus.filter_map(command).collect()
}

/// The command for a reading; `None` if the reading changes nothing.
fn command_for_reading(state: &State, node: NodeId, reading: GpuHealthReading, now: Timestamp) -> Option<Command> {
    let known = state.nodes.get(&node)?.gpu_health.get(usize::from(reading.gpu))?;
    let settings = &state.settings;
    let status = GpuStatus::of_reading(reading.temperature_c, reading.errors);
    let hot = settings.thermal && reading.temperature_c.is_some_and(|c| c > settings.thermal_limit_c);
    // While a GPU stays hot, its cooling time is extended only after half of it has passed: readings come every second.
    let recent = known.cooling_until.is_some_and(|until| until.since(now) > settings.cooling_ms / 2);
    let cooling_until = if hot && !recent { Some(now.plus(settings.cooling_ms)) } else { known.cooling_until };
    let policies_need_it = state.policies.rules().is_some() && known.is_worth_noting(reading.temperature_c);
    if status == known.reading_status() && cooling_until == known.cooling_until && !policies_need_it {
        return None;
    }
    let why = match (reading.temperature_c, status) {
        (_, GpuStatus::Healthy) => String::new(),
        (Some(celsius), _) if reading.last_error.is_empty() => format!("{celsius} °C"),
        (celsius, _) => format!("{} errors, {}; {:?} °C", reading.errors, reading.last_error, celsius),
    };
    let temperature_c = reading.temperature_c;
    let jobs = JobsOnGpu::Keep;
    Some(Command::SetGpuHealth { node, gpu: reading.gpu, status, why, cooling_until, temperature_c, jobs })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use muster_agent::Cluster;
    use muster_core::facts::command::SubmitJob;
    use muster_core::gpu::topology::{Locality, NodeTopology};
    use muster_core::objects::tenant::TenantConfig;
    use muster_core::{JobSpec, Settings};

    use super::*;

    /// A state with one job, placed on a node whose agent has the incarnation `b`.
    struct ReportFixture(State);

    impl ReportFixture {
        fn with_job() -> ReportFixture {
            let mut fixture = ReportFixture(State::empty());
            let config = Box::new(TenantConfig::unlimited("default"));
            fixture.execute(&Command::CreateTenant { id: "default".parse().unwrap(), config });
            let mut facts = facts_from_yaml("nodes: [{name: n, count: 1, box: dgx-a100}]").remove(0);
            facts.incarnation = "b".to_string();
            fixture.execute(&Command::RegisterNode { node: "n1".parse().unwrap(), facts: Box::new(facts) });
            let spec: JobSpec = muster_json::from_str(
                r#"{"name":"demo","tenant":"default","user":"ada","priority":100,"run":{"command":["true"]},
                    "tasks":[{"name":"task","count":1,"each":{"gpus":1,"cpus":1,"memory_mib":1}}]}"#,
            )
            .unwrap();
            fixture.execute(&Command::SubmitJob(SubmitJob {
                spec: Arc::new(spec),
                array: None,
                hold: false,
                key: None,
                is_operator: false,
                known_key: None,
                known_outcomes: BTreeMap::new(),
            }));
            let plan = Box::new(muster_core::planner::plan(&fixture.0, Timestamp(1)).plan);
            fixture.execute(&Command::AdoptPlan { plan, epoch: 1 });
            fixture
        }

        fn execute(&mut self, command: &Command) {
            let decision = self.0.decide(&Actor::system(), command, Timestamp(1)).unwrap();
            decision.events.iter().for_each(|event| self.0.apply(event));
        }

        fn command_for_report(&self, report: Report) -> Option<Command> {
            HeartbeatMonitor::default().command_for_report(&self.0, report, &crate::clock::SystemClock)
        }
    }

    fn facts_from_yaml(text: &str) -> Vec<NodeFacts> {
        Cluster::parse(text).unwrap().registrations().into_iter().map(node_facts).collect()
    }

    #[test]
    fn registration_keeps_the_whole_topology_of_a_node() {
        let nodes =
            facts_from_yaml("nodes: [{name: a, count: 3, box: dgx-a100, nodes_per_rack: 1, racks_per_block: 2}]");
        assert_eq!((nodes[2].rack.as_deref(), nodes[2].block.as_deref()), (Some("r3"), Some("b2")));
        let numa = &nodes[0].numa[7];
        assert_eq!((numa.cpus, numa.memory_mib, numa.socket), (16, 262_144, 1));
        assert_eq!(nodes[0].gpus[7].pcie_switch, Some(3));
        let topology = NodeTopology::of(&nodes[0].gpus, &nodes[0].numa);
        assert_eq!(topology.locality(0b0000_0011), Locality::NvlinkNuma);
        assert_eq!(topology.locality(0b0000_1111), Locality::NvlinkSocket);
        assert_eq!(topology.locality(0b0001_1111), Locality::NvlinkNode);
        assert_eq!(topology.numa_nodes(0b0001_0001), [3, 7]);
    }

    #[test]
    fn a_former_incarnation_may_report_only_parts_known_to_have_started() {
        let mut cluster = ReportFixture::with_job();
        let ended = |incarnation: &str| Report::Ended {
            node: "n1".to_string(),
            job: "job-1".to_string(),
            attempt: 1,
            exit: Exit::Code(0),
            stopped: false,
            ended_ms_ago: Some(5),
            prolog_failed: false,
            incarnation: incarnation.to_string(),
        };
        assert!(cluster.command_for_report(ended("a")).is_none(), "`b` may have launched it again");
        assert!(cluster.command_for_report(ended("b")).is_some());
        cluster.execute(&Command::ReportTask {
            node: "n1".parse().unwrap(),
            job: "job-1".parse().unwrap(),
            attempt: 1,
            report: TaskReport::Started,
        });
        assert!(cluster.command_for_report(ended("a")).is_some(), "`b` never launches what is known to have started");
    }

    #[test]
    fn reports_about_site_programs_become_commands() {
        let mut cluster = ReportFixture::with_job();
        let (node, job, incarnation) = (|| "n1".to_string(), || "job-1".to_string(), || "b".to_string());
        let health = |failure: Option<&str>| Report::NodeHealth {
            node: node(),
            failure: failure.map(str::to_string),
            incarnation: incarnation(),
        };
        assert!(cluster.command_for_report(health(None)).is_none(), "a healthy node in service is no news");
        let unhealthy = cluster.command_for_report(health(Some("ECC errors"))).unwrap();
        cluster.execute(&unhealthy);
        assert_eq!(cluster.0.nodes.values().next().unwrap().state.service.status, Service::Draining);
        assert!(cluster.command_for_report(health(None)).is_some());
        let ended = Report::Ended {
            node: node(),
            job: job(),
            attempt: 1,
            exit: Exit::NotStarted("prolog failed: exit code 1".to_string()),
            stopped: false,
            ended_ms_ago: Some(5),
            prolog_failed: true,
            incarnation: incarnation(),
        };
        cluster.execute(&cluster.command_for_report(ended).unwrap());
        let job = cluster.0.jobs.values().next().unwrap();
        assert!(job.is_queued() && job.requeues == 0 && job.restarts == 0, "{job:?}");
    }

    #[test]
    fn a_registration_without_topology_is_accepted() {
        let text = r#"{"node":"a","cpus":8,"memory_mib":1024,
            "gpus":[{"uuid":"x","model":"y","memory_mib":7},{"uuid":"z","model":"y","memory_mib":7}]}"#;
        let node = node_facts(muster_json::from_str(text).unwrap());
        assert_eq!((node.block.as_ref(), node.numa.len(), node.gpus[0].socket), (None, 0, None));
        assert_eq!(NodeTopology::of(&node.gpus, &node.numa).locality(0b11), Locality::Numa);
    }

    /// The cooling time in ms of the command for a reading of 80 °C.
    fn cooling_ms(settings: Settings) -> Option<i64> {
        let mut state = State::default();
        let facts = facts_from_yaml(
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
        let reading = GpuHealthReading { gpu: 0, temperature_c: Some(80), errors: 0, last_error: String::new() };
        match command_for_reading(&state, node, reading, now)? {
            Command::SetGpuHealth { cooling_until, .. } => cooling_until.map(|until| until.since(now)),
            other => panic!("{other:?}"),
        }
    }

    /// The health of a GPU after each step: the declaration of an operator, or else a temperature that its agent reads.
    fn health_after(steps: &[(Option<GpuStatus>, i32)]) -> Vec<(GpuStatus, String)> {
        let mut state = State::default();
        let facts = facts_from_yaml("nodes: [{name: n, count: 1, box: dgx-a100}]").remove(0);
        let (node, now): (NodeId, _) = ("n1".parse().unwrap(), Timestamp(1_000));
        let register = Command::RegisterNode { node: node.clone(), facts: Box::new(facts) };
        let execute = |state: &mut State, by: &Actor, command: &Command| {
            let decision = state.decide(by, command, now).unwrap();
            decision.events.iter().for_each(|event| state.apply(event));
        };
        execute(&mut state, &Actor::system(), &register);
        let mut seen = Vec::new();
        for (declared, celsius) in steps {
            let operator = Actor::local("ada");
            let command = match declared {
                Some(status) => Some(Command::SetGpuHealth {
                    node: node.clone(),
                    gpu: 0,
                    status: *status,
                    why: "fan".to_string(),
                    cooling_until: None,
                    temperature_c: None,
                    jobs: JobsOnGpu::Keep,
                }),
                None => {
                    let temperature_c = Some(*celsius);
                    let reading = GpuHealthReading { gpu: 0, temperature_c, errors: 0, last_error: String::new() };
                    command_for_reading(&state, node.clone(), reading, now)
                }
            };
            let by = if declared.is_some() { operator } else { Actor::system() };
            command.iter().for_each(|command| execute(&mut state, &by, command));
            let health = &state.nodes[&node].gpu_health[0];
            seen.push((health.status, health.why.clone()));
        }
        seen
    }

    #[test]
    fn a_gpu_reading_never_clears_the_health_an_operator_declared() {
        use GpuStatus::{Degraded, Healthy, Unhealthy, Warning};
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
        let fan = |status| (status, "fan".to_string());
        let expected = vec![
            (Healthy, String::new()),
            fan(Degraded),
            fan(Degraded),
            fan(Degraded),
            (Unhealthy, "90 °C".to_string()),
            (Unhealthy, "its agent reports it as unhealthy".to_string()),
            fan(Warning),
            fan(Warning),
            fan(Healthy),
            (Warning, "70 °C".to_string()),
        ];
        assert_eq!(health_after(&steps), expected);
    }

    #[test]
    fn settings_determine_when_a_gpu_cools_and_for_how_long() {
        let usual = Settings::default();
        assert_eq!(cooling_ms(usual.clone()), Some(usual.cooling_ms));
        assert_eq!(cooling_ms(Settings { cooling_ms: 7_000, ..usual.clone() }), Some(7_000));
        assert_eq!(cooling_ms(Settings { thermal_limit_c: 85, ..usual.clone() }), None);
        assert_eq!(cooling_ms(Settings { thermal: false, ..usual }), None);
    }

    #[test]
    fn a_job_that_no_node_can_start_is_told_from_a_failed_launch() {
        let why = "the working directory is missing".to_string();
        assert_eq!(exit_from_report(Exit::invalid_job(&why)), job::Exit::InvalidJob { why: why.clone() });
        assert_eq!(exit_from_report(Exit::NotStarted(why.clone())), job::Exit::NotStarted { why });
    }
}

//! The tables match the state: random commands are run through `decide` and the planner, each batch is appended, and
//! after every tenth batch the tables are compared with the state.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_core::facts::command::{ArraySpec, JobChange, SubmitJob, TaskReport};
use muster_core::gpu::device::GpuStatus;
use muster_core::gpu::gpu_share::GpuFraction;
use muster_core::objects::job::Job;
use muster_core::objects::job::{Dependency, DependencyWhen, Exit};
use muster_core::objects::node::{Lease, NodeState, NodeStatus, Sight, Slot};
use muster_core::planner::plan;
use muster_core::{Actor, Command, Event, JobId, State, Timestamp};
use muster_store::queries::{JobFilter, PageOrder, PageRequest, PageStart, UsageFilter, UsageGrouping};
use muster_store::rows::{JobRow, JobState};

use crate::fixtures::*;
use crate::test_database::TestDatabase;

contract!(tables_and_state_agree);

const SEED: u64 = 0x2545_f491_4f6c_dd1d;
const BATCHES: u64 = 250;

/// A state with random commands, without agents and without I/O.
struct Cluster {
    state: State,
    now: i64,
    random: SeededRandom,
    events: Vec<Event>,
}

impl Cluster {
    fn execute(&mut self, command: Command) {
        let by = Actor::local("ada");
        let (events, _) = self.state.decide_audited(&by, &command, Timestamp(self.now));
        for event in events {
            self.state.apply(&event);
            self.events.push(event);
        }
    }

    fn some_job(&mut self) -> JobId {
        let live: Vec<JobId> = self.state.jobs.keys().copied().collect();
        if live.is_empty() { job(1) } else { self.random.pick(&live) }
    }

    fn create_tenants_and_nodes(&mut self) {
        for event in [tenant("red", Some(10)), tenant("blue", None), node("n1", 8), node("n2", 4), node("n3", 8)] {
            match event {
                Event::TenantCreated { id, config, .. } => self.execute(Command::CreateTenant { id, config }),
                Event::NodeRegistered { node, facts, .. } => self.execute(Command::RegisterNode { node, facts }),
                _ => unreachable!(),
            }
        }
    }

    /// A gang over two nodes, whose tasks end one after the other. In the random part it would be rare.
    fn run_a_gang_over_two_nodes(&mut self) {
        let mut gang = spec("blue", "gang", 5);
        gang.tasks[0].count = 2;
        self.execute(Command::SubmitJob(SubmitJob {
            spec: Arc::new(gang),
            array: None,
            hold: false,
            key: None,
            known_outcomes: BTreeMap::new(),
            known_key: None,
            is_operator: true,
        }));
        self.plan();
        let placed = self.state.jobs[&job(1)].attempt().unwrap().clone();
        for node in placed.nodes() {
            let report = TaskReport::Ended { exit: Exit::Code { code: 0 }, stopped: false, ended_ms_ago: None };
            self.execute(Command::ReportTask { node, job: job(1), attempt: placed.number, report });
        }
    }

    fn submit(&mut self) {
        let tenant = self.random.pick(&["red", "blue"]);
        let mut job_spec = match self.random.below(3) {
            0 => shared_spec(tenant, 1 + self.random.below(4) as u32, self.random.pick(&[21, 250, 333, 500, 750])),
            _ => spec(tenant, "work", self.random.below(5) as u32),
        };
        job_spec.priority = self.random.pick(&[100, 500, 1_000, 5_000]);
        job_spec.restart.max_restarts = self.random.below(3) as u32;
        job_spec.time_limit_ms = self.random.pick(&[None, Some(5_000), Some(60_000)]);
        if self.random.below(5) == 0 {
            job_spec.start_after = Some(Timestamp(self.now + 3_000));
        }
        if self.random.below(5) == 0 {
            job_spec.after = vec![Dependency { job: self.some_job(), when: DependencyWhen::Succeeded }];
        }
        if self.random.below(3) == 0 {
            job_spec.labels.insert("team".to_string(), self.random.pick(&["x", "y"]).to_string());
        }
        let indexes = (0..1 + self.random.below(4) as u32).collect();
        let array = (self.random.below(4) == 0).then_some(ArraySpec { indexes, running_max: Some(2) });
        let hold = self.random.below(8) == 0;
        let (spec, known_outcomes) = (Arc::new(job_spec), BTreeMap::new());
        self.execute(Command::SubmitJob(SubmitJob {
            spec,
            array,
            hold,
            key: None,
            known_outcomes,
            known_key: None,
            is_operator: true,
        }));
    }

    fn control_a_job(&mut self) {
        let job = self.some_job();
        let command = match self.random.below(6) {
            0 => Command::CancelJob { job },
            1 => Command::HoldJob { job, why: "lunch".to_string() },
            2 | 3 => Command::ReleaseJob { job },
            4 => Command::RequeueJob { job },
            _ => {
                let labels = BTreeMap::from([("team".to_string(), "z".to_string())]);
                let priority = Some(self.random.below(2_000) as u32);
                let change = JobChange { priority, labels: Some(labels), ..JobChange::default() };
                Command::ChangeJob { job, change }
            }
        };
        self.execute(command);
    }

    fn change_a_node_or_quota(&mut self) {
        let node = self.random.pick(&["n1", "n2", "n3"]).parse().unwrap();
        let command = match self.random.below(6) {
            0 => {
                let words = [NodeStatus::Draining, NodeStatus::Hold, NodeStatus::Fenced, NodeStatus::Suspect];
                let status = self.random.pick(&words);
                Command::SetNodeState { node, status, why: "storm".to_string() }
            }
            1 => Command::SetNodeState { node, status: NodeStatus::Ready, why: "calm".to_string() },
            2 => Command::SetNodeSight { node, sight: Sight::Seen, silent_ms: 0, fenced: Vec::new() },
            3 => {
                let status = self.random.pick(&[GpuStatus::Healthy, GpuStatus::Degraded, GpuStatus::Unhealthy]);
                let gpu = self.random.below(8) as u8;
                Command::SetGpuHealth {
                    node,
                    gpu,
                    status,
                    why: "heat".to_string(),
                    cooling_until: None,
                    temperature_c: None,
                    jobs: muster_core::facts::command::JobsOnGpu::Keep,
                }
            }
            4 => {
                let gpus = self.random.pick(&[4, 6, 8]);
                let registered = self::node(self.random.pick(&["n1", "n2", "n3"]), gpus);
                let Event::NodeRegistered { node, facts, .. } = registered else { unreachable!() };
                Command::RegisterNode { node, facts }
            }
            _ => {
                let gpus = self.random.pick(&[Some(3), Some(12), None]);
                let Event::TenantChanged { id, config, .. } = tenant_changed("red", gpus) else { unreachable!() };
                Command::ChangeTenant { id, config }
            }
        };
        self.execute(command);
    }

    fn plan(&mut self) {
        let planned = plan(&self.state, Timestamp(self.now));
        self.execute(Command::AdoptPlan { plan: Box::new(planned.plan), epoch: 1 });
    }

    fn report(&mut self) {
        let id = self.some_job();
        let Some(attempt) = self.state.jobs.get(&id).and_then(Job::attempt).cloned() else { return };
        for node in attempt.nodes() {
            let exit = match self.random.below(4) {
                0 => Exit::Code { code: 0 },
                1 => Exit::Code { code: 1 },
                2 => Exit::Signal { signal: 15 },
                _ => Exit::NotStarted { why: "no such image".to_string() },
            };
            let report = match self.random.below(2) {
                0 => TaskReport::Started,
                _ => TaskReport::Ended { exit, stopped: attempt.stopping.is_some(), ended_ms_ago: None },
            };
            self.execute(Command::ReportTask { node, job: id, attempt: attempt.number, report });
        }
    }

    /// Events of a few random commands, as one batch.
    fn random_batch(&mut self) -> Vec<Event> {
        self.now += self.random.below(2_000) as i64;
        for _ in 0..1 + self.random.below(8) {
            match self.random.below(12) {
                0..=3 => self.submit(),
                4 => self.control_a_job(),
                5 => self.change_a_node_or_quota(),
                6 | 7 => self.plan(),
                8 => self.execute(Command::Tick),
                _ => self.report(),
            }
        }
        std::mem::take(&mut self.events)
    }
}

fn tables_and_state_agree(database: &dyn TestDatabase) {
    let mut cluster = Cluster { state: State::empty(), now: 1_000, random: SeededRandom(SEED), events: Vec::new() };
    let mut writer = JournalWriter::lead(database.open());
    cluster.create_tenants_and_nodes();
    cluster.run_a_gang_over_two_nodes();
    let mut kinds = std::collections::BTreeSet::new();
    let mut neighbours = 0;
    for batch in 0..BATCHES {
        let events = cluster.random_batch();
        kinds.extend(events.iter().map(Event::kind));
        if let Err(error) = writer.try_append(&events) {
            panic!("batch {batch}: {error}");
        }
        assert_eq!(cluster.state.check(), Vec::new());
        let devices = cluster.state.nodes.values().flat_map(|node| &node.holders);
        neighbours += devices.filter(|leases| leases.len() > 1).count();
        if batch % 10 == 9 {
            compare(&cluster.state, &writer, database, batch);
        }
    }
    // A run without these events would prove little.
    for kind in ["JobPlaced", "AttemptStopping", "AttemptEnded", "ClaimMade", "ClaimEnded", "NodePartEnded", "JobHeld"]
    {
        assert!(kinds.contains(kind), "{kind} never happened");
    }
    assert!(neighbours > 0, "no GPU was ever shared");
    let mut replayed = State::empty();
    writer
        .store
        .journal
        .replay(0, &mut |entry| {
            replayed.apply(&entry.event);
            Ok(())
        })
        .unwrap();
    assert_eq!(replayed, cluster.state);
}

fn compare(state: &State, writer: &JournalWriter, database: &dyn TestDatabase, batch: u64) {
    let page = PageRequest { start: PageStart::Offset(0), limit: 100_000, order: PageOrder::OldestFirst };
    let filter = JobFilter { active_only: true, ..JobFilter::default() };
    let live = writer.store.tables.jobs(&filter, &page).unwrap();
    assert_eq!(live.total, state.jobs.len() as u64, "batch {batch}");
    for (row, job) in live.rows.iter().zip(state.jobs.values()) {
        compare_job(row, job);
    }
    for (id, ended) in state.ended.iter().filter(|(id, _)| id.index.is_some()) {
        let outcomes = writer.store.tables.outcomes(&[*id]).unwrap();
        assert_eq!(outcomes.get(id), Some(&ended.outcome), "{id}");
    }
    compare_holders(state, database);
    compare_ledger(state, writer);
    let claims = database.sql("SELECT count(*) FROM claims WHERE ended_at IS NULL");
    assert_eq!(claims, state.claims.len().to_string(), "batch {batch}");
    let counted: u64 = writer.store.tables.job_counts().unwrap().iter().map(|row| row.jobs).sum();
    assert_eq!(counted.to_string(), database.sql("SELECT count(*) FROM jobs"));
}

fn compare_job(row: &JobRow, job: &Job) {
    let state = match (&job.phase, job.attempt()) {
        (muster_core::objects::job::Phase::Queued { preempted: true, .. }, _) => JobState::Preempted,
        (_, Some(attempt)) if attempt.phase_name() != "Starting" => JobState::Running,
        _ => JobState::Pending,
    };
    assert_eq!(row.id, job.id);
    assert_eq!((row.phase.as_str(), row.state), (job.phase_name(), state), "{}", job.id);
    assert_eq!((row.priority, &row.labels), (job.spec.priority, &job.spec.labels), "{}", job.id);
    assert_eq!(row.submitted_at, job.submitted_at.0);
    assert_eq!(row.attempt, job.attempts, "{}", job.id);
    let counts = (job.restarts, job.preemptions, job.requeues);
    assert_eq!((row.restarts, row.preemptions, row.requeues), counts, "{}", job.id);
    assert_eq!(row.wakes_at, job.wakes_at.map(|at| at.0), "{}", job.id);
    if let Some(attempt) = job.attempt() {
        assert_eq!(row.started_at, attempt.started_at.map(|at| at.0), "{}", job.id);
        let nodes: Vec<String> = attempt.nodes().iter().map(ToString::to_string).collect();
        assert_eq!(row.nodes, nodes, "{}", job.id);
    }
}

fn compare_holders(state: &State, database: &dyn TestDatabase) {
    for tenant in state.tenants.values() {
        let columns = ["gpu_milli", "gpu_memory_mib", "cpus", "memory_mib", "jobs"];
        let held = tenant.held;
        let wanted = [held.gpu_milli, held.gpu_memory_mib, held.cpus, held.memory_mib, held.jobs];
        for (column, wanted) in columns.iter().zip(wanted) {
            let used = database.sql(&format!("SELECT {column}_used FROM tenants WHERE id = '{}'", tenant.id));
            assert_eq!(used, wanted.to_string(), "{column} of {}", tenant.id);
        }
    }
    for node in state.nodes.values() {
        let held: usize = node.holders.iter().map(Vec::len).sum();
        let one = |sql: String| database.sql(&sql);
        let leases = one(format!("SELECT count(*) FROM leases WHERE node = '{}' AND to_ms IS NULL", node.id));
        assert_eq!(leases, held.to_string());
        let each: Vec<String> = (0..).zip(&node.holders).map(|(index, leases)| used(index, leases)).collect();
        let right = format!("SELECT count(*) FROM gpus WHERE node = '{}' AND ({})", node.id, each.join(" OR "));
        assert_eq!(database.sql(&right), node.holders.len().to_string(), "{right}");
        let row = |columns: &str| one(format!("SELECT {columns} FROM nodes WHERE id = '{}'", node.id));
        let state = node.state.combined();
        let text = |status: &str, by: &str, why: &str, since: Timestamp| format!("{status}/{by}/{why}/{}", since.0);
        let columns = |status: &str, prefix: &str, by: &str| {
            row(&format!("{status} || '/' || {by} || '/' || {prefix}why || '/' || {prefix}since"))
        };
        let word = text(state.status.as_str(), &state.by, &state.why, state.since);
        assert_eq!(columns("state", "", "set_by"), word, "{}", node.id);
        let NodeState { service, sight, .. } = &node.state;
        let service = text(service.status.as_str(), &service.by, &service.why, service.since);
        assert_eq!(columns("service", "service_", "service_by"), service, "{}", node.id);
        let sight = text(sight.status.as_str(), &sight.by, &sight.why, sight.since);
        assert_eq!(columns("sight", "sight_", "sight_by"), sight, "{}", node.id);
        let statuses: Vec<&str> = node.gpu_health.iter().map(|health| health.status.as_str()).collect();
        let sql = "SELECT health FROM gpus WHERE removed_at IS NULL AND node";
        for (index, status) in statuses.iter().enumerate() {
            assert_eq!(one(format!("{sql} = '{}' AND idx = {index}", node.id)), *status, "{} gpu-{index}", node.id);
        }
    }
}

/// SQL condition that matches a GPU with the usage of these leases.
fn used(index: usize, leases: &[Lease]) -> String {
    let (mut compute, mut memory) = (0, 0);
    for lease in leases {
        let fraction = match lease.slot {
            Slot::Whole => GpuFraction::WHOLE,
            Slot::Fraction(fraction) => fraction,
            Slot::Instance { .. } => panic!("no GPU is partitioned in this test"),
        };
        compute += fraction.compute;
        memory += fraction.memory;
    }
    format!("(idx = {index} AND used_milli = {compute} AND used_memory_milli = {memory})")
}

fn compare_ledger(state: &State, writer: &JournalWriter) {
    let span = UsageFilter { from_ms: 0, to_ms: i64::MAX, tenants: None };
    let rows = writer.store.tables.usage(&span, UsageGrouping::Tenant).unwrap();
    for row in rows {
        let used = state.ledger.account(&row.key.parse().unwrap()).used;
        assert_eq!(
            (row.gpu_ms, row.cpu_ms, row.memory_gib_ms, row.energy_mj),
            (used.gpu_ms, used.cpu_ms, used.memory_gib_ms, used.energy_mj)
        );
    }
}

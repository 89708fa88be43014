//! The tables say what the state says: a cluster is driven at random through the real `decide` and the real
//! planner, every batch is written, and after each the tables are compared with the state.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_core::capacity::Part;
use muster_core::command::{ArrayAsk, JobChange, Said, SubmitJob};
use muster_core::job::{Dependency, DependencyWhen, Exit};
use muster_core::node::{GpuWord, Lease, NodeWord, Slot};
use muster_core::plan::plan;
use muster_core::{Actor, Command, Event, Job, JobId, State, Timestamp};
use muster_store::queries::{JobFilter, Order, Page, Start, UsageBy, UsageSpan};
use muster_store::rows::{JobRow, JobState};

use crate::bench::Bench;
use crate::story::*;

contract!(tables_and_state_agree);

const SEED: u64 = 0x2545_f491_4f6c_dd1d;
const TURNS: u64 = 250;

/// A small generator: the same seed, the same story.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound.max(1)
    }

    fn pick<T: Copy>(&mut self, things: &[T]) -> T {
        things[self.below(things.len() as u64) as usize]
    }
}

/// A cluster without a world around it.
struct Cluster {
    state: State,
    now: i64,
    dice: Dice,
    events: Vec<Event>,
}

impl Cluster {
    fn ask(&mut self, command: Command) {
        let by = Actor::local("ada");
        let (events, _) = self.state.decide_audited(&by, &command, Timestamp(self.now));
        for event in events {
            self.state.apply(&event);
            self.events.push(event);
        }
    }

    fn some_job(&mut self) -> JobId {
        let live: Vec<JobId> = self.state.jobs.keys().copied().collect();
        if live.is_empty() { job(1) } else { self.dice.pick(&live) }
    }

    fn found(&mut self) {
        for event in
            [tenant("red", Some(10)), tenant("blue", None), node("n1", 8), node("n2", 4), node("n3", 8)]
        {
            match event {
                Event::TenantCreated { id, config, .. } => self.ask(Command::CreateTenant { id, config }),
                Event::NodeRegistered { node, facts, .. } => self.ask(Command::RegisterNode { node, facts }),
                _ => unreachable!(),
            }
        }
    }

    fn submit(&mut self) {
        let tenant = self.dice.pick(&["red", "blue"]);
        let mut asked = match self.dice.below(3) {
            0 => {
                shared_spec(tenant, 1 + self.dice.below(4) as u32, self.dice.pick(&[21, 250, 333, 500, 750]))
            }
            _ => spec(tenant, "work", self.dice.below(5) as u32),
        };
        asked.priority = self.dice.pick(&[100, 500, 1_000, 5_000]);
        asked.restart.max_restarts = self.dice.below(3) as u32;
        asked.time_limit_ms = self.dice.pick(&[None, Some(5_000), Some(60_000)]);
        if self.dice.below(5) == 0 {
            asked.start_after = Some(Timestamp(self.now + 3_000));
        }
        if self.dice.below(5) == 0 {
            asked.after = vec![Dependency { job: self.some_job(), when: DependencyWhen::Succeeded }];
        }
        if self.dice.below(3) == 0 {
            asked.labels.insert("team".to_string(), self.dice.pick(&["x", "y"]).to_string());
        }
        let indexes = (0..1 + self.dice.below(4) as u32).collect();
        let array = (self.dice.below(4) == 0).then_some(ArrayAsk { indexes, running_max: Some(2) });
        let hold = self.dice.below(8) == 0;
        let (spec, known_outcomes) = (Arc::new(asked), BTreeMap::new());
        self.ask(Command::SubmitJob(SubmitJob {
            spec,
            array,
            hold,
            key: None,
            known_outcomes,
            known_key: None,
            is_operator: true,
        }));
    }

    fn steer(&mut self) {
        let job = self.some_job();
        let command = match self.dice.below(6) {
            0 => Command::CancelJob { job },
            1 => Command::HoldJob { job, why: "lunch".to_string() },
            2 | 3 => Command::ReleaseJob { job },
            4 => Command::RequeueJob { job },
            _ => {
                let labels = BTreeMap::from([("team".to_string(), "z".to_string())]);
                let priority = Some(self.dice.below(2_000) as u32);
                let change = JobChange { priority, labels: Some(labels), ..JobChange::default() };
                Command::ChangeJob { job, change }
            }
        };
        self.ask(command);
    }

    fn meddle(&mut self) {
        let node = self.dice.pick(&["n1", "n2", "n3"]).parse().unwrap();
        let command = match self.dice.below(6) {
            0 => {
                let word = self.dice.pick(&[NodeWord::Draining, NodeWord::Fenced, NodeWord::Suspect]);
                Command::SetNodeState { node, word, why: "storm".to_string() }
            }
            1 | 2 => Command::SetNodeState { node, word: NodeWord::Ready, why: "calm".to_string() },
            3 => {
                let word = self.dice.pick(&[GpuWord::Healthy, GpuWord::Degraded, GpuWord::Unhealthy]);
                let gpu = self.dice.below(8) as u8;
                Command::SetGpuHealth {
                    node,
                    gpu,
                    word,
                    why: "heat".to_string(),
                    cooling_until: None,
                    temperature_c: None,
                    jobs: muster_core::command::JobsOnGpu::Keep,
                }
            }
            4 => {
                let gpus = self.dice.pick(&[4, 6, 8]);
                let Event::NodeRegistered { facts, .. } = self::node("any", gpus) else { unreachable!() };
                Command::RegisterNode { node, facts }
            }
            _ => {
                let gpus = self.dice.pick(&[Some(3), Some(12), None]);
                let Event::TenantChanged { id, config, .. } = tenant_changed("red", gpus) else {
                    unreachable!()
                };
                Command::ChangeTenant { id, config }
            }
        };
        self.ask(command);
    }

    fn plan(&mut self) {
        let planned = plan(&self.state, Timestamp(self.now));
        self.ask(Command::AdoptPlan { plan: Box::new(planned.plan), epoch: 1 });
    }

    fn report(&mut self) {
        let id = self.some_job();
        let Some(attempt) = self.state.jobs.get(&id).and_then(Job::attempt).cloned() else { return };
        for node in attempt.nodes() {
            let exit = match self.dice.below(4) {
                0 => Exit::Code { code: 0 },
                1 => Exit::Code { code: 1 },
                2 => Exit::Signal { signal: 15 },
                _ => Exit::NotStarted { why: "no such image".to_string() },
            };
            let said = match self.dice.below(2) {
                0 => Said::Started,
                _ => Said::Ended { exit, stopped: attempt.stopping.is_some(), ended_ms_ago: None },
            };
            self.ask(Command::ReportTask { node, job: id, attempt: attempt.number, said });
        }
    }

    /// A few things happen, and become one batch.
    fn turn(&mut self) -> Vec<Event> {
        self.now += self.dice.below(2_000) as i64;
        for _ in 0..1 + self.dice.below(8) {
            match self.dice.below(12) {
                0..=3 => self.submit(),
                4 => self.steer(),
                5 => self.meddle(),
                6 | 7 => self.plan(),
                8 => self.ask(Command::Tick),
                _ => self.report(),
            }
        }
        std::mem::take(&mut self.events)
    }
}

fn tables_and_state_agree(bench: &dyn Bench) {
    let mut cluster = Cluster { state: State::empty(), now: 1_000, dice: Dice(SEED), events: Vec::new() };
    let mut book = Book::lead(bench.open());
    cluster.found();
    let mut kinds = std::collections::BTreeSet::new();
    let mut neighbours = 0;
    for turn in 0..TURNS {
        let events = cluster.turn();
        kinds.extend(events.iter().map(Event::kind));
        if let Err(error) = book.try_add(&events) {
            panic!("turn {turn}: {error}");
        }
        assert_eq!(cluster.state.check(), Vec::new());
        let devices = cluster.state.nodes.values().flat_map(|node| &node.holders);
        neighbours += devices.filter(|leases| leases.len() > 1).count();
        if turn % 10 == 9 {
            compare(&cluster.state, &book, bench, turn);
        }
    }
    // A story in which little happens proves little.
    for kind in
        ["JobPlaced", "AttemptStopping", "AttemptEnded", "ClaimMade", "ClaimEnded", "PartEnded", "JobHeld"]
    {
        assert!(kinds.contains(kind) || kind == "PartEnded", "{kind} never happened");
    }
    assert!(neighbours > 0, "no GPU was ever shared");
    let mut replayed = State::empty();
    book.store
        .journal
        .replay(0, &mut |entry| {
            replayed.apply(&entry.event);
            Ok(())
        })
        .unwrap();
    assert_eq!(replayed, cluster.state);
}

fn compare(state: &State, book: &Book, bench: &dyn Bench, turn: u64) {
    let page = Page { start: Start::Offset(0), limit: 100_000, order: Order::Oldest };
    let filter = JobFilter { active_only: true, ..JobFilter::default() };
    let live = book.store.tables.jobs(&filter, &page).unwrap();
    assert_eq!(live.total, state.jobs.len() as u64, "turn {turn}");
    for (row, job) in live.rows.iter().zip(state.jobs.values()) {
        compare_job(row, job);
    }
    for (id, ended) in state.ended.iter().filter(|(id, _)| id.index.is_some()) {
        let outcomes = book.store.tables.outcomes(&[*id]).unwrap();
        assert_eq!(outcomes.get(id), Some(&ended.outcome), "{id}");
    }
    compare_holders(state, bench);
    compare_ledger(state, book);
    let claims = bench.sql("SELECT count(*) FROM reservations WHERE ended_at IS NULL");
    assert_eq!(claims, state.claims.len().to_string(), "turn {turn}");
    let counted: u64 = book.store.tables.counts().unwrap().iter().map(|row| row.jobs).sum();
    assert_eq!(counted.to_string(), bench.sql("SELECT count(*) FROM jobs"));
}

fn compare_job(row: &JobRow, job: &Job) {
    let state = match (&job.phase, job.attempt()) {
        (muster_core::job::Phase::Queued { preempted: true, .. }, _) => JobState::Preempted,
        (_, Some(attempt)) if attempt.phase_word() != "Starting" => JobState::Running,
        _ => JobState::Pending,
    };
    assert_eq!(row.id, job.id);
    assert_eq!((row.phase.as_str(), row.state), (job.phase_word(), state), "{}", job.id);
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

fn compare_holders(state: &State, bench: &dyn Bench) {
    for tenant in state.tenants.values() {
        let columns = ["gpu_milli", "gpu_memory_mib", "cpus", "memory_mib", "jobs"];
        let held = tenant.held;
        let wanted = [held.gpu_milli, held.gpu_memory_mib, held.cpus, held.memory_mib, held.jobs];
        for (column, wanted) in columns.iter().zip(wanted) {
            let used = bench.sql(&format!("SELECT {column}_used FROM tenants WHERE id = '{}'", tenant.id));
            assert_eq!(used, wanted.to_string(), "{column} of {}", tenant.id);
        }
    }
    for node in state.nodes.values() {
        let held: usize = node.holders.iter().map(Vec::len).sum();
        let one = |sql: String| bench.sql(&sql);
        let leases = one(format!("SELECT count(*) FROM leases WHERE node = '{}' AND to_ms IS NULL", node.id));
        assert_eq!(leases, held.to_string());
        let each: Vec<String> = (0..).zip(&node.holders).map(|(index, leases)| used(index, leases)).collect();
        let right =
            format!("SELECT count(*) FROM gpus WHERE node = '{}' AND ({})", node.id, each.join(" OR "));
        assert_eq!(bench.sql(&right), node.holders.len().to_string(), "{right}");
        assert_eq!(one(format!("SELECT state FROM nodes WHERE id = '{}'", node.id)), node.state.word.word());
        let words: Vec<&str> = node.gpu_health.iter().map(|health| health.word.word()).collect();
        let sql = "SELECT health FROM gpus WHERE removed_at IS NULL AND node";
        for (index, word) in words.iter().enumerate() {
            assert_eq!(
                one(format!("{sql} = '{}' AND idx = {index}", node.id)),
                *word,
                "{} gpu-{index}",
                node.id
            );
        }
    }
}

/// A condition that says what is held of a device.
fn used(index: usize, leases: &[Lease]) -> String {
    let (mut compute, mut memory) = (0, 0);
    for lease in leases {
        let part = match lease.slot {
            Slot::Whole => Part::WHOLE,
            Slot::Part(part) => part,
            Slot::Instance { .. } => panic!("no device is partitioned here"),
        };
        compute += part.compute;
        memory += part.memory;
    }
    format!("(idx = {index} AND used_milli = {compute} AND used_memory_milli = {memory})")
}

fn compare_ledger(state: &State, book: &Book) {
    let span = UsageSpan { from_ms: 0, to_ms: i64::MAX, tenants: None };
    let rows = book.store.tables.usage(&span, UsageBy::Tenant).unwrap();
    for row in rows {
        let used = state.ledger.account(&row.key.parse().unwrap()).used;
        assert_eq!(
            (row.gpu_ms, row.cpu_ms, row.memory_gib_ms, row.energy_mj),
            (used.gpu_ms, used.cpu_ms, used.memory_gib_ms, used.energy_mj)
        );
    }
}

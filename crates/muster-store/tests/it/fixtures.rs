//! Test fixtures: events, a writer that appends them to a journal, and a random number generator.

use std::sync::Arc;

use muster_core::facts::command::ArraySpec;
use muster_core::facts::event::{Event, NextPhase};
use muster_core::gpu::device::GpuFacts;
use muster_core::gpu::gpu_share::{Share, ShareMode};
use muster_core::objects::charge::Charge;
use muster_core::objects::job::{Exit, JobSpec, Outcome, PlacedTask};
use muster_core::objects::tenant::{Quota, TenantConfig};
use muster_core::{JobId, Timestamp};
use muster_store::{Entry, Leadership, Store, StoreError};

/// Longer than any test.
pub const LEASE_MS: i64 = 600_000;

/// A store that holds leadership, and the number of its last entry.
pub struct JournalWriter {
    pub store: Store,
    pub epoch: u64,
    pub seq: u64,
}

impl JournalWriter {
    pub fn lead(store: Store) -> JournalWriter {
        JournalWriter::lead_from(store, 0)
    }

    /// Lead a store whose journal already has `seq` entries.
    pub fn lead_from(mut store: Store, seq: u64) -> JournalWriter {
        match store.journal.acquire_leadership("test", LEASE_MS).unwrap() {
            Leadership::Leading { epoch, .. } => JournalWriter { store, epoch, seq },
            standby => panic!("{standby:?}"),
        }
    }

    pub fn batch(&self, events: &[Event]) -> Vec<Entry> {
        let entry = |(event, seq): (&Event, u64)| Entry {
            seq,
            epoch: self.epoch,
            at: Timestamp(seq as i64 * 1_000),
            event: event.clone(),
        };
        events.iter().zip(self.seq + 1..).map(entry).collect()
    }

    pub fn try_append(&mut self, events: &[Event]) -> Result<(), StoreError> {
        self.store.journal.append(&self.batch(events))?;
        self.seq += events.len() as u64;
        Ok(())
    }

    pub fn append(&mut self, events: &[Event]) {
        self.try_append(events).unwrap();
    }

    pub fn replay(&mut self, after: u64) -> Result<Vec<Entry>, StoreError> {
        let mut entries = Vec::new();
        let last = self.store.journal.replay(after, &mut |entry| {
            entries.push(entry);
            Ok(())
        })?;
        assert_eq!(last, entries.last().map_or(after, |entry| entry.seq));
        Ok(entries)
    }
}

/// An event that changes no row.
pub const NOOP_EVENT: Event = Event::Forgotten { before: Timestamp(0), trimmed_before: None };

/// Xorshift generator: the same seed gives the same numbers, so a failure can be reproduced.
pub struct SeededRandom(pub u64);

impl SeededRandom {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound.max(1)
    }

    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len() as u64) as usize]
    }
}

pub fn job(number: u64) -> JobId {
    JobId::single(number)
}

pub fn tenant(name: &str, gpus: Option<u64>) -> Event {
    Event::TenantCreated { id: name.parse().unwrap(), config: Box::new(config(name, gpus)), at: Timestamp(1) }
}

pub fn tenant_changed(name: &str, gpus: Option<u64>) -> Event {
    Event::TenantChanged { id: name.parse().unwrap(), config: Box::new(config(name, gpus)), at: Timestamp(2) }
}

fn config(name: &str, gpus: Option<u64>) -> TenantConfig {
    TenantConfig { maximum: Quota { gpus, ..Quota::default() }, ..TenantConfig::unlimited(name) }
}

pub fn node(name: &str, gpus: usize) -> Event {
    let gpu = |index: usize| GpuFacts {
        memory_mib: 143_000,
        power_limit_milliwatts: Some(700_000),
        ..muster_testing::gpu(&format!("GPU-{name}-{index}"), "NVIDIA H200")
    };
    let facts = muster_testing::node()
        .hostname(&format!("{name}.example"))
        .address("10.0.0.1")
        .cpus(64)
        .memory_mib(512_000)
        .gpu_facts((0..gpus).map(gpu))
        .rack("r1")
        .agent_version("0.1.0")
        .build();
    Event::NodeRegistered { node: name.parse().unwrap(), facts: Box::new(facts), at: Timestamp(3) }
}

pub fn spec(tenant: &str, name: &str, gpus: u32) -> JobSpec {
    muster_testing::job()
        .name(name)
        .tenant(tenant)
        .group_name("worker")
        .gpus(gpus)
        .gpu_memory_mib(1_000)
        .cpus(4)
        .memory_mib(8_192)
        .limit_ms(60_000)
        .build()
}

/// A job whose tasks ask for a share of a GPU each.
pub fn shared_spec(tenant: &str, tasks: u32, compute_milli: u32) -> JobSpec {
    let mut spec = spec(tenant, "notebook", 1);
    spec.tasks[0].count = tasks;
    spec.tasks[0].each.gpu_compute_milli = compute_milli;
    spec
}

pub fn submitted(number: u64, spec: JobSpec) -> Event {
    Event::JobSubmitted {
        job: job(number),
        spec: Arc::new(spec),
        array: None,
        held_by: None,
        key: None,
        open_dependencies: Default::default(),
        at: Timestamp(10 + number as i64),
    }
}

pub fn submit(number: u64, tenant: &str, gpus: u32) -> Event {
    submitted(number, spec(tenant, &format!("train-{number}"), gpus))
}

pub fn submit_array(number: u64, tenant: &str, tasks: u32) -> Event {
    let Event::JobSubmitted { job, spec, held_by, key, open_dependencies, at, .. } = submit(number, tenant, 1) else {
        unreachable!()
    };
    let array = Some(ArraySpec { indexes: (0..tasks).collect(), running_max: None });
    Event::JobSubmitted { job, spec, array, held_by, key, open_dependencies, at }
}

pub fn placed_task(node: &str, gpus: &[u8]) -> PlacedTask {
    PlacedTask { rank: 0, group: 0, node: node.parse().unwrap(), gpus: gpus.to_vec(), share: None }
}

/// A task with a share of one GPU: thousandths of compute and of memory.
pub fn placed_share((node, gpu): (&str, u8), (compute_milli, memory_milli): (u32, u32), mode: ShareMode) -> PlacedTask {
    let memory_mib = u64::from(memory_milli) * 143;
    let share = Share { compute_milli, memory_milli, memory_mib, mode };
    PlacedTask { share: Some(Box::new(share)), ..placed_task(node, &[gpu]) }
}

pub fn placed(job: JobId, attempt: u32, node: &str, gpus: &[u8]) -> Event {
    placed_tasks(job, attempt, vec![placed_task(node, gpus)])
}

/// The tasks get ranks in order.
pub fn placed_tasks(job: JobId, attempt: u32, mut tasks: Vec<PlacedTask>) -> Event {
    for (rank, task) in (0..).zip(&mut tasks) {
        task.rank = rank;
    }
    Event::JobPlaced {
        job,
        attempt,
        epoch: 1,
        tasks,
        effective_priority: None,
        expected_ms: None,
        revocable: false,
        score: None,
        held: None,
        self_fence: None,
        master_port: None,
        start_bound_ms: None,
        at: Timestamp(100),
    }
}

pub fn started(job: JobId, attempt: u32, node: &str) -> Event {
    Event::AttemptStarted { job, attempt, node: node.parse().unwrap(), whole: true, at: Timestamp(200) }
}

pub fn attempt_ended(job: JobId, attempt: u32, code: i32, next: NextPhase) -> Event {
    let charge = Charge { gpu_ms: 900, cpu_ms: 3_600, memory_gib_ms: 7_200, cost_micro: 5, energy_mj: 0 };
    Event::AttemptEnded {
        job,
        attempt,
        exit: Exit::Code { code },
        next,
        charge,
        receipt: None,
        charged_until: None,
        held: None,
        at: Timestamp(1_000),
    }
}

pub fn done(job: JobId, attempt: u32) -> Event {
    attempt_ended(job, attempt, 0, NextPhase::Ended { outcome: Outcome::Done, why: "exit code 0".to_string() })
}

pub fn failed(job: JobId, attempt: u32) -> Event {
    attempt_ended(job, attempt, 3, NextPhase::Ended { outcome: Outcome::Failed, why: "exit code 3".to_string() })
}

pub fn cancelled(job: JobId) -> Event {
    Event::JobEnded { job, outcome: Outcome::Cancelled, why: "cancelled by ada".to_string(), at: Timestamp(50) }
}

pub fn token(id: &str) -> Event {
    let token = muster_core::objects::token::Token {
        id: id.to_string(),
        hash: "5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8".to_string(),
        name: "ci".to_string(),
        role: muster_core::objects::token::Role::Member,
        tenant: Some("red".parse().unwrap()),
        made_at: Timestamp(4),
        expires_at: Some(Timestamp(9_000_000)),
        priority_max: None,
    };
    Event::TokenAdded { token, at: Timestamp(4) }
}

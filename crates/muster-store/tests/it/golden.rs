//! A journal of each release stays readable for ever.
//!
//! The file was written by the release it is named after and is never changed. `MUSTER_BLESS=1` writes that of
//! the release under work.

use std::collections::BTreeSet;
use std::path::PathBuf;

use muster_core::command::{IdempotencyKey, JobChange};
use muster_core::event::{Back, Next};
use muster_core::job::{Dependency, DependencyWhen, Exit, Outcome, PlacedTask, StopCause};
use muster_core::node::{GpuWord, NodeWord};
use muster_core::{Event, GpuId, JobId, State, Timestamp};
use muster_store::{Entry, Record};

use crate::bench::Bench;
use crate::story::*;

contract!(a_golden_journal_fills_the_tables);

fn file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v0.1.journal.jsonl")
}

fn records() -> Vec<Record> {
    if std::env::var_os("MUSTER_BLESS").is_some() {
        bless();
    }
    let text = std::fs::read_to_string(file()).unwrap();
    text.lines().map(|line| muster_json::from_str(line).unwrap()).collect()
}

fn bless() {
    let entries =
        (1..).zip(story()).map(|(seq, event)| Entry { seq, epoch: 1, at: Timestamp(seq as i64), event });
    let lines: Vec<String> =
        entries.map(|entry| muster_json::to_string(&Record::of(&entry)) + "\n").collect();
    std::fs::write(file(), lines.concat()).unwrap();
}

#[test]
fn a_golden_journal_is_readable() {
    let mut kinds = BTreeSet::new();
    for (record, seq) in records().iter().zip(1..) {
        assert_eq!(record.seq, seq);
        let entry = record.entry().unwrap();
        kinds.insert(entry.event.kind());
    }
    let wanted: BTreeSet<&str> = story().iter().map(Event::kind).collect();
    assert_eq!(kinds, wanted);
    assert_eq!(kinds.len(), 26, "every kind of event that there was in 0.1");
}

/// The fields that were there then still mean the same.
#[test]
fn a_golden_journal_means_what_it_meant() {
    let events: Vec<Event> = records().iter().map(|record| record.entry().unwrap().event).collect();
    assert_eq!(events, story());
}

#[test]
fn a_golden_journal_can_be_applied() {
    let mut state = State::empty();
    for record in records() {
        state.apply(&record.entry().unwrap().event);
    }
    assert_eq!(state.seq, story().len() as u64);
}

fn a_golden_journal_fills_the_tables(bench: &dyn Bench) {
    let mut book = Book::lead(bench.open());
    let entries: Vec<Entry> = records().iter().map(|record| record.entry().unwrap()).collect();
    book.store.journal.append(&entries).unwrap();
    assert_eq!(book.replay(0).unwrap(), entries);
}

/// A story in which everything happens that can happen.
fn story() -> Vec<Event> {
    let at = Timestamp(500);
    let n1 = || "n1".parse().unwrap();
    let task = |index| JobId::of_array(4, index);
    let mut events = vec![
        Event::Configured { settings: Box::default(), at },
        tenant("red", Some(8)),
        tenant_changed("red", Some(6)),
        tenant("old", None),
        Event::TenantDeleted { id: "old".parse().unwrap(), at },
        token("t-1"),
        Event::TokenRevoked { id: "t-1".to_string(), at },
        node("n1", 8),
        node("n2", 4),
        Event::NodeStateChanged {
            node: "n2".parse().unwrap(),
            word: NodeWord::Draining,
            by: "ada".to_string(),
            why: "new fan".to_string(),
            at,
        },
        Event::NodeRemoved { node: "n2".parse().unwrap(), at },
        Event::GpuHealthChanged {
            gpu: GpuId { node: n1(), index: 7 },
            word: GpuWord::Warning,
            why: "68 °C".to_string(),
            cooling_until: Some(Timestamp(9_000)),
            temperature_c: None,
            declared: None,
            read: None,
            jobs: Vec::new(),
            at,
        },
        submit(1, "red", 2),
        submit_after_one(),
        Event::JobHeld { job: job(2), by: "ada".to_string(), why: "not yet".to_string(), at },
        Event::JobReleased { job: job(2), by: "ada".to_string(), at },
        Event::JobChanged {
            job: job(2),
            change: JobChange {
                name: Some("renamed".to_string()),
                priority: Some(900),
                ..JobChange::default()
            },
            at,
        },
        Event::JobWoken { job: job(2), at },
        submit(3, "red", 2),
        submit_array(4, "red", 2),
        placed(job(1), 1, "n1", &[0, 1]),
        started(job(1), 1, "n1"),
        Event::ClaimMade {
            job: job(3),
            tasks: vec![PlacedTask { rank: 0, group: 0, node: n1(), gpus: vec![0, 1], share: None }],
            victims: vec![job(1)],
            at,
            until: Timestamp(60_500),
        },
        Event::AttemptStopping {
            job: job(1),
            attempt: 1,
            cause: StopCause::Preempted { by: job(3) },
            grace_ms: 30_000,
            at,
        },
        attempt_ended(job(1), 1, 143, Next::Queued { because: Back::Preempted, wakes_at: None }),
        Event::ClaimEnded { job: job(3), why: "its job has started".to_string(), at },
        placed(job(3), 1, "n1", &[0, 1]),
        Event::PlanAdopted { snapshot: 26, now: at, placed: 1, claimed: 0, left: 0 },
        Event::PartEnded {
            job: job(3),
            attempt: 1,
            node: n1(),
            exit: Exit::Code { code: 0 },
            stopped: false,
            ended_at: None,
            at,
        },
        done(job(3), 1),
    ];
    events.extend([
        Event::JobEnded {
            job: task(0),
            outcome: Outcome::Cancelled,
            why: "cancelled by ada".to_string(),
            at,
        },
        placed(task(1), 1, "n1", &[2]),
        Event::AttemptEnded {
            receipt: None,
            job: task(1),
            attempt: 1,
            exit: Exit::NotStarted { why: "no such image".to_string() },
            next: Next::Ended { outcome: Outcome::Failed, why: "no such image".to_string() },
            charge: Default::default(),
            charged_until: None,
            held: None,
            at,
        },
        Event::Acted {
            times: 1,
            by: "ada".to_string(),
            by_kind: None,
            act: "tenant.change".to_string(),
            object: "red".to_string(),
            refused: Some("unknown-tenant".to_string()),
            at,
        },
        Event::Forgotten { before: Timestamp(1), trimmed_before: None },
    ]);
    events
}

/// With everything about it that can be said.
fn submit_after_one() -> Event {
    let mut asked = spec("red", "eval", 1);
    asked.start_after = Some(Timestamp(5_000));
    asked.after = vec![Dependency { job: job(1), when: DependencyWhen::Succeeded }];
    asked.labels.insert("team".to_string(), "vision".to_string());
    asked.annotations.insert("muster.sim/runtime".to_string(), "20s".to_string());
    let Event::JobSubmitted { job, spec, array, .. } = submitted(2, asked) else { unreachable!() };
    Event::JobSubmitted {
        job,
        open_dependencies: spec.after.iter().copied().collect(),
        spec,
        array,
        held_by: None,
        key: Some(IdempotencyKey { key: "k-1".to_string(), body_hash: "abc".to_string() }),
        at: Timestamp(12),
    }
}

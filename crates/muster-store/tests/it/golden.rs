//! Golden data: journals, savepoints and databases that a release has written must stay readable.
//!
//! `tests/golden/v0.1.journal.jsonl` has one record per line: every kind of event, with values in the optional fields
//! of events. It is recorded by running this test with `MUSTER_BLESS=1`, which writes [`every_kind_of_event`]. New kinds
//! are added at its end; the lines that are there stay as they are, and a change of meaning needs an upcaster in
//! `record.rs`.
//!
//! `v0.1.sqlite.sql` and `v0.1.postgres.sql` are dumps of databases with the same journal and a savepoint, written
//! with schema version 14. A later release must open, migrate and verify them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use muster_core::facts::command::{IdempotencyKey, JobChange};
use muster_core::facts::event::{NextPhase, PreemptionReceipt, RequeueCause};
use muster_core::facts::verdict::Reason;
use muster_core::gpu::device::{DeclaredHealth, GpuStatus, MigInstance};
use muster_core::objects::charge::{Charge, HeldResources};
use muster_core::objects::demand::Demand;
use muster_core::objects::enrolment::JoinToken;
use muster_core::objects::job::{Dependency, DependencyWhen, Exit, Outcome, SelfFence, StopCause};
use muster_core::objects::node::{Drain, NodeStatus, PowerAction, Reboot, Service, Sight};
use muster_core::objects::policy::{
    Admission, BundleVersion, GpuLimit, Hook, JobAnswer, PolicyBundle, PolicyScope, Retry, RetryAnswer, TenantLimit,
};
use muster_core::objects::score::{Score, Term, TermName};
use muster_core::objects::secret::{Secret, SecretId};
use muster_core::objects::start_range::StartRange;
use muster_core::objects::window::Window;
use muster_core::state::{SavepointPiece, StateRestorer};
use muster_core::{Event, GpuId, JobId, State, Timestamp};
use muster_store::verify::verify_database;
use muster_store::{Entry, Record};
use serde::Deserialize;

use crate::fixtures::*;
use crate::test_database::TestDatabase;

contract!(a_golden_journal_fills_the_tables, a_golden_database_opens, no_field_of_a_golden_savepoint_is_ignored);

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

fn file() -> PathBuf {
    golden("v0.1.journal.jsonl")
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
        (1..).zip(every_kind_of_event()).map(|(seq, event)| Entry { seq, epoch: 1, at: Timestamp(seq as i64), event });
    let lines = entries.map(|entry| muster_json::to_string(&Record::from_entry(&entry)) + "\n");
    let written = std::fs::read_to_string(file()).unwrap_or_default();
    let new: String = lines.skip(written.lines().count()).collect();
    replace_file(&file(), &(written + &new));
}

/// In one step: other tests may be reading the file.
fn replace_file(path: &Path, text: &str) {
    let new = path.with_extension(format!("new-{:016x}", getrandom::u64().unwrap()));
    std::fs::write(&new, text).unwrap();
    std::fs::rename(new, path).unwrap();
}

/// Tags of all kinds of events, from the error message about an unknown one.
fn tags_of_all_events() -> BTreeSet<String> {
    let error = muster_json::from_str::<Event>(r#"{"kind":"NoSuchKind"}"#).unwrap_err().to_string();
    let (_, tags) = error.split_once("expected one of ").unwrap();
    tags.split(", ").map(|tag| tag.trim_matches('`').to_string()).collect()
}

#[test]
fn the_kind_of_every_event_is_the_tag_of_its_payload() {
    let events = every_kind_of_event();
    for event in &events {
        let (kind, payload) = (event.kind(), muster_json::to_string(event));
        assert!(payload.starts_with(&format!(r#"{{"kind":"{kind}","#)), "{kind}: {payload}");
    }
    let kinds: BTreeSet<String> = events.iter().map(|event| event.kind().to_string()).collect();
    assert_eq!(kinds, tags_of_all_events(), "a kind of event is missing in `every_kind_of_event`");
}

#[test]
fn a_golden_journal_is_readable() {
    let mut kinds = BTreeSet::new();
    for (record, seq) in records().iter().zip(1..) {
        assert_eq!(record.seq, seq);
        let entry = record.decode().unwrap();
        kinds.insert(entry.event.kind());
    }
    assert_eq!(kinds.len(), 49, "every kind of event");
}

/// The fields of version 0.1 still have the same meaning.
#[test]
fn a_golden_journal_decodes_to_the_same_events() {
    let events: Vec<Event> = records().iter().map(|record| record.decode().unwrap().event).collect();
    assert_eq!(events, every_kind_of_event());
}

/// Most fields have a default, so a renamed field would be ignored without an error.
#[test]
fn no_field_of_a_golden_payload_is_ignored() {
    for record in records() {
        let event = record.decode().unwrap().event;
        let written: Json = muster_json::from_str(&record.payload).unwrap();
        let decoded: Json = muster_json::from_str(&muster_json::to_string(&event)).unwrap();
        assert!(decoded.includes(&written), "{}: {}", record.kind, record.payload);
    }
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(untagged)]
enum Json {
    Object(BTreeMap<String, Json>),
    Array(Vec<Json>),
    Text(String),
    Number(f64),
    Bool(bool),
    Null(()),
}

impl Json {
    /// True if all members of `other` are in this value.
    fn includes(&self, other: &Json) -> bool {
        match (self, other) {
            (Json::Object(members), Json::Object(others)) => {
                others.iter().all(|(key, other)| members.get(key).is_some_and(|member| member.includes(other)))
            }
            (Json::Array(items), Json::Array(others)) => {
                items.len() == others.len() && items.iter().zip(others).all(|(item, other)| item.includes(other))
            }
            _ => self == other,
        }
    }
}

#[test]
fn a_golden_journal_can_be_applied() {
    let mut state = State::empty();
    for record in records() {
        state.apply(&record.decode().unwrap().event);
    }
    assert_eq!(state.seq, every_kind_of_event().len() as u64);
}

fn a_golden_journal_fills_the_tables(database: &dyn TestDatabase) {
    let mut writer = JournalWriter::lead(database.open());
    let entries: Vec<Entry> = records().iter().map(|record| record.decode().unwrap()).collect();
    writer.store.journal.append(&entries).unwrap();
    assert_eq!(writer.replay(0).unwrap(), entries);
}

/// Entries of the golden databases, which were written with schema version 14: the first ones of the golden journal.
const DATABASE_ENTRIES: usize = 46;
/// Entries after the savepoint of a golden database: few, so that the savepoint has jobs in every phase.
const ENTRIES_AFTER_SAVEPOINT: usize = 2;

/// Restore the golden dump of this kind of database.
fn restore_golden(database: &dyn TestDatabase) {
    let file = golden(&format!("v0.1.{}.sql", database.kind()));
    // A dump stays as the release with its schema wrote it. Without the file, a new one is recorded.
    if std::env::var_os("MUSTER_BLESS").is_some() && !file.exists() {
        replace_file(&file, &record_golden_database(database.another().as_ref()));
    }
    database.restore(&file);
}

fn database_entries() -> Vec<Entry> {
    records()[..DATABASE_ENTRIES].iter().map(|record| record.decode().unwrap()).collect()
}

fn record_golden_database(database: &dyn TestDatabase) -> String {
    let mut writer = JournalWriter::lead(database.open());
    let entries = database_entries();
    writer.store.journal.append(&entries).unwrap();
    let saved = &entries[..entries.len() - ENTRIES_AFTER_SAVEPOINT];
    writer.store.savepoints.save(saved.len() as u64, &savepoint_of(&replayed(State::empty(), saved))).unwrap();
    writer.store.journal.resign().unwrap();
    drop(writer);
    database.dump()
}

fn replayed(mut state: State, entries: &[Entry]) -> State {
    entries.iter().for_each(|entry| state.apply(&entry.event));
    state
}

/// The server's encoding of savepoints: one piece of the state per line.
fn savepoint_of(state: &State) -> Vec<u8> {
    let mut bytes = Vec::new();
    state.save(|piece| bytes.extend(muster_json::to_string(&piece).bytes().chain([b'\n'])));
    bytes
}

fn pieces_of(savepoint: &[u8]) -> impl Iterator<Item = (&str, SavepointPiece)> {
    let lines = std::str::from_utf8(savepoint).unwrap().lines();
    lines.map(|line| (line, muster_json::from_str(line).unwrap()))
}

fn a_golden_database_opens(database: &dyn TestDatabase) {
    restore_golden(database);
    let mut writer = JournalWriter::lead_from(database.open(), DATABASE_ENTRIES as u64);
    let entries = database_entries();
    assert_eq!(writer.replay(0).unwrap(), entries);

    let mut corruptions = Vec::new();
    let report = verify_database(&database.config(), &mut |_| {}, &mut |found| corruptions.push(found)).unwrap();
    assert_eq!(corruptions, []);
    assert!(report.tables_compared && report.rows_compared > 20, "{report:?}");

    let savepoint = writer.store.savepoints.newest(None).unwrap().unwrap();
    let mut restorer = StateRestorer::default();
    pieces_of(&savepoint.bytes).for_each(|(_, piece)| restorer.add(piece).unwrap());
    let state = replayed(restorer.finish(), &writer.replay(savepoint.seq).unwrap());
    assert_eq!(savepoint_of(&state), savepoint_of(&replayed(State::empty(), &entries)));

    writer.append(&[NOOP_EVENT]);
}

fn no_field_of_a_golden_savepoint_is_ignored(database: &dyn TestDatabase) {
    restore_golden(database);
    let savepoint = database.open().savepoints.newest(None).unwrap().unwrap();
    assert_eq!(pieces_of(&savepoint.bytes).count(), 5, "one piece of each kind");
    for (line, piece) in pieces_of(&savepoint.bytes) {
        let written: Json = muster_json::from_str(line).unwrap();
        let decoded: Json = muster_json::from_str(&muster_json::to_string(&piece)).unwrap();
        assert!(decoded.includes(&written), "{line}");
    }
}

/// Every kind of event, in an order in which they can happen. Each optional field of an event has a value in one of
/// them.
fn every_kind_of_event() -> Vec<Event> {
    let events = [cluster_events(), policy_events(), submissions(), preemption(), ends(), later_events()];
    events.into_iter().flatten().collect()
}

/// Kinds and fields that are younger than the golden databases. New ones are added at the end, so that the earlier
/// lines of the golden journal stay as they were written.
fn later_events() -> Vec<Event> {
    let n1 = || "n1".parse().unwrap();
    let Event::JobPlaced { job, attempt, epoch, tasks, at, .. } = placed(job(1), 2, "n1", &[0, 1]) else {
        unreachable!()
    };
    vec![
        Event::JobPlaced {
            job,
            attempt,
            epoch,
            tasks,
            effective_priority: None,
            expected_ms: None,
            revocable: false,
            score: None,
            held: None,
            self_fence: Some(SelfFence { after_ms: 300_000, proven_after_ms: 338_001 }),
            master_port: None,
            start_bound_ms: None,
            at,
        },
        Event::NodeServiceChanged {
            node: n1(),
            service: Service::Draining,
            by: text("ada"),
            why: text("new fan"),
            drain: None,
            at: Timestamp(1_100),
        },
        Event::NodeSightChanged {
            node: n1(),
            sight: Sight::Unreachable,
            silent_since: Some(Timestamp(1_050)),
            by: text("muster"),
            why: text("no report from its agent for 30 s"),
            at: Timestamp(1_200),
        },
        Event::ClusterCaChosen { fingerprint: text("ca-1"), at: AT },
        Event::JoinTokenAdded { token: join_token("j-1"), at: AT },
        Event::JoinTokenAdded { token: join_token("j-2"), at: AT },
        Event::NodeEnrolled { node: "n4".parse().unwrap(), token: text("j-1"), at: AT },
        Event::JoinTokenEnded { id: text("j-2"), why: text("it expired"), at: AT },
        Event::AttemptSignalled { job, attempt: 2, signal: 10, at: Timestamp(1_300) },
        Event::AttemptUnkillable {
            job,
            attempt: 2,
            node: n1(),
            processes: text("pid 7 (cp) in state D"),
            at: Timestamp(1_300),
        },
        Event::NodeHealthChanged { node: n1(), failure: Some(text("exit code 1: ECC errors")), at: Timestamp(1_300) },
        Event::SecretSet {
            secret: Box::new(Secret {
                id: secret_id(),
                value: text("0f1e"),
                key: text("c0ffee"),
                bytes: 36,
                set_by: text("ada"),
                set_at: Timestamp(1_200),
            }),
            at: Timestamp(1_200),
        },
        Event::SecretRemoved { id: secret_id(), at: Timestamp(1_201) },
        Event::NodeServiceChanged {
            node: n1(),
            service: Service::Draining,
            by: text("ada"),
            why: text("new kernel"),
            drain: Some(Box::new(Drain {
                deadline: Some(Timestamp(9_000)),
                reboot: Some(Reboot { boot_id: text("boot-1"), then: Service::Hold, confirmed: true }),
            })),
            at: Timestamp(1_400),
        },
        Event::NodePowerReported {
            node: n1(),
            action: PowerAction::Fence,
            failure: Some(text("exit code 2: no BMC")),
            at: Timestamp(1_400),
        },
    ]
}

fn join_token(id: &str) -> Box<JoinToken> {
    Box::new(JoinToken {
        id: text(id),
        hash: text("c0ffee"),
        node: Some("n4".parse().unwrap()),
        made_by: text("ada"),
        made_at: AT,
        expires_at: Timestamp(90_000),
    })
}

fn secret_id() -> SecretId {
    SecretId { tenant: "red".parse().unwrap(), owner: Some(text("ada")), name: text("TOKEN") }
}

const AT: Timestamp = Timestamp(500);

fn text(text: &str) -> String {
    text.to_string()
}

/// Settings, tenants, tokens, nodes and windows.
fn cluster_events() -> Vec<Event> {
    let n3 = || "n3".parse().unwrap();
    let Event::NodeRegistered { facts, .. } = node("n3", 2) else { unreachable!() };
    let window = Window {
        name: text("repair"),
        nodes: BTreeSet::from([n3()]),
        from: Timestamp(10),
        until: Timestamp(20),
        tenant: Some("red".parse().unwrap()),
        why: text("a new fan"),
        by: text("ada"),
    };
    vec![
        Event::Configured { settings: Box::default(), at: AT },
        tenant("red", Some(8)),
        tenant_changed("red", Some(6)),
        tenant("old", None),
        Event::TenantDeleted { id: "old".parse().unwrap(), at: AT },
        token("t-1"),
        Event::TokenRevoked { id: text("t-1"), at: AT },
        node("n1", 8),
        node("n2", 4),
        Event::NodeStateChanged {
            node: "n2".parse().unwrap(),
            status: NodeStatus::Draining,
            by: text("ada"),
            why: text("new fan"),
            at: AT,
        },
        Event::NodeRemoved { node: "n2".parse().unwrap(), at: AT },
        Event::NodeDeclared { node: n3(), facts, by: text("ada"), at: AT },
        Event::NodeLabelled {
            node: n3(),
            labels: Some(BTreeMap::from([(text("zone"), text("b"))])),
            taints: Some(vec![text("new")]),
            by: text("ada"),
            at: AT,
        },
        Event::GpuHealthChanged {
            gpu: GpuId { node: "n1".parse().unwrap(), index: 7 },
            status: GpuStatus::Degraded,
            why: text("68 °C"),
            cooling_until: Some(Timestamp(9_000)),
            temperature_c: Some(68),
            declared: Some(Box::new(DeclaredHealth {
                status: GpuStatus::Degraded,
                why: text("noisy"),
                by: text("ada"),
            })),
            reading: Some(GpuStatus::Warning),
            jobs: vec![job(1)],
            at: AT,
        },
        Event::GpuPartitioned {
            gpu: GpuId { node: "n1".parse().unwrap(), index: 6 },
            instances: vec![MigInstance { profile: text("1g.18gb"), start: 0 }],
            by: text("ada"),
            why: text("notebooks"),
            at: AT,
        },
        Event::WindowOpened { window: Box::new(window), at: AT },
        Event::WindowClosed { name: text("repair"), why: text("over"), at: AT },
        Event::Acted {
            times: 2,
            by: text("ada"),
            by_kind: Some(text("token")),
            act: text("tenant.change"),
            object: text("red"),
            refused: Some(text("unknown-tenant")),
            at: AT,
        },
        Event::Forgotten { before: Timestamp(1), trimmed_before: Some(Timestamp(2)) },
    ]
}

fn policy_events() -> Vec<Event> {
    let bundle = PolicyBundle {
        hash: text("h1"),
        files: BTreeMap::from([(text("a.gsky"), text("x = 1"))]),
        hooks: BTreeSet::from([Hook::Admit]),
        ..PolicyBundle::default()
    };
    let version = BundleVersion {
        number: 1,
        scope: PolicyScope::Cluster,
        bundle: bundle.into(),
        by: text("ada"),
        why: text("nights"),
        at: AT,
    };
    let answer = JobAnswer {
        job: job(2),
        bucket: text("b-1"),
        admission: Admission::Wait { why: text("by day") },
        priority: Some(200),
        gpu_milliwatts: Some(500_000),
        costs: vec![("n1".parse().unwrap(), -30)],
        victims: vec![(job(1), true)],
        failed: Some(text("a timeout")),
    };
    let limit = TenantLimit {
        tenant: "red".parse().unwrap(),
        limit: GpuLimit { gpu_milli: Some(6_000), pools: BTreeMap::from([(text("h200"), 4_000)]) },
        blocked: Some(text("a policy failed")),
        failed: Some(text("a timeout")),
    };
    vec![
        Event::PolicyApplied { version: Box::new(version) },
        Event::PolicyAnswered { bundles: vec![text("h1")], answers: vec![answer], limits: vec![limit], at: AT },
    ]
}

fn submissions() -> Vec<Event> {
    let change = JobChange { name: Some(text("renamed")), priority: Some(900), ..JobChange::default() };
    vec![
        submit(1, "red", 2),
        submit_with_every_option(),
        Event::JobHeld { job: job(2), by: text("ada"), why: text("not yet"), at: AT },
        Event::JobReleased { job: job(2), by: text("ada"), at: AT },
        Event::JobChanged { job: job(2), change, at: AT },
        Event::JobWoken { job: job(2), at: AT },
        submit(3, "red", 2),
        submit_array(4, "red", 2),
        Event::WaitNoted {
            bucket: text("b-1"),
            reasons: vec![Reason::Reservation { job: job(1), claimed: false }],
            at: AT,
        },
        Event::StartForecast { job: job(3), range: StartRange { from: Timestamp(700), to: Timestamp(900) }, at: AT },
    ]
}

/// Job 3 preempts job 1.
fn preemption() -> Vec<Event> {
    let charge = Charge { gpu_ms: 900, cpu_ms: 3_600, memory_gib_ms: 7_200, cost_micro: 5, energy_mj: 7 };
    let receipt = PreemptionReceipt {
        by: job(3),
        stop_ordered_at: AT,
        saved_at: Some(Timestamp(510)),
        ran_ms: 300,
        lost_gpu_ms: 40,
    };
    let held = HeldResources { cpus: 4, memory_mib: 8_192, planned_ms: Some(60_000), cost_per_hour_micro: 20 };
    let demand =
        Demand { gpu_milli: 2_000, gpu_memory_mib: 2_000, cpus: 4, memory_mib: 8_192, jobs: 1, milliwatts: 1_400_000 };
    vec![
        placed(job(1), 1, "n1", &[0, 1]),
        started(job(1), 1, "n1"),
        Event::ClaimMade {
            job: job(3),
            tasks: vec![placed_task("n1", &[0, 1])],
            victims: vec![job(1)],
            at: AT,
            until: Timestamp(60_500),
        },
        Event::AttemptStopping {
            job: job(1),
            attempt: 1,
            cause: StopCause::Preempted { by: job(3) },
            grace_ms: 30_000,
            at: AT,
        },
        Event::CheckpointSaved { job: job(1), attempt: 1, grace_ms: Some(2_010), at: Timestamp(510) },
        Event::AttemptEnded {
            job: job(1),
            attempt: 1,
            exit: Exit::Signal { signal: 15 },
            next: NextPhase::Queued { cause: RequeueCause::Preempted, wakes_at: Some(Timestamp(5_000)) },
            charge,
            receipt: Some(receipt),
            held: Some(held),
            charged_until: Some(Timestamp(900)),
            at: Timestamp(1_000),
        },
        Event::ClaimEnded { job: job(3), why: text("its job has started"), at: AT },
        Event::JobPlaced {
            job: job(3),
            attempt: 1,
            epoch: 1,
            tasks: vec![placed_task("n1", &[0, 1])],
            effective_priority: Some(120),
            expected_ms: Some(60_000),
            revocable: true,
            score: Some(Box::new(Score {
                terms: vec![Term { name: TermName::Fragmentation, milli: -5 }],
                compared: 2,
            })),
            held: Some(demand),
            self_fence: None,
            master_port: None,
            start_bound_ms: None,
            at: AT,
        },
        Event::PlanAdopted { snapshot: 26, now: AT, placed: 1, claimed: 0, rejected: 2 },
    ]
}

fn ends() -> Vec<Event> {
    let task = |index| JobId::of_array(4, index);
    let retry = RetryAnswer {
        job: job(1),
        attempt: 1,
        retry: Some(Retry::After { wait_ms: 9_000 }),
        failed: Some(text("late")),
    };
    vec![
        Event::NodePartEnded {
            job: job(3),
            attempt: 1,
            node: "n1".parse().unwrap(),
            exit: Exit::Code { code: 0 },
            stopped: true,
            ended_at: Some(Timestamp(800)),
            prolog_failed: false,
            at: AT,
        },
        done(job(3), 1),
        Event::RetryAnswered { bundles: vec![text("h1")], answer: retry, wakes_at: Timestamp(9_500), at: AT },
        cancelled(task(0)),
        placed(task(1), 1, "n1", &[2]),
        Event::AttemptEnded {
            receipt: None,
            job: task(1),
            attempt: 1,
            exit: Exit::NotStarted { why: text("no such image") },
            next: NextPhase::Ended { outcome: Outcome::Failed, why: text("no such image") },
            charge: Charge::default(),
            charged_until: None,
            held: None,
            at: AT,
        },
    ]
}

/// A held submission with dependencies, start time, labels, annotations and an idempotency key.
fn submit_with_every_option() -> Event {
    let mut job_spec = spec("red", "eval", 1);
    job_spec.start_after = Some(Timestamp(5_000));
    job_spec.after = vec![Dependency { job: job(1), when: DependencyWhen::Succeeded }];
    job_spec.labels.insert("team".to_string(), "vision".to_string());
    job_spec.annotations.insert("muster.sim/runtime".to_string(), "20s".to_string());
    let Event::JobSubmitted { job, spec, array, .. } = submitted(2, job_spec) else { unreachable!() };
    Event::JobSubmitted {
        job,
        open_dependencies: spec.after.iter().copied().collect(),
        spec,
        array,
        held_by: Some(text("ada")),
        key: Some(IdempotencyKey { key: "k-1".to_string(), body_hash: "abc".to_string() }),
        at: Timestamp(12),
    }
}

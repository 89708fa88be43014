//! Schema migrations: run once, by the leader; a newer schema is refused.

use muster_core::gpu::gpu_share::ShareMode;
use muster_core::{Event, Timestamp};
use muster_store::{Leadership, StoreConfig, StoreError, open};

use crate::fixtures::*;
use crate::test_database::{SqliteTestDatabase, TestDatabase};

contract!(
    tables_exist_after_the_first_leader,
    leading_again_runs_no_migration,
    a_newer_database_is_refused,
    a_changed_migration_is_refused,
    live_leases_survive_the_migration_to_gpu_shares,
    live_claims_survive_the_renaming_of_their_table,
);

fn tables_exist_after_the_first_leader(database: &dyn TestDatabase) {
    let mut store = database.open();
    let error = store.tables.job_counts().unwrap_err();
    assert!(error.is_recoverable_by_reload(), "{error}");
    store.journal.acquire_leadership("a", LEASE_MS).unwrap();
    store.tables.ping().unwrap();
    assert_eq!(store.tables.job_counts().unwrap(), Vec::new());
}

fn leading_again_runs_no_migration(database: &dyn TestDatabase) {
    let mut writer = JournalWriter::lead(database.open());
    writer.append(&[tenant("red", None), submit(1, "red", 1)]);
    let history = "SELECT count(*) FROM refinery_schema_history";
    let before = database.sql(history);
    writer.store.journal.resign().unwrap();
    let mut writer = JournalWriter::lead_from(database.open(), 2);
    assert_eq!(database.sql(history), before);
    assert_eq!(writer.replay(0).unwrap().len(), 2);
    assert!(writer.store.tables.job(job(1)).unwrap().is_some());
}

fn a_newer_database_is_refused(database: &dyn TestDatabase) {
    let mut store = database.open();
    store.journal.acquire_leadership("a", LEASE_MS).unwrap();
    store.journal.resign().unwrap();
    database.sql(
        "INSERT INTO refinery_schema_history (version, name, applied_on, checksum) \
         SELECT 99, 'from_the_future', applied_on, checksum FROM refinery_schema_history LIMIT 1",
    );
    let error = database.open().journal.acquire_leadership("b", LEASE_MS).unwrap_err();
    assert!(matches!(error, StoreError::NewerSchema { found: 99, known: 17 }), "{error}");
    assert!(error.to_string().contains("start the release that wrote it"), "{error}");
}

fn a_changed_migration_is_refused(database: &dyn TestDatabase) {
    let mut store = database.open();
    assert!(matches!(store.journal.acquire_leadership("a", LEASE_MS).unwrap(), Leadership::Leading { .. }));
    store.journal.resign().unwrap();
    database.sql("UPDATE refinery_schema_history SET checksum = '1'");
    let error = database.open().journal.acquire_leadership("b", LEASE_MS).unwrap_err();
    assert!(matches!(error, StoreError::InvariantViolated { .. }), "{error}");
}

/// Rows of schema version 5, before GPU shares: a job that ended, one that runs and one that waits.
const BEFORE_SHARES: &str = "
    INSERT INTO tenants (id, name, email, organization, priority_tier, weight, allow_preemption, can_preempt_others,
        active, max_gpus, gpus_used, cpus_used, memory_mib_used, gpu_memory_mib_used, jobs_used, gpus_ceiling, config,
        created_at, updated_at)
    VALUES ('red', 'red', '', '', 'medium', 1, 1 = 1, 1 = 1, 1 = 1, 9223372036854775807, 2, 4, 8192, 2000, 1, 3, '{}',
        1, 1);
    INSERT INTO nodes (id, hostname, address, state, set_by, why, since, cpus, memory_mib, gpus, agent_version,
        simulated, facts, registered_at, updated_at)
    VALUES ('n1', 'n1', '', 'Ready', 'muster', '', 1, 64, 512000, 3, '', 1 = 1, '{}', 1, 1);
    INSERT INTO gpus (node, idx, uuid, model, memory_mib, health, why, since, used_milli) VALUES
        ('n1', 0, 'a', 'NVIDIA H200', 143000, 'healthy', '', 1, 1000),
        ('n1', 1, 'b', 'NVIDIA H200', 143000, 'healthy', '', 1, 1000),
        ('n1', 2, 'c', 'NVIDIA H200', 143000, 'healthy', '', 1, 0);
    INSERT INTO jobs (number, idx, id, tenant, user_name, name, priority, state, phase, gpus, gpu_memory_mib, cpus,
        memory_mib, submitted_at, ended_at, attempt, labels) VALUES
        (1, -1, 'job-1', 'red', 'ada', 'old', 100, 'completed', 'Done', 3, 3000, 4, 8192, 1, 9, 1, '{}'),
        (2, -1, 'job-2', 'red', 'ada', 'train', 100, 'running', 'Running', 2, 2000, 4, 8192, 1, NULL, 1, '{}'),
        (3, -1, 'job-3', 'red', 'ada', 'next', 100, 'pending', 'Queued', 1, 1000, 4, 8192, 1, NULL, 0, '{}');
    INSERT INTO job_counts (tenant, state, jobs) VALUES ('red', 'completed', 1), ('red', 'running', 1),
        ('red', 'pending', 1);
    INSERT INTO attempts (number, idx, attempt, job, seq, tenant, epoch, state, placed_at, ended_at, gpus, nodes)
    VALUES (1, -1, 1, 'job-1', 101, 'red', 1, 'Done', 1, 9, 3, '[]'),
        (2, -1, 1, 'job-2', 102, 'red', 1, 'Running', 9, NULL, 2, '[]');
    INSERT INTO leases (number, idx, attempt, node, gpu, job, seq, rank, tenant, compute_milli, from_ms, to_ms)
    VALUES (1, -1, 1, 'n1', 0, 'job-1', 101, 0, 'red', 1000, 1, 9),
        (2, -1, 1, 'n1', 0, 'job-2', 102, 0, 'red', 1000, 9, NULL),
        (2, -1, 1, 'n1', 1, 'job-2', 102, 1, 'red', 1000, 9, NULL)";

fn live_leases_survive_the_migration_to_gpu_shares(database: &dyn TestDatabase) {
    database.migrate_to_version(5);
    database.sql(BEFORE_SHARES);
    let mut writer = JournalWriter::lead(database.open());
    let one = |sql: &str| database.sql(sql);
    assert_eq!(one("SELECT count(*) FROM leases WHERE slot = '' AND compute_milli + memory_milli = 2000"), "3");
    assert_eq!(one("SELECT sum(used_memory_milli) FROM gpus WHERE used_memory_milli = used_milli"), "2000");
    assert_eq!(one("SELECT gpu_milli_used FROM tenants"), "2000");
    assert_eq!(one("SELECT gpu_milli_ceiling FROM tenants"), "3000");
    assert_eq!(one("SELECT max_gpus FROM tenants"), "9223372036854775");
    assert_eq!(one("SELECT sum(gpu_milli) FROM jobs WHERE gpu_milli = gpus * 1000"), "6000");

    let half = |number, gpu| placed_tasks(job(number), 1, vec![placed_share(("n1", gpu), (500, 500), ShareMode::Mps)]);
    let mut refused = |event, part| {
        let error = writer.try_append(&[event]).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    };
    refused(half(3, 0), "add to the usage of a GPU");
    refused(placed(job(3), 1, "n1", &[1]), "add a lease");
    refused(Event::JobWoken { job: job(1), at: Timestamp(9) }, "ended job");
    writer.append(&[half(3, 2), done(job(2), 1), submit(4, "red", 1), placed(job(4), 1, "n1", &[0])]);
    assert_eq!(one("SELECT sum(used_milli) FROM gpus"), "1500");
    assert_eq!(one("SELECT gpu_milli_used FROM tenants"), "2000");
}

/// Until schema version 13 the table of claims was called `reservations`.
fn live_claims_survive_the_renaming_of_their_table(database: &dyn TestDatabase) {
    database.migrate_to_version(13);
    database.sql(
        "INSERT INTO reservations (seq, number, idx, job, node, gpus, victims, made_at, until) \
         VALUES (7, 1, -1, 'job-1', 'n1', '[]', '[]', 5, 50)",
    );
    let mut writer = JournalWriter::lead(database.open());
    let claim = || Event::ClaimMade {
        job: job(1),
        tasks: vec![placed_task("n1", &[0])],
        victims: vec![job(9)],
        at: Timestamp(6),
        until: Timestamp(60),
    };
    assert!(writer.try_append(&[claim()]).is_err(), "two claims of one job");
    let end = Event::ClaimEnded { job: job(1), why: "started".to_string(), at: Timestamp(9) };
    writer.append(&[end, claim()]);
    assert_eq!(database.sql("SELECT ended_at FROM claims WHERE seq = 7"), "9");
    assert_eq!(database.sql("SELECT count(*) FROM claims WHERE ended_at IS NULL"), "1");
}

#[test]
fn each_in_memory_database_is_separate() {
    let mut writer = JournalWriter::lead(open(&StoreConfig::Sqlite { path: ":memory:".into() }).unwrap());
    writer.append(&[tenant("red", None), submit(1, "red", 1)]);
    writer.store.savepoints.save(2, b"state").unwrap();
    assert_eq!(writer.store.tables.job_counts().unwrap().len(), 1);
    assert_eq!(writer.replay(0).unwrap().len(), 2);
    // A second one starts empty.
    let mut other = JournalWriter::lead(open(&StoreConfig::Sqlite { path: ":memory:".into() }).unwrap());
    assert_eq!(other.replay(0).unwrap().len(), 0);
}

/// In WAL mode readers see the last commit while a transaction writes.
#[test]
fn sqlite_readers_do_not_wait_for_the_writer() {
    let database = SqliteTestDatabase::new();
    let mut writer = JournalWriter::lead(database.open());
    writer.append(&[tenant("red", None), submit(1, "red", 1)]);
    let other_writer = rusqlite::Connection::open(database.path()).unwrap();
    other_writer.execute_batch("BEGIN IMMEDIATE; DELETE FROM jobs").unwrap();
    let begin = std::time::Instant::now();
    assert!(writer.store.tables.job(job(1)).unwrap().is_some());
    assert!(begin.elapsed() < std::time::Duration::from_secs(5), "the reader waited for the writer");
}

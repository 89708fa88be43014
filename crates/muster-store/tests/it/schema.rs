//! The tables are made once, by the leader, and an older release keeps its hands off newer ones.

use muster_core::share::ShareMode;
use muster_core::{Event, Timestamp};
use muster_store::{Leadership, StoreConfig, StoreError, open};

use crate::bench::{Bench, SqliteBench};
use crate::story::*;

contract!(
    tables_exist_once_someone_has_led,
    leading_again_changes_no_tables,
    a_newer_database_is_refused,
    a_changed_migration_is_refused,
    leases_live_on_when_gpus_become_shareable,
);

fn tables_exist_once_someone_has_led(bench: &dyn Bench) {
    let mut store = bench.open();
    let error = store.tables.counts().unwrap_err();
    assert!(error.heals_by_reload(), "{error}");
    store.journal.lead("a", LEASE_MS).unwrap();
    store.tables.ping().unwrap();
    assert_eq!(store.tables.counts().unwrap(), Vec::new());
}

fn leading_again_changes_no_tables(bench: &dyn Bench) {
    let mut book = Book::lead(bench.open());
    book.add(&[tenant("red", None), submit(1, "red", 1)]);
    let history = "SELECT count(*) FROM refinery_schema_history";
    let before = bench.sql(history);
    book.store.journal.resign().unwrap();
    let mut book = Book::lead_from(bench.open(), 2);
    assert_eq!(bench.sql(history), before);
    assert_eq!(book.replay(0).unwrap().len(), 2);
    assert!(book.store.tables.job(job(1)).unwrap().is_some());
}

fn a_newer_database_is_refused(bench: &dyn Bench) {
    let mut store = bench.open();
    store.journal.lead("a", LEASE_MS).unwrap();
    store.journal.resign().unwrap();
    bench.sql(
        "INSERT INTO refinery_schema_history (version, name, applied_on, checksum) \
         SELECT 99, 'from_the_future', applied_on, checksum FROM refinery_schema_history LIMIT 1",
    );
    let error = bench.open().journal.lead("b", LEASE_MS).unwrap_err();
    assert!(matches!(error, StoreError::Newer { found: 99, known: 13 }), "{error}");
    assert!(error.to_string().contains("start the release that wrote it"), "{error}");
}

fn a_changed_migration_is_refused(bench: &dyn Bench) {
    let mut store = bench.open();
    assert!(matches!(store.journal.lead("a", LEASE_MS).unwrap(), Leadership::Leading { .. }));
    store.journal.resign().unwrap();
    bench.sql("UPDATE refinery_schema_history SET checksum = '1'");
    let error = bench.open().journal.lead("b", LEASE_MS).unwrap_err();
    assert!(matches!(error, StoreError::Broken { .. }), "{error}");
}

/// Tables of the release before GPUs were shared, with a job that ended, one that runs and one that waits.
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

fn leases_live_on_when_gpus_become_shareable(bench: &dyn Bench) {
    bench.bring_to(5);
    bench.sql(BEFORE_SHARES);
    let mut book = Book::lead(bench.open());
    let one = |sql: &str| bench.sql(sql);
    assert_eq!(
        one("SELECT count(*) FROM leases WHERE slot = '' AND compute_milli + memory_milli = 2000"),
        "3"
    );
    assert_eq!(one("SELECT sum(used_memory_milli) FROM gpus WHERE used_memory_milli = used_milli"), "2000");
    assert_eq!(one("SELECT gpu_milli_used FROM tenants"), "2000");
    assert_eq!(one("SELECT gpu_milli_ceiling FROM tenants"), "3000");
    assert_eq!(one("SELECT max_gpus FROM tenants"), "9223372036854775");
    assert_eq!(one("SELECT sum(gpu_milli) FROM jobs WHERE gpu_milli = gpus * 1000"), "6000");

    let half =
        |number, gpu| placed_tasks(job(number), 1, vec![part(("n1", gpu), (500, 500), ShareMode::Mps)]);
    let mut refused = |event, word| {
        let error = book.try_add(&[event]).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    };
    refused(half(3, 0), "take a GPU");
    refused(placed(job(3), 1, "n1", &[1]), "add a lease");
    refused(Event::JobWoken { job: job(1), at: Timestamp(9) }, "ended job");
    book.add(&[half(3, 2), done(job(2), 1), submit(4, "red", 1), placed(job(4), 1, "n1", &[0])]);
    assert_eq!(one("SELECT sum(used_milli) FROM gpus"), "1500");
    assert_eq!(one("SELECT gpu_milli_used FROM tenants"), "2000");
}

#[test]
fn a_throwaway_database_vanishes() {
    let mut book = Book::lead(open(&StoreConfig::Sqlite { path: ":memory:".into() }).unwrap());
    book.add(&[tenant("red", None), submit(1, "red", 1)]);
    book.store.savepoints.save(2, b"state").unwrap();
    assert_eq!(book.store.tables.counts().unwrap().len(), 1);
    assert_eq!(book.replay(0).unwrap().len(), 2);
    // Another one is another one.
    let mut other = Book::lead(open(&StoreConfig::Sqlite { path: ":memory:".into() }).unwrap());
    assert_eq!(other.replay(0).unwrap().len(), 0);
}

/// The log lets readers see what was committed last while someone writes.
#[test]
fn sqlite_readers_do_not_wait_for_the_writer() {
    let bench = SqliteBench::new();
    let mut book = Book::lead(bench.open());
    book.add(&[tenant("red", None), submit(1, "red", 1)]);
    let writer = rusqlite::Connection::open(bench.path()).unwrap();
    writer.execute_batch("BEGIN IMMEDIATE; DELETE FROM jobs").unwrap();
    let begin = std::time::Instant::now();
    assert!(book.store.tables.job(job(1)).unwrap().is_some());
    assert!(begin.elapsed() < std::time::Duration::from_secs(5), "the reader waited for the writer");
}

//! Limits of the connection pool, as counted by PostgreSQL.

use std::sync::{Arc, Barrier};

use muster_store::queries::{JobFilter, PageRequest};
use muster_store::testing::shared_postgres;
use muster_store::{PostgresConfig, StoreConfig, Tables};

/// Number of connections to this database, without the one that counts them.
fn connections(config: &PostgresConfig) -> i64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut driver = tokio_postgres::Config::new();
        driver.host(&config.host).port(config.port).user(&config.user).dbname(&config.database);
        let (client, connection) = driver.connect(tokio_postgres::NoTls).await.unwrap();
        let driver_task = tokio::spawn(connection);
        let sql =
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
        let count = client.query_one(sql, &[]).await.unwrap().get(0);
        drop(client);
        let _ = driver_task.await;
        count
    })
}

/// Read from several threads at once, often enough that each of them waits for a connection at some time.
fn read_together(tables: &Arc<dyn Tables>, threads: usize) {
    let start = Arc::new(Barrier::new(threads));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let (tables, start) = (tables.clone(), start.clone());
            scope.spawn(move || {
                start.wait();
                for _ in 0..20 {
                    tables.jobs(&JobFilter::default(), &PageRequest::first(1)).unwrap();
                }
            });
        }
    });
}

/// Maximum number of connections during concurrent reads, and the number left afterwards.
fn connection_counts(max_open_conns: usize, max_idle_conns: usize) -> Option<(i64, i64)> {
    let at = shared_postgres()?.create_database().unwrap();
    let config = PostgresConfig { max_open_conns, max_idle_conns, ..at };
    let mut store = muster_store::open(&StoreConfig::Postgres(config.clone())).unwrap();
    store.journal.acquire_leadership("pool", 60_000).unwrap();
    let reading = std::sync::atomic::AtomicBool::new(true);
    let most = std::thread::scope(|scope| {
        let counting = scope.spawn(|| {
            let mut most = 0;
            while reading.load(std::sync::atomic::Ordering::Relaxed) {
                most = most.max(connections(&config));
            }
            most
        });
        read_together(&store.tables, 12);
        reading.store(false, std::sync::atomic::Ordering::Relaxed);
        counting.join().unwrap()
    });
    // PostgreSQL removes a closed connection from the list with a delay.
    let mut left = connections(&config);
    for _ in 0..100 {
        std::thread::sleep(std::time::Duration::from_millis(20));
        left = left.min(connections(&config));
    }
    Some((most, left))
}

#[test]
fn no_more_connections_than_max_open_conns() {
    let Some((most, _)) = connection_counts(3, 3) else { return };
    assert!((1..=3).contains(&most), "{most} connections, at most 3 are allowed");
    let Some((more, _)) = connection_counts(8, 8) else { return };
    assert!((4..=8).contains(&more), "{more} connections for 12 readers, at most 8 are allowed");
}

#[test]
fn idle_connections_are_closed_down_to_max_idle_conns() {
    let Some((_, left)) = connection_counts(10, 0) else { return };
    assert!(left <= 2, "{left} connections, expected one each for journal and savepoints and none idle");
}

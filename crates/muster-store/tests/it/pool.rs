//! The limits of the connection pool, counted by PostgreSQL itself.

use std::sync::{Arc, Barrier};

use muster_store::queries::{JobFilter, Page};
use muster_store::testing::postgres;
use muster_store::{PostgresConfig, StoreConfig, Tables};

/// Connections of this database that are not the one that counts.
fn connections(config: &PostgresConfig) -> i64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut driver = tokio_postgres::Config::new();
        driver.host(&config.host).port(config.port).user(&config.user).dbname(&config.database);
        let (client, connection) = driver.connect(tokio_postgres::NoTls).await.unwrap();
        let moving = tokio::spawn(connection);
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
        let count = client.query_one(sql, &[]).await.unwrap().get(0);
        drop(client);
        let _ = moving.await;
        count
    })
}

/// Read from so many threads at once, often enough that all of them wait for a connection at some moment.
fn read_together(tables: &Arc<dyn Tables>, threads: usize) {
    let start = Arc::new(Barrier::new(threads));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let (tables, start) = (tables.clone(), start.clone());
            scope.spawn(move || {
                start.wait();
                for _ in 0..20 {
                    tables.jobs(&JobFilter::default(), &Page::first(1)).unwrap();
                }
            });
        }
    });
}

/// The most connections seen while many read, and those that are left when nobody does.
fn seen(max_open_conns: usize, max_idle_conns: usize) -> Option<(i64, i64)> {
    let at = postgres()?.database().unwrap();
    let config = PostgresConfig { max_open_conns, max_idle_conns, ..at };
    let mut store = muster_store::open(&StoreConfig::Postgres(config.clone())).unwrap();
    store.journal.lead("pool", 60_000).unwrap();
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
    // A connection that was closed is gone from the list a moment later.
    let mut left = connections(&config);
    for _ in 0..100 {
        std::thread::sleep(std::time::Duration::from_millis(20));
        left = left.min(connections(&config));
    }
    Some((most, left))
}

#[test]
fn no_more_connections_than_max_open_conns() {
    let Some((most, _)) = seen(3, 3) else { return };
    assert!((1..=3).contains(&most), "{most} connections where 3 are allowed");
    let Some((more, _)) = seen(8, 8) else { return };
    assert!((4..=8).contains(&more), "{more} connections where 8 are allowed and 12 read");
}

#[test]
fn idle_connections_are_closed_down_to_max_idle_conns() {
    let Some((_, left)) = seen(10, 0) else { return };
    assert!(
        left <= 2,
        "{left} connections where the journal and the savepoints have one each and none idles"
    );
}

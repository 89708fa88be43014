//! Baselines: one-row commits on the same database, and a no-op HTTP handler.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;

const BASELINE_DURATION: Duration = Duration::from_secs(2);

/// Commits per second on SQLite: WAL, `synchronous=FULL`, one row per commit, one connection.
pub fn sqlite_commits_per_second(folder: &Path) -> Result<f64> {
    let connection = rusqlite::Connection::open(folder.join("raw.db"))?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.execute_batch("CREATE TABLE row (id INTEGER PRIMARY KEY, payload TEXT NOT NULL)")?;
    let mut insert = connection.prepare("INSERT INTO row (payload) VALUES (?1)")?;
    let payload = "x".repeat(200);
    calls_per_second(|| insert.execute([&payload]).map(drop).map_err(Into::into))
}

/// Commits per second on PostgreSQL: one row per commit, one connection, prepared statement.
pub fn postgres_commits_per_second(url: &str) -> Result<f64> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
        let driver_task = tokio::spawn(connection);
        client.batch_execute("CREATE TABLE raw_row (id BIGSERIAL PRIMARY KEY, payload TEXT NOT NULL)").await?;
        let insert = client.prepare("INSERT INTO raw_row (payload) VALUES ($1)").await?;
        let payload = "x".repeat(200);
        let started = Instant::now();
        let mut rows = 0u32;
        while started.elapsed() < BASELINE_DURATION {
            client.execute(&insert, &[&payload]).await?;
            rows += 1;
        }
        drop(client);
        driver_task.await??;
        Ok(f64::from(rows) / started.elapsed().as_secs_f64())
    })
}

fn calls_per_second(mut work: impl FnMut() -> Result<()>) -> Result<f64> {
    let started = Instant::now();
    let mut done = 0u32;
    while started.elapsed() < BASELINE_DURATION {
        work()?;
        done += 1;
    }
    Ok(f64::from(done) / started.elapsed().as_secs_f64())
}

/// Start a server on the same HTTP stack that reads the body and answers 201 with a few bytes.
pub fn start_noop_server() -> Result<SocketAddr> {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
            sender.send(listener.local_addr()?)?;
            let handler = |_body: String| async { (axum::http::StatusCode::CREATED, "{\"job_id\":\"job-1\"}") };
            let router = axum::Router::new().route("/api/v1/jobs", axum::routing::post(handler));
            axum::serve(listener, router).await?;
            anyhow::Ok(())
        })
    });
    Ok(receiver.recv()?)
}

//! The anchors: one durable row per commit on the same database, and a handler that does nothing.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;

/// How long each anchor is measured.
const TIME: Duration = Duration::from_secs(2);

/// Rows per second on SQLite: WAL, full synchronous, one row per commit, one connection.
pub fn sqlite(folder: &Path) -> Result<f64> {
    let link = rusqlite::Connection::open(folder.join("raw.db"))?;
    link.pragma_update(None, "journal_mode", "WAL")?;
    link.pragma_update(None, "synchronous", "FULL")?;
    link.execute_batch("CREATE TABLE row (id INTEGER PRIMARY KEY, payload TEXT NOT NULL)")?;
    let mut insert = link.prepare("INSERT INTO row (payload) VALUES (?1)")?;
    let payload = "x".repeat(200);
    per_second(|| insert.execute([&payload]).map(drop).map_err(Into::into))
}

/// Rows per second on PostgreSQL: one row per commit, one connection, prepared.
pub fn postgres(url: &str) -> Result<f64> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (client, link) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
        let link = tokio::spawn(link);
        client
            .batch_execute("CREATE TABLE raw_row (id BIGSERIAL PRIMARY KEY, payload TEXT NOT NULL)")
            .await?;
        let insert = client.prepare("INSERT INTO raw_row (payload) VALUES ($1)").await?;
        let payload = "x".repeat(200);
        let started = Instant::now();
        let mut rows = 0u32;
        while started.elapsed() < TIME {
            client.execute(&insert, &[&payload]).await?;
            rows += 1;
        }
        drop(client);
        link.await??;
        Ok(f64::from(rows) / started.elapsed().as_secs_f64())
    })
}

fn per_second(mut work: impl FnMut() -> Result<()>) -> Result<f64> {
    let started = Instant::now();
    let mut done = 0u32;
    while started.elapsed() < TIME {
        work()?;
        done += 1;
    }
    Ok(f64::from(done) / started.elapsed().as_secs_f64())
}

/// A server that reads a body and answers 201 with a few bytes, on the same HTTP stack.
pub fn do_nothing() -> Result<SocketAddr> {
    let (send, receive) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
            send.send(listener.local_addr()?)?;
            let answer =
                |_body: String| async { (axum::http::StatusCode::CREATED, "{\"job_id\":\"job-1\"}") };
            let router = axum::Router::new().route("/api/v1/jobs", axum::routing::post(answer));
            axum::serve(listener, router).await?;
            anyhow::Ok(())
        })
    });
    Ok(receive.recv()?)
}

//! Durable submissions per second through REST, on both stores.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use muster_store::testing::{Flush, PostgresServer};

use crate::http::Connection;
use crate::raw;
use crate::server::{Folder, Server};
use crate::table::{Table, figure, median};

/// Clients that submit at once.
const CLIENTS: [usize; 3] = [1, 16, 64];
/// How long each measurement takes.
const TIME: Duration = Duration::from_secs(3);
/// Measurements per figure; the median is shown.
const RUNS: usize = 3;

/// A job as the seed's own example submits it, running long enough to stay.
const JOB: &str = r#"{"tenant_id":"default","name":"api-job","priority":500,"gpu_count":1,"gpu_memory_mb":16000,"cpu_cores":4,"memory_mb":32000,"image":"nvidia/cuda:12.0-base","annotations":{"muster.sim/runtime":"10h"}}"#;

/// Print the table of submissions.
pub fn submissions() -> Result<()> {
    let mut table = Table::new(
        "Durable submissions per second through REST",
        &[
            "store",
            "clients",
            "submissions/s",
            "raw 1-row commits/s",
            "ratio",
            "do-nothing handler/s",
            "share",
        ],
    );
    let nothing = raw::do_nothing()?;
    // Flushes every commit, as in production; ends with this process.
    let postgres_server = PostgresServer::start(Flush::EveryCommit)?;
    for store in ["SQLite", "PostgreSQL"] {
        let postgres = if store == "PostgreSQL" { Some(postgres_server.database()?) } else { None };
        let postgres = postgres.map(|at| format!("postgres://{}@/{}?host={}", at.user, at.database, at.host));
        let folder = Folder::new(store)?;
        let single = match &postgres {
            None => raw::sqlite(&folder.0)?,
            Some(url) => raw::postgres(url)?,
        };
        let server = Server::start(&folder.0, 1, postgres.as_deref())?;
        for clients in CLIENTS {
            let ours = median_of(|| load(server.address, clients))?;
            let floor = median_of(|| load(nothing, clients))?;
            table.row(&[
                store.to_string(),
                clients.to_string(),
                figure(ours),
                figure(single),
                format!("{:.1}×", ours / single),
                figure(floor),
                format!("{:.0} %", 100.0 * ours / floor),
            ]);
        }
    }
    table.print();
    Ok(())
}

fn median_of(measure: impl Fn() -> Result<f64>) -> Result<f64> {
    Ok(median((0..RUNS).map(|_| measure()).collect::<Result<Vec<f64>>>()?))
}

/// Submissions per second with so many clients, each on its own connection and thread.
fn load(address: SocketAddr, clients: usize) -> Result<f64> {
    let started = Instant::now();
    let threads: Vec<_> =
        (0..clients).map(|_| std::thread::spawn(move || submit_for(address, started))).collect();
    let mut done = 0;
    for thread in threads {
        done += thread.join().map_err(|_| anyhow::anyhow!("a client panicked"))??;
    }
    Ok(done as f64 / started.elapsed().as_secs_f64())
}

fn submit_for(address: SocketAddr, started: Instant) -> Result<u64> {
    let mut link = Connection::open(address)?;
    let mut done = 0;
    while started.elapsed() < TIME {
        let (status, body) = link.call("POST", "/api/v1/jobs", JOB)?;
        if status != 201 {
            bail!("submission answered {status}: {}", String::from_utf8_lossy(&body));
        }
        done += 1;
    }
    Ok(done)
}

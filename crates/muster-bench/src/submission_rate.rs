//! Durable submissions per second over the REST API, with SQLite and PostgreSQL.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use muster_store::testing::{Flush, PostgresServer};

use crate::baselines;
use crate::http::Connection;
use crate::server::{Server, TempFolder};
use crate::table::{Table, format_figure, median};

/// Numbers of concurrent clients.
const CLIENT_COUNTS: [usize; 3] = [1, 16, 64];
const RUN_DURATION: Duration = Duration::from_secs(3);
/// The median of the runs is shown.
const RUNS_PER_FIGURE: usize = 3;

/// Body of the submission from the specification; simulated runtime of 10 h, so that the job does not end
/// during the run.
const JOB_BODY: &str = r#"{"tenant_id":"default","name":"api-job","priority":500,"gpu_count":1,"gpu_memory_mb":16000,"cpu_cores":4,"memory_mb":32000,"image":"nvidia/cuda:12.0-base","annotations":{"muster.sim/runtime":"10h"}}"#;

pub fn print_submission_rates() -> Result<()> {
    let mut table = Table::new(
        "Durable submissions per second through REST",
        &["store", "clients", "submissions/s", "raw 1-row commits/s", "ratio", "no-op handler/s", "share"],
    );
    let noop_server = baselines::start_noop_server()?;
    // Flushes each commit, as in production; exits with this process.
    let postgres_server = PostgresServer::start(Flush::EveryCommit)?;
    for store in ["SQLite", "PostgreSQL"] {
        let postgres = if store == "PostgreSQL" { Some(postgres_server.create_database()?) } else { None };
        let postgres = postgres.map(|at| format!("postgres://{}@/{}?host={}", at.user, at.database, at.host));
        let folder = TempFolder::new(store)?;
        let commits = match &postgres {
            None => baselines::sqlite_commits_per_second(&folder.0)?,
            Some(url) => baselines::postgres_commits_per_second(url)?,
        };
        let server = Server::start(&folder.0, 1, postgres.as_deref())?;
        for clients in CLIENT_COUNTS {
            let submissions = median_of_runs(|| submissions_per_second(server.address, clients))?;
            let noop = median_of_runs(|| submissions_per_second(noop_server, clients))?;
            table.add_row(&[
                store.to_string(),
                clients.to_string(),
                format_figure(submissions),
                format_figure(commits),
                format!("{:.1}×", submissions / commits),
                format_figure(noop),
                format!("{:.0} %", 100.0 * submissions / noop),
            ]);
        }
    }
    table.print();
    Ok(())
}

fn median_of_runs(measure: impl Fn() -> Result<f64>) -> Result<f64> {
    Ok(median((0..RUNS_PER_FIGURE).map(|_| measure()).collect::<Result<Vec<f64>>>()?))
}

/// Submissions per second of `clients` clients, each with its own connection and thread.
fn submissions_per_second(address: SocketAddr, clients: usize) -> Result<f64> {
    let started = Instant::now();
    let threads: Vec<_> =
        (0..clients).map(|_| std::thread::spawn(move || submit_until_end_of_run(address, started))).collect();
    let mut done = 0;
    for thread in threads {
        done += thread.join().map_err(|_| anyhow::anyhow!("a client panicked"))??;
    }
    Ok(done as f64 / started.elapsed().as_secs_f64())
}

fn submit_until_end_of_run(address: SocketAddr, started: Instant) -> Result<u64> {
    let mut connection = Connection::open(address)?;
    let mut done = 0;
    while started.elapsed() < RUN_DURATION {
        let (status, body) = connection.request("POST", "/api/v1/jobs", JOB_BODY)?;
        if status != 201 {
            bail!("submission failed with HTTP status {status}: {}", String::from_utf8_lossy(&body));
        }
        done += 1;
    }
    Ok(done)
}

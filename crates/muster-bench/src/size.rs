//! What a large cluster costs: memory, start-up, and a list, at three sizes.

use std::time::Instant;

use anyhow::{Result, bail};

use crate::http::Connection;
use crate::server::{Folder, Server};
use crate::table::{Table, figure, median};

/// Waiting jobs and nodes of eight GPUs, each full: 800 to 8,000 running jobs.
const SIZES: [(usize, usize); 3] = [(10_000, 100), (30_000, 300), (100_000, 1_000)];
/// Different shapes among the jobs.
const SHAPES: usize = 200;

/// Print the table of sizes.
pub fn growth() -> Result<()> {
    let mut table = Table::new(
        "A large cluster on SQLite",
        &["waiting", "running", "resident MiB", "start-up s", "`ps` first page ms", "CLI `muster ps` ms"],
    );
    for (waiting, nodes) in SIZES {
        table.row(&measure(waiting, nodes)?);
    }
    table.print();
    Ok(())
}

fn measure(waiting: usize, nodes: usize) -> Result<Vec<String>> {
    let folder = Folder::new(&format!("size-{waiting}"))?;
    let server = Server::start(&folder.0, nodes, None)?;
    fill(&server, waiting + nodes * 8)?;
    let running = wait_until_full(&server, nodes * 8)?;
    server.stop()?;
    let started = Instant::now();
    let server = Server::start(&folder.0, nodes, None)?;
    let start_up = started.elapsed();
    let list = median((0..20).map(|_| timed(|| first_page(&server))).collect::<Result<Vec<f64>>>()?);
    let command = median((0..20).map(|_| timed(|| command_line(&server))).collect::<Result<Vec<f64>>>()?);
    Ok(vec![
        figure(waiting as f64),
        figure(running as f64),
        figure(server.resident_mib()?),
        figure(start_up.as_secs_f64()),
        figure(list),
        figure(command),
    ])
}

/// Submit jobs of many shapes, each on its own, from eight clients.
fn fill(server: &Server, jobs: usize) -> Result<()> {
    let address = server.address;
    let clients = 8;
    let threads: Vec<_> = (0..clients)
        .map(|client| {
            std::thread::spawn(move || -> Result<()> {
                let mut link = Connection::open(address)?;
                for number in (client..jobs).step_by(clients) {
                    let (status, body) = link.call("POST", "/api/v1/jobs", &job(number))?;
                    if status != 201 {
                        bail!("{status}: {}", String::from_utf8_lossy(&body));
                    }
                }
                Ok(())
            })
        })
        .collect();
    threads
        .into_iter()
        .try_for_each(|thread| thread.join().map_err(|_| anyhow::anyhow!("a client panicked"))?)
}

fn job(number: usize) -> String {
    let shape = number % SHAPES;
    format!(
        r#"{{"name":"job {number}","priority":100,"gpu_count":1,"cpu_cores":{},"memory_mb":{},"command":["train","--seed","{number}"],"annotations":{{"muster.sim/runtime":"100h"}}}}"#,
        1 + shape % 8,
        1024 + 256 * (shape / 8)
    )
}

/// Wait until every GPU is busy.
fn wait_until_full(server: &Server, gpus: usize) -> Result<usize> {
    let mut link = Connection::open(server.address)?;
    let mut running = 0;
    for _ in 0..600 {
        let (_, body) = link.call("GET", "/api/v1/cluster/status", "")?;
        let status: Status = muster_json::from_slice(&body)?;
        running = status.running_jobs;
        if running >= gpus {
            return Ok(running);
        }
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    bail!("only {running} of {gpus} jobs run after two minutes")
}

#[derive(serde::Deserialize)]
struct Status {
    running_jobs: usize,
}

fn first_page(server: &Server) -> Result<()> {
    let mut link = Connection::open(server.address)?;
    match link.call("GET", "/api/v1/jobs?limit=100", "")? {
        (200, _) => Ok(()),
        (status, body) => bail!("{status}: {}", String::from_utf8_lossy(&body)),
    }
}

fn command_line(server: &Server) -> Result<()> {
    let output = std::process::Command::new(crate::server::binary()?)
        .args(["ps", "--server", &format!("http://{}", server.address)])
        .output()?;
    if output.status.success() { Ok(()) } else { bail!("{}", String::from_utf8_lossy(&output.stderr)) }
}

/// Milliseconds that something takes.
fn timed(work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let started = Instant::now();
    work()?;
    Ok(started.elapsed().as_secs_f64() * 1000.0)
}

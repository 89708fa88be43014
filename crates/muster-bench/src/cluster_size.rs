//! Resident memory, start-up time and list latency at three cluster sizes.

use std::time::Instant;

use anyhow::{Result, bail};

use crate::http::Connection;
use crate::server::{Server, TempFolder};
use crate::table::{Table, format_figure, median};

/// Pairs of (waiting jobs, nodes of eight busy GPUs): 800 to 8,000 running jobs.
const WAITING_JOBS_AND_NODES: [(usize, usize); 3] = [(10_000, 100), (30_000, 300), (100_000, 1_000)];
/// Number of different job shapes.
const JOB_SHAPES: usize = 200;

pub fn print_cluster_sizes() -> Result<()> {
    let mut table = Table::new(
        "A large cluster on SQLite",
        &["waiting", "running", "resident MiB", "start-up s", "`ps` first page ms", "CLI `muster ps` ms"],
    );
    for (waiting, nodes) in WAITING_JOBS_AND_NODES {
        table.add_row(&measure(waiting, nodes)?);
    }
    table.print();
    Ok(())
}

fn measure(waiting: usize, nodes: usize) -> Result<Vec<String>> {
    let folder = TempFolder::new(&format!("size-{waiting}"))?;
    let server = Server::start(&folder.0, nodes, None)?;
    submit_jobs(&server, waiting + nodes * 8)?;
    let running = wait_until_every_gpu_is_busy(&server, nodes * 8)?;
    server.stop()?;
    let started = Instant::now();
    let server = Server::start(&folder.0, nodes, None)?;
    let start_up = started.elapsed();
    let list = median((0..20).map(|_| elapsed_ms(|| get_first_page_of_jobs(&server))).collect::<Result<Vec<f64>>>()?);
    let command = median((0..20).map(|_| elapsed_ms(|| run_muster_ps(&server))).collect::<Result<Vec<f64>>>()?);
    Ok(vec![
        format_figure(waiting as f64),
        format_figure(running as f64),
        format_figure(server.resident_mib()?),
        format_figure(start_up.as_secs_f64()),
        format_figure(list),
        format_figure(command),
    ])
}

/// Submit jobs of many shapes, one request per job, from eight clients.
fn submit_jobs(server: &Server, jobs: usize) -> Result<()> {
    let address = server.address;
    let clients = 8;
    let threads: Vec<_> = (0..clients)
        .map(|client| {
            std::thread::spawn(move || -> Result<()> {
                let mut connection = Connection::open(address)?;
                for number in (client..jobs).step_by(clients) {
                    let (status, body) = connection.request("POST", "/api/v1/jobs", &job_body(number))?;
                    if status != 201 {
                        bail!("{status}: {}", String::from_utf8_lossy(&body));
                    }
                }
                Ok(())
            })
        })
        .collect();
    threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| anyhow::anyhow!("a client panicked"))?)
}

fn job_body(number: usize) -> String {
    let shape = number % JOB_SHAPES;
    format!(
        r#"{{"name":"job {number}","priority":100,"gpu_count":1,"cpu_cores":{},"memory_mb":{},"command":["train","--seed","{number}"],"annotations":{{"muster.sim/runtime":"100h"}}}}"#,
        1 + shape % 8,
        1024 + 256 * (shape / 8)
    )
}

/// Wait until every GPU is busy.
fn wait_until_every_gpu_is_busy(server: &Server, gpus: usize) -> Result<usize> {
    let mut connection = Connection::open(server.address)?;
    let mut running = 0;
    for _ in 0..600 {
        let (_, body) = connection.request("GET", "/api/v1/cluster/status", "")?;
        let status: ClusterStatus = muster_json::from_slice(&body)?;
        running = status.running_jobs;
        if running >= gpus {
            return Ok(running);
        }
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    bail!("only {running} of {gpus} jobs run after two minutes")
}

#[derive(serde::Deserialize)]
struct ClusterStatus {
    running_jobs: usize,
}

fn get_first_page_of_jobs(server: &Server) -> Result<()> {
    let mut connection = Connection::open(server.address)?;
    match connection.request("GET", "/api/v1/jobs?limit=100", "")? {
        (200, _) => Ok(()),
        (status, body) => bail!("{status}: {}", String::from_utf8_lossy(&body)),
    }
}

fn run_muster_ps(server: &Server) -> Result<()> {
    let output = std::process::Command::new(crate::server::muster_binary()?)
        .args(["ps", "--server", &format!("http://{}", server.address)])
        .output()?;
    if output.status.success() { Ok(()) } else { bail!("{}", String::from_utf8_lossy(&output.stderr)) }
}

fn elapsed_ms(work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let started = Instant::now();
    work()?;
    Ok(started.elapsed().as_secs_f64() * 1000.0)
}

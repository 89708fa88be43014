//! Jobs over the agent link: from the submission to the first instruction of the job on an idle node, and no-op jobs per
//! second on one agent and on eight, beside spawning the same program with the same writes and flushes in the same run.
//! `LINK_JOBS` and `LINK_STARTS` change the load.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::agents::{Cluster, cpu_ms_with_children};
use crate::launch::{from_environment, percentile};
use crate::launch_anchor::{self, NO_OP};
use crate::table::{Table, format_figure};

const JOBS: usize = 1_000;
const STARTS: usize = 200;
const GPUS_PER_AGENT: u32 = 2;
/// Figures of other schedulers, measured by others on other machines.
const PUBLISHED_STARTS: &str = "HyperQueue 15 ms, Slurm 820 ms tuned and 2,900 ms as installed (published)";
const START_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Deserialize)]
struct Submitted {
    job_id: String,
}

pub fn print_link_rates() -> Result<()> {
    print_starts(from_environment("LINK_STARTS", STARTS)?)?;
    print_rates(from_environment("LINK_JOBS", JOBS)?)
}

/// One job at a time: the job itself writes when its first instruction ran.
fn print_starts(starts: usize) -> Result<()> {
    let cluster = Cluster::start("link-starts", 1, GPUS_PER_AGENT)?;
    let mut latencies_ms = Vec::new();
    for _ in 0..starts {
        let submitted_at = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64();
        let job = submit(&cluster, r#""command": ["/bin/bash", "-c", "echo $EPOCHREALTIME"]"#)?;
        latencies_ms.push((first_instruction(&cluster, &job)? - submitted_at) * 1_000.0);
    }
    let columns = ["from the submission to the job's first instruction, idle node", "p50 ms", "p99 ms"];
    let mut table = Table::new(&format!("{starts} starts over the agent link; {PUBLISHED_STARTS}"), &columns);
    table.add_row(&[
        "server, link, agent, shim, and the start of bash".to_string(),
        format_figure(percentile(latencies_ms.clone(), 0.5)),
        format_figure(percentile(latencies_ms, 0.99)),
    ]);
    table.print();
    Ok(())
}

fn submit(cluster: &Cluster, fields: &str) -> Result<String> {
    let body = format!(r#"{{"gpu_count": 1, "cpu_cores": 0, "memory_mb": 64, {fields}}}"#);
    Ok(muster_json::from_slice::<Submitted>(&cluster.request("POST", "/api/v1/jobs", &body)?)?.job_id)
}

/// The time that a job has written to its output.
fn first_instruction(cluster: &Cluster, job: &str) -> Result<f64> {
    let output = cluster.agents()[0].data_dir.join("attempts").join(job).join("1/rank-0.out");
    let started = Instant::now();
    while started.elapsed() < START_TIMEOUT {
        let text = std::fs::read_to_string(&output).unwrap_or_default();
        if text.ends_with('\n') {
            return text.trim().parse().context("not a time");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    bail!("{job} did not start within {START_TIMEOUT:?}")
}

fn print_rates(jobs: usize) -> Result<()> {
    let columns = [
        "",
        "jobs/s",
        "share of the anchor",
        "server CPU ms per job",
        "agent and shim CPU ms per job, without the no-op",
    ];
    let mut table = Table::new(&format!("{jobs} no-op jobs over the agent link"), &columns);
    for agents in [1, 8] {
        let anchor = launch_anchor::run(jobs, agents * GPUS_PER_AGENT as usize)?;
        let cluster = Cluster::start(&format!("link-{agents}"), agents, GPUS_PER_AGENT)?;
        let server_cpu = || cpu_ms_with_children(cluster.server.pid());
        let (server_before, agents_before, started) = (server_cpu()?, cluster.agents_cpu_ms()?, Instant::now());
        let fields = format!(r#""array": "0-{}", "command": ["{NO_OP}"], "directory": "/""#, jobs - 1);
        submit(&cluster, &fields)?;
        cluster.wait_until_completed(jobs)?;
        let rate = jobs as f64 / started.elapsed().as_secs_f64();
        let per_job = |cpu_ms: f64| cpu_ms / jobs as f64;
        table.add_row(&[
            format!("anchor: spawn `{NO_OP}` on {} slots", agents * GPUS_PER_AGENT as usize),
            format_figure(anchor.jobs_per_second),
            "100 %".to_string(),
            "-".to_string(),
            "-".to_string(),
        ]);
        table.add_row(&[
            format!("server and {agents} agents with {GPUS_PER_AGENT} slots each"),
            format_figure(rate),
            format!("{:.0} %", 100.0 * rate / anchor.jobs_per_second),
            format_figure(per_job(server_cpu()? - server_before)),
            format_figure(per_job(cluster.agents_cpu_ms()? - agents_before) - anchor.cpu_ms),
        ]);
    }
    table.print();
    Ok(())
}

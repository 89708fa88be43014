//! No-op jobs on one agent: jobs per second, CPU per job and start latency, beside spawning the same program in a loop
//! with the same writes and fsyncs in the same run.
//!
//! The real `Runner` runs in this process; this file plays the server. The shim is the `muster` binary beside this
//! program. `LAUNCH_JOBS` and `LAUNCH_SLOTS` change the load.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use muster_agent::{Agent, Runner, RunnerConfig};
use muster_protocol::agent::{AttemptOrder, Exit, Orders, Report, RunSpec, TaskOrder};

use crate::launch_anchor::{self, NO_OP};
use crate::server::{TempFolder, muster_binary};
use crate::table::{Table, format_figure, median};

const NODE: &str = "bench";
const JOBS: usize = 500;
const SLOTS: usize = 2;
/// The median of the runs is shown.
const RUNS: usize = 3;
/// Longer than a run takes on any machine.
const REPORT_TIMEOUT: Duration = Duration::from_secs(60);

/// The figures of one run.
struct LaunchRun {
    jobs_per_second: f64,
    /// CPU milliseconds per job of agent and shim, with the no-op program.
    cpu_ms: f64,
    start_ms: Vec<f64>,
    exit_ms: Vec<f64>,
}

pub fn print_launch_rates() -> Result<()> {
    let (jobs, slots) = (from_environment("LAUNCH_JOBS", JOBS)?, from_environment("LAUNCH_SLOTS", SLOTS)?);
    let mut table = Table::new(
        &format!("{jobs} no-op jobs on {slots} slots of one agent"),
        &["", "jobs/s", "share of the anchor", "CPU ms per job", "start ms p50", "p99", "end ms p50", "p99"],
    );
    let (mut anchors, mut runs) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        anchors.push(launch_anchor::run(jobs, slots)?);
        runs.push(run_jobs(jobs, slots)?);
    }
    let anchor_rate = median(anchors.iter().map(|anchor| anchor.jobs_per_second).collect());
    let anchor_cpu = median(anchors.iter().map(|anchor| anchor.cpu_ms).collect());
    let (rate, cpu) = (
        median(runs.iter().map(|run| run.jobs_per_second).collect()),
        median(runs.iter().map(|run| run.cpu_ms).collect()),
    );
    let percentile = |share: f64, of: fn(&LaunchRun) -> &Vec<f64>| {
        format_figure(percentile(runs.iter().flat_map(of).copied().collect(), share))
    };
    let dash = || "-".to_string();
    table.add_row(&[
        format!("anchor: spawn `{NO_OP}` with the same fsyncs"),
        format_figure(anchor_rate),
        "100 %".to_string(),
        format_figure(anchor_cpu),
        dash(),
        dash(),
        dash(),
        dash(),
    ]);
    table.add_row(&[
        "agent and shim".to_string(),
        format_figure(rate),
        format!("{:.0} %", 100.0 * rate / anchor_rate),
        format!("{} (without the anchor's: {})", format_figure(cpu), format_figure(cpu - anchor_cpu)),
        percentile(0.5, |run| &run.start_ms),
        percentile(0.99, |run| &run.start_ms),
        percentile(0.5, |run| &run.exit_ms),
        percentile(0.99, |run| &run.exit_ms),
    ]);
    table.print();
    Ok(())
}

pub fn from_environment(name: &str, default: usize) -> Result<usize> {
    match std::env::var(name) {
        Err(_) => Ok(default),
        Ok(text) => text.parse().with_context(|| format!("{name}={text} is not a number")),
    }
}

fn run_jobs(jobs: usize, slots: usize) -> Result<LaunchRun> {
    let folder = TempFolder::new("launch")?;
    let (sender, reports) = mpsc::channel();
    let shim_command = vec![muster_binary()?.into_os_string(), OsString::from("shim")];
    let config = RunnerConfig { node: NODE.to_string(), ..RunnerConfig::new(&folder.0, shim_command) };
    let mut runner = Runner::start(config, Arc::new(move |report| drop(sender.send(report))))?;
    let mut load = Load::register(&reports)?;
    let (cpu_before, started) = (launch_anchor::cpu_ms()?, Instant::now());
    while load.ended < jobs {
        load.place(jobs, slots);
        runner.deliver_orders(load.orders());
        load.wait_for_an_end(&reports)?;
    }
    let seconds = started.elapsed().as_secs_f64();
    runner.deliver_orders(load.orders()); // The last attempts are cleaned up.
    runner.shutdown();
    let cpu_ms = (launch_anchor::cpu_ms()? - cpu_before) / jobs as f64;
    Ok(LaunchRun { jobs_per_second: jobs as f64 / seconds, cpu_ms, start_ms: load.start_ms, exit_ms: load.exit_ms })
}

/// The server's side of a run: the attempts that are owed, and what was reported of them.
struct Load {
    incarnation: String,
    generation: u64,
    placed: usize,
    ended: usize,
    owed: BTreeMap<String, (AttemptOrder, Instant)>,
    start_ms: Vec<f64>,
    exit_ms: Vec<f64>,
}

impl Load {
    fn register(reports: &Receiver<Report>) -> Result<Load> {
        loop {
            if let Report::Registered(registration) = reports.recv_timeout(REPORT_TIMEOUT)? {
                return Ok(Load {
                    incarnation: registration.incarnation,
                    generation: 0,
                    placed: 0,
                    ended: 0,
                    owed: BTreeMap::new(),
                    start_ms: Vec::new(),
                    exit_ms: Vec::new(),
                });
            }
        }
    }

    /// Fills the free slots.
    fn place(&mut self, jobs: usize, slots: usize) {
        while self.owed.len() < slots && self.placed < jobs {
            self.placed += 1;
            let job = format!("job-{}", self.placed);
            self.owed.insert(job.clone(), (order(job), Instant::now()));
        }
    }

    fn orders(&mut self) -> Orders {
        self.generation += 1;
        Orders {
            node: NODE.to_string(),
            incarnation: self.incarnation.clone(),
            epoch: 1,
            generation: self.generation,
            attempts: self.owed.values().map(|(order, _)| order.clone()).collect(),
            nonce: 0,
            pools: Vec::new(),
            reboot_from: None,
            secrets: Vec::new(),
        }
    }

    /// Takes reports until at least one job has ended, and those that have arrived meanwhile.
    fn wait_for_an_end(&mut self, reports: &Receiver<Report>) -> Result<()> {
        let ended_before = self.ended;
        while self.ended == ended_before {
            self.take(reports.recv_timeout(REPORT_TIMEOUT).context("no report; is the agent stuck?")?)?;
        }
        reports.try_iter().try_for_each(|report| self.take(report))
    }

    fn take(&mut self, report: Report) -> Result<()> {
        match report {
            Report::Started { job, .. } => {
                if let Some((order, placed_at)) = self.owed.get_mut(&job).filter(|(order, _)| !order.started) {
                    order.started = true;
                    self.start_ms.push(placed_at.elapsed().as_secs_f64() * 1_000.0);
                }
            }
            Report::Ended { job, exit: Exit::Code(0), .. } => {
                if let Some((_, placed_at)) = self.owed.remove(&job) {
                    self.ended += 1;
                    self.exit_ms.push(placed_at.elapsed().as_secs_f64() * 1_000.0);
                }
            }
            Report::Ended { job, exit, .. } => bail!("{job} ended with {exit:?}"),
            _ => {}
        }
        Ok(())
    }
}

fn order(job: String) -> AttemptOrder {
    let task = TaskOrder {
        rank: 0,
        group: "task".to_string(),
        group_rank: 0,
        gpus: Vec::new(),
        share: None,
        numa_nodes: Vec::new(),
        cpus: 1,
        memory_mib: 64,
    };
    let placed_at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    AttemptOrder {
        job,
        attempt: 1,
        placed_at_ms: i64::try_from(placed_at.as_millis()).unwrap_or(i64::MAX),
        started: false,
        adopt_only: false,
        tasks: vec![task],
        gang_size: 1,
        nodes: vec![NODE.to_string()],
        node_rank: 0,
        master_address: NODE.to_string(),
        master_port: None,
        hosts: Vec::new(),
        run: RunSpec { command: vec![NO_OP.to_string()], ..RunSpec::default() },
        name: "no-op".to_string(),
        tenant: "default".to_string(),
        user: "bench".to_string(),
        annotations: BTreeMap::new(),
        gpu_milliwatts_max: None,
        self_fence_ms: None,
        signal: None,
        stop: None,
    }
}

pub fn percentile(mut values: Vec<f64>, share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let index = ((values.len() as f64 - 1.0) * share).round() as usize;
    values.get(index).copied().unwrap_or(f64::NAN)
}

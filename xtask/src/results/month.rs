//! A month of jobs on one cluster: waits, slowdowns and fairness for each policy, with plots of waits and utilisation.

use anyhow::{Context, Result};
use serde::Deserialize;

use super::bench::Bench;
use super::page::{number, table};
use super::{Outcome, Plot};

/// Policies in the plots.
const REALISTIC: &str = "muster,muster-fast,fifo,easy,sjf";
/// Policies that preempt without loss, which no real cluster can.
const IDEAL: &str = "srtf,srsf,las,tiresias";
/// Policies that are also replayed with known runtimes.
const RUNTIME_KNOWN: &str = "muster,muster-fast";

#[derive(Deserialize)]
struct Report {
    policies: Vec<MonthRow>,
}

#[derive(Deserialize)]
struct MonthRow {
    policy: String,
    wait_s: Spread,
    completion_s: Spread,
    slowdown: Spread,
    fairness: f64,
    preemptions: u64,
    lost_gpu_s: f64,
    utilisation: f64,
}

#[derive(Deserialize)]
struct Spread {
    mean: f64,
    p95: f64,
    p99: f64,
    max: f64,
}

/// Replays the busiest month of the log three times: with the realistic policies, with known runtimes, and with the
/// ideal policies.
pub fn measure(bench: &Bench) -> Result<Outcome> {
    let folder = std::env::temp_dir().join(format!("muster-results-{}", std::process::id()));
    let plots = folder.to_str().context("the path of the temporary folder is not UTF-8")?;
    let realistic = replay(bench, &["--policy", REALISTIC, "--plots", plots])?;
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).with_context(|| format!("reading {name}"));
    let plot = |file, name: &str, alt_text| anyhow::Ok(Plot { file, alt_text, svg: read(name)? });
    let plots = vec![
        plot("month-utilisation.svg", "utilisation.svg", "Utilisation over the month")?,
        plot("month-waits.svg", "waits.svg", "Cumulative distribution of waiting times")?,
    ];
    // An error is harmless: the folder is temporary.
    let _ = std::fs::remove_dir_all(&folder);
    let mut runtime_known = replay(bench, &["--policy", RUNTIME_KNOWN, "--told"])?;
    runtime_known.iter_mut().for_each(|row| row.policy += " --told");
    let ideal = replay(bench, &["--policy", IDEAL])?;
    let (ours, others): (Vec<MonthRow>, Vec<MonthRow>) =
        realistic.into_iter().partition(|row| row.policy.starts_with("muster"));
    let rows: Vec<MonthRow> = ours.into_iter().chain(runtime_known).chain(others).chain(ideal).collect();
    Ok(Outcome { table: markdown(&rows), plots })
}

fn replay(bench: &Bench, options: &[&str]) -> Result<Vec<MonthRow>> {
    let log = bench.traces.join("philly/jobs.csv.gz");
    let log = log.to_str().context("the path of the traces is not UTF-8")?;
    let month = ["sim", "replay", log, "--since", "30d", "--until", "60d", "--nodes", "96x8xV100"];
    Ok(bench.json::<Report>(&[&month[..], options].concat())?.policies)
}

fn markdown(rows: &[MonthRow]) -> String {
    let titles = [
        "policy",
        "wait mean, p95, p99, max (s)",
        "completion mean (s)",
        "slowdown mean",
        "fairness",
        "utilisation (%)",
        "preemptions",
        "lost GPU-hours",
    ];
    table(&titles.map(str::to_string), &rows.iter().map(line).collect::<Vec<_>>())
}

fn line(row: &MonthRow) -> Vec<String> {
    let wait = &row.wait_s;
    let waits = [wait.mean, wait.p95, wait.p99, wait.max].map(|seconds| number(seconds, 0));
    let name = format!("`{}`", row.policy);
    vec![
        if row.policy.starts_with("muster") { format!("**{name}**") } else { name },
        waits.join(", "),
        number(row.completion_s.mean, 0),
        number(row.slowdown.mean, 2),
        number(row.fairness, 3),
        number(row.utilisation * 100.0, 1),
        number(row.preemptions as f64, 0),
        number(row.lost_gpu_s / 3_600.0, 0),
    ]
}

//! A month of jobs on one cluster: waits, slowdowns and fairness for each policy, and what the month looked like.

use anyhow::{Context, Result};
use serde::Deserialize;

use super::bench::Bench;
use super::page::{number, table};
use super::{Outcome, Plot};

/// Those in the plots; the others stop jobs for nothing, which no cluster can.
const PLAYED: &str = "muster,muster-fast,fifo,easy,sjf";
const IDEAL: &str = "srtf,srsf,las,tiresias";
const TOLD: &str = "muster,muster-fast";

#[derive(Deserialize)]
struct Report {
    policies: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
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

/// The busiest month of the log, three times: for the plots, for those who are told, and for the ideals.
pub fn measure(bench: &Bench) -> Result<Outcome> {
    let folder = std::env::temp_dir().join(format!("muster-results-{}", std::process::id()));
    let plots = folder.to_str().context("the temporary folder has no plain name")?;
    let played = replay(bench, &["--policy", PLAYED, "--plots", plots])?;
    let drawn = |name: &str| std::fs::read_to_string(folder.join(name)).with_context(|| format!("reading {name}"));
    let plot = |file, name: &str, says| anyhow::Ok(Plot { file, says, svg: drawn(name)? });
    let plots = vec![
        plot("month-utilisation.svg", "utilisation.svg", "Utilisation over the month")?,
        plot("month-waits.svg", "waits.svg", "Which part of the jobs waited how long")?,
    ];
    // What is left behind in a temporary folder harms nobody.
    let _ = std::fs::remove_dir_all(&folder);
    let mut told = replay(bench, &["--policy", TOLD, "--told"])?;
    told.iter_mut().for_each(|row| row.policy += " --told");
    let ideal = replay(bench, &["--policy", IDEAL])?;
    let (ours, others): (Vec<Row>, Vec<Row>) = played.into_iter().partition(|row| row.policy.starts_with("muster"));
    let rows: Vec<Row> = ours.into_iter().chain(told).chain(others).chain(ideal).collect();
    Ok(Outcome { table: written(&rows), plots })
}

fn replay(bench: &Bench, words: &[&str]) -> Result<Vec<Row>> {
    let log = bench.traces.join("philly/jobs.csv.gz");
    let log = log.to_str().context("the folder of traces has no plain name")?;
    let month = ["sim", "replay", log, "--since", "30d", "--until", "60d", "--nodes", "96x8xV100"];
    Ok(bench.json::<Report>(&[&month[..], words].concat())?.policies)
}

fn written(rows: &[Row]) -> String {
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

fn line(row: &Row) -> Vec<String> {
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

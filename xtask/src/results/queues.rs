//! Training queues: the mean completion time for each recorded queue and policy.

use std::collections::BTreeMap;

use anyhow::Result;
use muster_sim::plots::{PlotLabels, bars};
use serde::Deserialize;

use super::bench::Bench;
use super::page::{number, table};
use super::{Outcome, Plot};

const TRACES: [&str; 6] = ["trace1", "trace2", "trace3", "trace1_pr", "trace2_pr", "trace3_pr"];
/// Policies that know the runtimes of jobs in advance. The best mean of each group is in bold.
const RUNTIME_KNOWN: [Line; 3] =
    [("srtf", "SRTF, runtime known"), ("srsf", "SRSF, runtime known"), ("muster-known", "muster, runtime known")];
const RUNTIME_UNKNOWN: [Line; 4] = [
    ("tiresias", "Tiresias"),
    (THEMIS, "Themis, published"),
    ("las", "least attained service"),
    ("muster", "muster, runtime unknown"),
];
/// Policies in the plot, with names short enough for one line of the legend; values are relative to Tiresias.
const PLOTTED: [Line; 6] = [
    ("muster", "muster"),
    ("las", "LAS"),
    (THEMIS, "Themis, published"),
    ("muster-known", "muster, oracle"),
    ("srtf", "SRTF, oracle"),
    ("srsf", "SRSF, oracle"),
];
/// Taken from the published figures, not simulated: the policy needs the loss of other jobs by waiting.
const THEMIS: &str = "Themis";

/// A policy and its name in the table or plot.
type Line = (&'static str, &'static str);

#[derive(Deserialize)]
struct QueueRow {
    trace: String,
    policy: String,
    avg_jct_s: f64,
    max_slowdown: f64,
}

/// Mean completion times in seconds, by policy and trace.
type Means = BTreeMap<(String, String), f64>;

/// Every trace with published figures.
pub fn measure(bench: &Bench) -> Result<Outcome> {
    let policies = "srtf,srsf,muster-known,tiresias,las,muster";
    let traces = TRACES.join(",");
    let rows: Vec<QueueRow> = bench.json(&["bench", "replay", "--trace", &traces, "--policy", policies])?;
    let mut means: Means = rows.iter().map(|row| ((row.policy.clone(), row.trace.clone()), row.avg_jct_s)).collect();
    for fields in bench.csv("muri/published_sim.csv")? {
        if let [trace, policy, mean, ..] = fields.as_slice()
            && policy == THEMIS
        {
            means.insert((policy.clone(), trace.clone()), mean.parse()?);
        }
    }
    let alt_text = "Mean completion times in percent of Tiresias, for each queue and policy";
    let plot = Plot { file: "queues-completion.svg", alt_text, svg: svg(&means) };
    Ok(Outcome { table: markdown(&means, &rows), plots: vec![plot] })
}

fn mean(means: &Means, policy: &str, trace: &str) -> Option<f64> {
    means.get(&(policy.to_string(), trace.to_string())).copied()
}

fn markdown(means: &Means, rows: &[QueueRow]) -> String {
    let titles: Vec<String> = [""].iter().chain(&TRACES).map(|title| title.to_string()).collect();
    let mut lines: Vec<Vec<String>> = Vec::new();
    for group in [&RUNTIME_KNOWN[..], &RUNTIME_UNKNOWN[..]] {
        for (policy, name) in group {
            let cells = TRACES.map(|trace| cell(means, group, policy, trace));
            lines.push([name.to_string()].into_iter().chain(cells).collect());
        }
    }
    let slowdowns = [
        ("srsf", "maximum slowdown: SRSF, runtime known"),
        ("muster-known", "maximum slowdown: muster, runtime known"),
    ];
    for (policy, name) in slowdowns {
        let cells = TRACES.map(|trace| {
            let row = rows.iter().find(|row| row.policy == policy && row.trace == trace);
            row.map_or(String::new(), |row| number(row.max_slowdown, 0))
        });
        lines.push([name.to_string()].into_iter().chain(cells).collect());
    }
    table(&titles, &lines)
}

/// A mean in thousands of seconds, in bold if it is the lowest of its group.
fn cell(means: &Means, group: &[Line], policy: &str, trace: &str) -> String {
    let best = group.iter().filter_map(|(other, _)| mean(means, other, trace)).fold(f64::INFINITY, f64::min);
    match mean(means, policy, trace) {
        Some(mean) if mean <= best => format!("**{}**", number(mean / 1e3, 1)),
        Some(mean) => number(mean / 1e3, 1),
        None => "–".to_string(),
    }
}

/// Means in percent of Tiresias, because traces differ more than policies.
fn svg(means: &Means) -> String {
    let labels = PlotLabels {
        title: "Mean time from submission to the end, Tiresias = 100",
        x: "recorded queue",
        y: "in percent of Tiresias",
    };
    let percentages = |policy: &str| {
        let percentage = |trace: &str| Some(mean(means, policy, trace)? * 100.0 / mean(means, "tiresias", trace)?);
        TRACES.map(percentage).to_vec()
    };
    let series = PLOTTED.map(|(policy, name)| (name, percentages(policy)));
    bars(&labels, &TRACES.map(str::to_string), &series)
}

//! Training queues: the mean time to the end for each recorded queue and policy.

use std::collections::BTreeMap;

use anyhow::Result;
use muster_sim::plots::{PlotLabels, bars};
use serde::Deserialize;

use super::bench::Bench;
use super::page::{number, table};
use super::{Outcome, Plot};

const TRACES: [&str; 6] = ["trace1", "trace2", "trace3", "trace1_pr", "trace2_pr", "trace3_pr"];
/// Who is told how long jobs run, then who is not; the best of each is set in bold.
const TOLD: [Line; 3] = [("srtf", "SRTF, told"), ("srsf", "SRSF, told"), ("muster-known", "muster, told")];
const NOT_TOLD: [Line; 4] = [
    ("tiresias", "Tiresias"),
    (THEMIS, "Themis, published"),
    ("las", "least attained service"),
    ("muster", "muster, not told"),
];
/// Those in the plot, by names that fit into a row; Tiresias is the measure.
const DRAWN: [Line; 6] = [
    ("muster", "muster"),
    ("las", "LAS"),
    (THEMIS, "Themis, published"),
    ("muster-known", "muster, told"),
    ("srtf", "SRTF, told"),
    ("srsf", "SRSF, told"),
];
/// It is not played here: it needs what other jobs lose by waiting.
const THEMIS: &str = "Themis";

/// A policy, and what it is called in the table.
type Line = (&'static str, &'static str);

#[derive(Deserialize)]
struct Row {
    trace: String,
    policy: String,
    avg_jct_s: f64,
    max_slowdown: f64,
}

/// Mean times to the end in seconds, by policy and trace.
type Means = BTreeMap<(String, String), f64>;

/// Every trace that figures are published for.
pub fn measure(bench: &Bench) -> Result<Outcome> {
    let policies = "srtf,srsf,muster-known,tiresias,las,muster";
    let traces = TRACES.join(",");
    let rows: Vec<Row> = bench.json(&["bench", "replay", "--trace", &traces, "--policy", policies])?;
    let mut means: Means = rows.iter().map(|row| ((row.policy.clone(), row.trace.clone()), row.avg_jct_s)).collect();
    for fields in bench.csv("muri/published_sim.csv")? {
        if let [trace, policy, mean, ..] = fields.as_slice()
            && policy == THEMIS
        {
            means.insert((policy.clone(), trace.clone()), mean.parse()?);
        }
    }
    let says = "Mean completion times in percent of Tiresias, for each queue and policy";
    let plot = Plot { file: "queues-completion.svg", says, svg: drawn(&means) };
    Ok(Outcome { table: written(&means, &rows), plots: vec![plot] })
}

fn mean(means: &Means, policy: &str, trace: &str) -> Option<f64> {
    means.get(&(policy.to_string(), trace.to_string())).copied()
}

fn written(means: &Means, rows: &[Row]) -> String {
    let titles: Vec<String> = [""].iter().chain(&TRACES).map(|title| title.to_string()).collect();
    let mut lines: Vec<Vec<String>> = Vec::new();
    for group in [&TOLD[..], &NOT_TOLD[..]] {
        for (policy, name) in group {
            let cells = TRACES.map(|trace| cell(means, group, policy, trace));
            lines.push([name.to_string()].into_iter().chain(cells).collect());
        }
    }
    let told = [("srsf", "longest in times its work: SRSF"), ("muster-known", "the same: muster, told")];
    for (policy, name) in told {
        let longest = TRACES.map(|trace| {
            let row = rows.iter().find(|row| row.policy == policy && row.trace == trace);
            row.map_or(String::new(), |row| number(row.max_slowdown, 0))
        });
        lines.push([name.to_string()].into_iter().chain(longest).collect());
    }
    table(&titles, &lines)
}

/// In thousands of seconds, in bold if nobody of its group is better.
fn cell(means: &Means, group: &[Line], policy: &str, trace: &str) -> String {
    let best = group.iter().filter_map(|(other, _)| mean(means, other, trace)).fold(f64::INFINITY, f64::min);
    match mean(means, policy, trace) {
        Some(mean) if mean <= best => format!("**{}**", number(mean / 1e3, 1)),
        Some(mean) => number(mean / 1e3, 1),
        None => "–".to_string(),
    }
}

/// In percent of Tiresias, because queues differ by more than policies.
fn drawn(means: &Means) -> String {
    let words = PlotLabels {
        title: "Mean time from submission to the end, Tiresias = 100",
        x: "recorded queue",
        y: "in percent of Tiresias",
    };
    let parts = |policy: &str| {
        let part = |trace: &str| Some(mean(means, policy, trace)? * 100.0 / mean(means, "tiresias", trace)?);
        TRACES.map(part).to_vec()
    };
    let series = DRAWN.map(|(policy, name)| (name, parts(policy)));
    bars(&words, &TRACES.map(str::to_string), &series)
}

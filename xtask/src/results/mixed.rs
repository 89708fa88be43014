//! Several GPU models: completion times without and with knowledge of throughput per model, by load.

use anyhow::Result;
use muster_sim::plots::{PlotLabels, curves};
use serde::Deserialize;

use super::bench::Bench;
use super::page::{number, table};
use super::{Outcome, Plot};

const RATES: &str = "2.0,2.8,3.6,4.0,4.4,4.8,5.2,5.6";

#[derive(Deserialize)]
struct MixedRow {
    jobs_per_hour: f64,
    blind_h: f64,
    aware_h: f64,
    ratio: f64,
    published_blind_h: Option<f64>,
    published_aware_h: Option<f64>,
    published_ratio: Option<f64>,
}

/// Twenty job streams for each load.
pub fn measure(bench: &Bench) -> Result<Outcome> {
    let rows: Vec<MixedRow> = bench.json(&["bench", "mixed", "--streams", "20", "--rate", RATES])?;
    let alt_text = "Ratio of mean completion times, blind to aware, by jobs an hour";
    let plot = Plot { file: "mixed-ratio.svg", alt_text, svg: svg(&rows) };
    Ok(Outcome { table: markdown(&rows), plots: vec![plot] })
}

fn markdown(rows: &[MixedRow]) -> String {
    let titles = ["jobs an hour", "blind", "aware", "ratio", "published: blind", "aware", "ratio"];
    let optional = |value: Option<f64>, decimals| value.map_or("–".to_string(), |value| number(value, decimals));
    let cells = |row: &MixedRow| {
        vec![
            number(row.jobs_per_hour, 1),
            number(row.blind_h, 1),
            number(row.aware_h, 1),
            number(row.ratio, 2),
            optional(row.published_blind_h, 1),
            optional(row.published_aware_h, 1),
            optional(row.published_ratio, 2),
        ]
    };
    table(&titles.map(str::to_string), &rows.iter().map(cells).collect::<Vec<_>>())
}

fn svg(rows: &[MixedRow]) -> String {
    let labels = PlotLabels {
        title: "What it is worth to know how fast each job is on each kind of GPU",
        x: "jobs an hour",
        y: "completion time, blind in times aware",
    };
    let ours = rows.iter().map(|row| (row.jobs_per_hour, row.ratio)).collect();
    let published = rows.iter().filter_map(|row| Some((row.jobs_per_hour, row.published_ratio?))).collect();
    curves(&labels, &[("measured here", ours), ("published", published)])
}

//! Placement on recorded pods: the allocated share of all GPUs, mean over arrival orders.

use std::collections::BTreeMap;

use anyhow::Result;
use serde::Deserialize;

use super::Outcome;
use super::bench::Bench;
use super::page::{number, table};

const BASELINES: [&str; 6] = ["random", "dotprod", "clustering", "packing", "bestfit", "fgd"];

#[derive(Deserialize)]
struct PlacementRow {
    workload: String,
    policy: String,
    alloc_at_130: f64,
}

/// Published means in percent, by workload.
type Published = BTreeMap<String, f64>;

/// Ten arrival orders of every workload; takes about ten minutes.
pub fn measure(bench: &Bench) -> Result<Outcome> {
    let rows: Vec<PlacementRow> = bench.json(&["bench", "placement"])?;
    let published = published(&bench.csv("openb/published_alloc_at_130.csv")?)?;
    Ok(Outcome { table: markdown(&rows, &published), plots: Vec::new() })
}

/// The means of FGD, the best published policy.
fn published(lines: &[Vec<String>]) -> Result<Published> {
    let fgd = lines.iter().filter_map(|fields| match fields.as_slice() {
        [workload, policy, mean, ..] if policy == "FGD" => Some((workload, mean)),
        _ => None,
    });
    fgd.map(|(workload, mean)| Ok((workload.clone(), mean.parse()?))).collect()
}

fn markdown(rows: &[PlacementRow], published: &Published) -> String {
    let titles = ["workload"].iter().chain(&BASELINES).chain(&["fgd, published", "**muster**", "gain"]);
    let mut workloads: Vec<&str> = rows.iter().map(|row| row.workload.as_str()).collect();
    workloads.dedup();
    let lines = workloads.iter().map(|workload| line(rows, workload, published.get(*workload).copied()));
    table(&titles.map(|title| title.to_string()).collect::<Vec<_>>(), &lines.collect::<Vec<_>>())
}

fn line(rows: &[PlacementRow], workload: &str, published: Option<f64>) -> Vec<String> {
    let ours = mean(rows, workload, "muster");
    let mut cells = vec![workload.to_string()];
    cells.extend(BASELINES.map(|policy| number(mean(rows, workload, policy), 2)));
    cells.push(published.map_or("–".to_string(), |percent| number(percent, 2)));
    cells.push(format!("**{}**", number(ours, 2)));
    cells.push(published.map_or("–".to_string(), |percent| format!("{:+.2}", ours - percent).replace('-', "−")));
    cells
}

fn mean(rows: &[PlacementRow], workload: &str, policy: &str) -> f64 {
    let values = rows.iter().filter(|row| row.workload == workload && row.policy == policy);
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), row| (sum + row.alloc_at_130, count + 1.0));
    sum / f64::max(count, 1.0)
}

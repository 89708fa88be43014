//! Rows and table of `muster bench placement`: means over seeds, beside the published ones.

use muster_sim::placement::{AllocationFigures, PlacementPolicyName, PublishedAllocation};
use serde::Serialize;

use crate::output::{Cell, Column};

/// The outcome of one replay.
#[derive(Debug, Clone, Serialize)]
pub struct PlacementOutcome {
    workload: String,
    policy: &'static str,
    seed: u64,
    /// Allocated GPUs in percent of all when 130 % have been requested.
    alloc_at_130: f64,
    /// Free GPU capacity that the target workload cannot use then, in percent of all.
    frag_at_130: f64,
    cpu_us_per_decision: f64,
}

impl PlacementOutcome {
    pub fn new(
        workload: &str,
        policy: PlacementPolicyName,
        seed: u64,
        figures: AllocationFigures,
        cpu_us_per_decision: f64,
    ) -> PlacementOutcome {
        PlacementOutcome {
            workload: workload.to_string(),
            policy: policy.as_str(),
            seed,
            alloc_at_130: figures.allocated,
            frag_at_130: figures.fragmented,
            cpu_us_per_decision: (cpu_us_per_decision * 1e4).round() / 1e4,
        }
    }
}

/// One line of the table: a workload under a policy.
pub struct PlacementRow {
    workload: String,
    policy: PlacementPolicyName,
    seeds: usize,
    alloc: f64,
    published: Option<f64>,
    frag: f64,
    cpu_us: f64,
}

pub const COLUMNS: [Column<PlacementRow>; 8] = [
    Column::new("WORKLOAD", |row| row.workload.as_str().into()),
    Column::new("POLICY", |row| row.policy.as_str().into()),
    Column::new("SEEDS", |row| row.seeds.into()),
    Column::new("ALLOC%", |row| percent(row.alloc)),
    Column::new("PUBLISHED%", |row| Cell::or_dash(row.published.map(|mean| format!("{mean:.2}")))),
    Column::new("DIFF", |row| Cell::or_dash(row.published.map(|mean| signed(row.alloc - mean)))),
    Column::new("FRAG%", |row| percent(row.frag)),
    Column::new("CPU-US", |row| format!("{:.1}", row.cpu_us).into()),
];

/// With its sign; a difference that rounds to zero is `+0.00`.
fn signed(value: f64) -> String {
    format!("{:+.2}", (value * 100.0).round() / 100.0 + 0.0)
}

fn percent(value: f64) -> Cell {
    format!("{value:.2}").into()
}

/// The means of the outcomes of all seeds.
pub fn result_row(
    workload: &str,
    policy: PlacementPolicyName,
    outcomes: &[PlacementOutcome],
    published: &PublishedAllocation,
) -> PlacementRow {
    let mean =
        |value: fn(&PlacementOutcome) -> f64| outcomes.iter().map(value).sum::<f64>() / outcomes.len().max(1) as f64;
    PlacementRow {
        workload: workload.to_string(),
        policy,
        seeds: outcomes.len(),
        alloc: mean(|outcome| outcome.alloc_at_130),
        published: published.get(&(workload.to_string(), policy.published_name().to_string())).copied(),
        frag: mean(|outcome| outcome.frag_at_130),
        cpu_us: mean(|outcome| outcome.cpu_us_per_decision),
    }
}

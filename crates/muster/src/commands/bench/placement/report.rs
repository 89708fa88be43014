//! The table for people: means over seeds, beside what was published.

use std::collections::BTreeMap;

use super::policies::Name;
use super::replay::{Outcome, mean};
use crate::output::{Cell, Column};

/// One line of the table.
pub struct Line {
    workload: String,
    policy: Name,
    seeds: usize,
    alloc: f64,
    published: Option<f64>,
    frag: f64,
    cpu_us: f64,
}

/// The columns.
pub const COLUMNS: [Column<Line>; 8] = [
    Column::new("WORKLOAD", |line| line.workload.as_str().into()),
    Column::new("POLICY", |line| line.policy.text().into()),
    Column::new("SEEDS", |line| line.seeds.into()),
    Column::new("ALLOC%", |line| percent(line.alloc)),
    Column::new("PUBLISHED%", |line| Cell::or_dash(line.published.map(|mean| format!("{mean:.2}")))),
    Column::new("DIFF", |line| Cell::or_dash(line.published.map(|mean| signed(line.alloc - mean)))),
    Column::new("FRAG%", |line| percent(line.frag)),
    Column::new("CPU-US", |line| format!("{:.1}", line.cpu_us).into()),
];

/// Zero has no minus.
fn signed(value: f64) -> String {
    format!("{:+.2}", (value * 100.0).round() / 100.0 + 0.0)
}

fn percent(value: f64) -> Cell {
    format!("{value:.2}").into()
}

/// One line from the outcomes of all seeds.
pub fn line(
    workload: &str,
    policy: Name,
    outcomes: &[Outcome],
    published: &BTreeMap<(String, String), f64>,
) -> Line {
    let of = |value: fn(&Outcome) -> f64| mean(&outcomes.iter().map(value).collect::<Vec<_>>());
    Line {
        workload: workload.to_string(),
        policy,
        seeds: outcomes.len(),
        alloc: of(|outcome| outcome.alloc_at_130),
        published: published.get(&(workload.to_string(), policy.published().to_string())).copied(),
        frag: of(|outcome| outcome.frag_at_130),
        cpu_us: of(|outcome| outcome.cpu_us_per_decision),
    }
}

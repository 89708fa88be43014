//! The table of `muster bench share`.

use muster_sim::gpu_sharing::SharingRow;

use crate::output::{Cell, Column};

/// The model in short, printed below the table.
pub const TABLE_NOTE: &str = "\
slowdown 1 is a job alone on a whole GPU. Two jobs sharing a GPU: measured on an H200. More jobs: neighbour slowdowns
are added, scaled by share under MPS limits. Share s of the multiprocessors without neighbours: 1 + (h-1)(1/s-1),
h measured at one half. Memory-bound jobs in a MIG instance slow down with its memory slices.
muster-mps: the same planner with isolation requests ignored.";

pub const COLUMNS: [Column<SharingRow>; 8] = [
    Column::new("POLICY", |row| row.policy.into()),
    Column::new("GPUS", |row| row.gpus.into()),
    Column::new("SAVED", |row| row.gpus_saved.into()),
    Column::new("MEAN", |row| ratio(row.slowdown_mean)),
    Column::new("WORST", |row| ratio(row.slowdown_worst)),
    Column::new("BEYOND", |row| row.beyond_tolerance.into()),
    Column::new("WORST-OFF", |row| row.worst.as_str().into()),
    Column::new("LAYOUT", |row| Cell::or_dash((!row.layout.is_empty()).then(|| row.layout.clone()))),
];

fn ratio(value: f64) -> Cell {
    format!("{value:.2}").into()
}

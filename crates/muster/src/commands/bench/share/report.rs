//! What came out, as rows and as a table.

use serde::Serialize;

use super::demand::TYPES;
use super::harm::{Device, Pairs};
use crate::output::{Cell, Column};

/// What is said below the table.
pub const NOTE: &str = "\
slowdown: 1 is alone on a whole GPU. Two that share a GPU by halves or without limits: as measured on an H200. Beside
several: what each neighbour costs is added up, in proportion to its share where shares are limits. With a share s of the
multiprocessors and nobody beside it, an instance or not: 1 + (h-1)(1/s-1), where h is the slowdown with a half; who is
bound by memory is in an instance as slow as slices of memory are few.
muster-mps: the same planner if nobody asked to be apart.";

/// The jobs seated in one manner.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    pub policy: &'static str,
    /// How every device is cut, where all are cut alike.
    pub layout: String,
    pub jobs: usize,
    pub gpus: usize,
    /// How many fewer than one for each job.
    pub gpus_saved: usize,
    pub slowdown_mean: f64,
    pub slowdown_worst: f64,
    /// Whose that is, and beside whom.
    pub worst: String,
    /// Jobs that are slower than they tolerate.
    pub beyond_tolerance: usize,
}

/// The columns.
pub const COLUMNS: [Column<Row>; 8] = [
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

impl Row {
    /// From who sits where.
    pub fn of(policy: &'static str, layout: String, devices: &[Device], jobs: usize, pairs: &Pairs) -> Row {
        let each = devices.iter().flat_map(|device| (0..device.len()).map(move |at| (device, at)));
        let each: Vec<(f64, &Device, usize)> =
            each.map(|(device, at)| (pairs.slowdown(device, at), device, at)).collect();
        let worst = each.iter().max_by(|one, other| one.0.total_cmp(&other.0));
        let beyond =
            |(slowdown, device, at): &&(f64, &Device, usize)| *slowdown > TYPES[device[*at].job].tolerance;
        Row {
            policy,
            layout,
            jobs,
            gpus: devices.len(),
            gpus_saved: jobs - devices.len(),
            slowdown_mean: each.iter().map(|(slowdown, ..)| slowdown).sum::<f64>() / jobs as f64,
            slowdown_worst: worst.map_or(1.0, |(slowdown, ..)| *slowdown),
            worst: worst.map(|(_, device, at)| who(device, *at)).unwrap_or_default(),
            beyond_tolerance: each.iter().filter(beyond).count(),
        }
    }
}

fn who(device: &Device, at: usize) -> String {
    let name = |guest: usize| TYPES[device[guest].job].name;
    let others: Vec<&str> = (0..device.len()).filter(|guest| *guest != at).map(name).collect();
    match others.is_empty() {
        true => name(at).to_string(),
        false => format!("{} beside {}", name(at), others.join(", ")),
    }
}

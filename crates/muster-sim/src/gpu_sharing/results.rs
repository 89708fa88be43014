//! The rows of the benchmark: GPUs and slowdowns under each sharing policy.

use serde::Serialize;

use super::interference::{InterferenceTable, Occupants};
use super::job_classes::JOB_CLASSES;

/// All jobs under one sharing policy.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SharingRow {
    pub policy: &'static str,
    /// The MIG profiles of every GPU under static MIG; empty otherwise.
    pub layout: String,
    pub jobs: usize,
    pub gpus: usize,
    /// GPUs saved against one GPU per job.
    pub gpus_saved: usize,
    pub slowdown_mean: f64,
    pub slowdown_worst: f64,
    /// The class of the job with the worst slowdown, and the classes of its neighbours.
    pub worst: String,
    /// Jobs with a slowdown beyond their tolerance.
    pub beyond_tolerance: usize,
}

impl SharingRow {
    /// The row of a policy from the jobs that it placed on each GPU.
    pub(super) fn of_placement(
        policy: &'static str,
        layout: String,
        gpus: &[Occupants],
        jobs: usize,
        table: &InterferenceTable,
    ) -> SharingRow {
        let each = gpus.iter().flat_map(|occupants| (0..occupants.len()).map(move |at| (occupants, at)));
        let each: Vec<(f64, &Occupants, usize)> =
            each.map(|(occupants, at)| (table.slowdown(occupants, at), occupants, at)).collect();
        let worst = each.iter().max_by(|one, other| one.0.total_cmp(&other.0));
        let is_beyond = |(slowdown, occupants, at): &&(f64, &Occupants, usize)| {
            *slowdown > JOB_CLASSES[occupants[*at].job].slowdown_max
        };
        SharingRow {
            policy,
            layout,
            jobs,
            gpus: gpus.len(),
            gpus_saved: jobs - gpus.len(),
            slowdown_mean: each.iter().map(|(slowdown, ..)| slowdown).sum::<f64>() / jobs as f64,
            slowdown_worst: worst.map_or(1.0, |(slowdown, ..)| *slowdown),
            worst: worst.map(|(_, occupants, at)| occupant_text(occupants, *at)).unwrap_or_default(),
            beyond_tolerance: each.iter().filter(is_beyond).count(),
        }
    }
}

/// The class of a job, and the classes of its neighbours.
fn occupant_text(occupants: &Occupants, at: usize) -> String {
    let name = |index: usize| JOB_CLASSES[occupants[index].job].name;
    let others: Vec<&str> = (0..occupants.len()).filter(|index| *index != at).map(name).collect();
    match others.is_empty() {
        true => name(at).to_string(),
        false => format!("{} beside {}", name(at), others.join(", ")),
    }
}

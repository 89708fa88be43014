//! GPU sharing by MIG, MPS or time slices: how many GPUs small jobs need, and how much slower they run.
//!
//! All jobs run at once on H200s. `job_classes.rs` defines the jobs and their requests, `policies.rs` and
//! `planner.rs` place them, and `interference.rs` gives their slowdowns: from measured pairs, and by rules where
//! none was measured.

mod interference;
mod job_classes;
mod planner;
mod policies;
mod results;

pub use interference::InterferenceTable;
pub use planner::JobsNotPlaced;
pub use results::SharingRow;

use job_classes::{IsolationMode, random_jobs};

/// The same random jobs under every sharing policy.
pub fn sharing_rows(table: &InterferenceTable, count: usize, seed: u64) -> Result<Vec<SharingRow>, JobsNotPlaced> {
    let jobs = random_jobs(count, seed);
    let (layout, static_mig) = policies::best_mig_layout(&jobs, table);
    let none = String::new();
    let placements = [
        ("whole", none.clone(), policies::whole_gpus(&jobs)),
        ("mig-static", layout, static_mig),
        ("time-slice", none.clone(), policies::time_sliced(&jobs)),
        ("mps", none.clone(), policies::mps_unlimited(&jobs)),
        ("muster-mps", none.clone(), planner::place_on_fewest_gpus(&jobs, IsolationMode::Ignored)?),
        ("muster", none, planner::place_on_fewest_gpus(&jobs, IsolationMode::Requested)?),
    ];
    Ok(placements
        .into_iter()
        .map(|(policy, layout, gpus)| SharingRow::of_placement(policy, layout, &gpus, count, table))
        .collect())
}

#[cfg(test)]
mod tests;

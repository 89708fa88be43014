//! Minimises a failing fault schedule.

use crate::fault_schedule::FaultSchedule;
use crate::sim_cluster::run_schedule;

/// A shorter schedule that also fails, possibly by another law. Removes halves of the actions, then quarters, down to
/// single actions, with at most `tries` runs.
pub fn minimise(schedule: &FaultSchedule, tries: usize) -> FaultSchedule {
    let mut best = truncated_at_failure(schedule);
    let mut tries_left = tries;
    let mut chunk = best.actions.len().div_ceil(2).max(1);
    loop {
        let mut from = 0;
        while from < best.actions.len() && tries_left > 0 {
            let mut shorter = best.clone();
            shorter.actions.drain(from..(from + chunk).min(shorter.actions.len()));
            tries_left -= 1;
            match run_schedule(&shorter) {
                Err(_) => best = shorter,
                Ok(_) => from += chunk,
            }
        }
        if chunk == 1 || tries_left == 0 {
            return best;
        }
        chunk = chunk.div_ceil(2);
    }
}

/// The schedule without the steps after the failure, which cannot have caused it.
fn truncated_at_failure(schedule: &FaultSchedule) -> FaultSchedule {
    let Err(failure) = run_schedule(schedule) else { return schedule.clone() };
    let shorter = FaultSchedule { steps: schedule.steps.min(failure.step), ..schedule.clone() };
    if run_schedule(&shorter).is_err() { shorter } else { schedule.clone() }
}

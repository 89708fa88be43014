//! A shorter story that ends badly as well.

use crate::fault_schedule::FaultSchedule;
use crate::sim_cluster::run_schedule;

/// Leave out what is not needed: halves of the acts, quarters and so on down to single ones, as long as the story still
/// ends badly; it need not be in the same manner. So many stories are told at most.
pub fn minimise(story: &FaultSchedule, tries: usize) -> FaultSchedule {
    let mut best = truncated_at_failure(story);
    let mut left = tries;
    let mut chunk = best.actions.len().div_ceil(2).max(1);
    loop {
        let mut from = 0;
        while from < best.actions.len() && left > 0 {
            let mut shorter = best.clone();
            shorter.actions.drain(from..(from + chunk).min(shorter.actions.len()));
            left -= 1;
            match run_schedule(&shorter) {
                Err(_) => best = shorter,
                Ok(_) => from += chunk,
            }
        }
        if chunk == 1 || left == 0 {
            return best;
        }
        chunk = chunk.div_ceil(2);
    }
}

/// What comes after the failure did not cause it.
fn truncated_at_failure(story: &FaultSchedule) -> FaultSchedule {
    let Err(failure) = run_schedule(story) else { return story.clone() };
    let shorter = FaultSchedule { steps: story.steps.min(failure.step), ..story.clone() };
    if run_schedule(&shorter).is_err() { shorter } else { story.clone() }
}

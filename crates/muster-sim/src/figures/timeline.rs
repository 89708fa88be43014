//! Utilisation over time.

use serde::Serialize;

use super::{ReplaySpan, round_to_4_decimals};
use crate::job_log::LoggedJob;
use crate::run_history::RunHistory;

/// A part of the time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct UtilisationBin {
    /// When it begins, in seconds from the first submission.
    pub at_s: f64,
    /// GPU-time held in it, of all there was.
    pub utilisation: f64,
}

/// Utilisation from the first submission to the last end, in so many parts of equal length.
pub fn utilisation_over_time(jobs: &[LoggedJob], history: &RunHistory, bins: usize) -> Vec<UtilisationBin> {
    let span = ReplaySpan::of(jobs, history);
    let width_ms = (span.to_end_ms() as f64 / bins as f64).max(1.0);
    let mut held = vec![0.0; bins];
    for stretch in &history.intervals {
        let (from, to) = (
            (stretch.from_ms - span.first_submit_ms) as f64 / width_ms,
            (stretch.to_ms - span.first_submit_ms) as f64 / width_ms,
        );
        let gpus = stretch.gpu_milli as f64 / 1e3;
        let last = (to.ceil() as usize).min(bins);
        for (bin, held) in held.iter_mut().enumerate().take(last).skip(from as usize) {
            let inside = to.min((bin + 1) as f64) - from.max(bin as f64);
            *held += inside.max(0.0) * gpus;
        }
    }
    let bin = |(bin, held): (usize, f64)| UtilisationBin {
        at_s: round_to_4_decimals(bin as f64 * width_ms / 1e3),
        utilisation: round_to_4_decimals(held / f64::from(history.gpus.max(1))),
    };
    held.into_iter().enumerate().map(bin).collect()
}

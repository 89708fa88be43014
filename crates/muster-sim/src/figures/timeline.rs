//! Utilisation over time.

use serde::Serialize;

use super::{ReplaySpan, round_to_4_decimals};
use crate::job_log::LoggedJob;
use crate::run_history::RunHistory;

/// One bin of the utilisation over time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct UtilisationBin {
    /// The start of the bin, in seconds from the first submission.
    pub at_s: f64,
    /// The fraction of the GPU time of the bin that was held.
    pub utilisation: f64,
}

/// The utilisation from the first submission to the last end, in bins of equal length.
pub fn utilisation_over_time(jobs: &[LoggedJob], history: &RunHistory, bins: usize) -> Vec<UtilisationBin> {
    let span = ReplaySpan::of(jobs, history);
    let width_ms = (span.to_end_ms() as f64 / bins as f64).max(1.0);
    let mut held = vec![0.0; bins];
    for interval in &history.intervals {
        let (from, to) = (
            (interval.from_ms - span.first_submit_ms) as f64 / width_ms,
            (interval.to_ms - span.first_submit_ms) as f64 / width_ms,
        );
        let gpus = interval.gpu_milli as f64 / 1e3;
        let last = (to.ceil() as usize).min(bins);
        for (bin, held) in held.iter_mut().enumerate().take(last).skip(from as usize) {
            let overlap = to.min((bin + 1) as f64) - from.max(bin as f64);
            *held += overlap.max(0.0) * gpus;
        }
    }
    let bin = |(bin, held): (usize, f64)| UtilisationBin {
        at_s: round_to_4_decimals(bin as f64 * width_ms / 1e3),
        utilisation: round_to_4_decimals(held / f64::from(history.gpus.max(1))),
    };
    held.into_iter().enumerate().map(bin).collect()
}

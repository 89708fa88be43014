//! Utilisation over time.

use serde::Serialize;

use super::{Span, rounded};
use crate::history::History;
use crate::jobs::LoggedJob;

/// A part of the time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Bin {
    /// When it begins, in seconds from the first submission.
    pub at_s: f64,
    /// GPU-time held in it, of all there was.
    pub utilisation: f64,
}

/// Utilisation from the first submission to the last end, in so many parts of equal length.
pub fn utilisation(jobs: &[LoggedJob], history: &History, bins: usize) -> Vec<Bin> {
    let span = Span::of(jobs, history);
    let width_ms = (span.to_end_ms() as f64 / bins as f64).max(1.0);
    let mut held = vec![0.0; bins];
    for stretch in &history.stretches {
        let (from, to) = (
            (stretch.from_ms - span.first_ms) as f64 / width_ms,
            (stretch.to_ms - span.first_ms) as f64 / width_ms,
        );
        let gpus = stretch.gpu_milli as f64 / 1e3;
        let last = (to.ceil() as usize).min(bins);
        for (bin, held) in held.iter_mut().enumerate().take(last).skip(from as usize) {
            let inside = to.min((bin + 1) as f64) - from.max(bin as f64);
            *held += inside.max(0.0) * gpus;
        }
    }
    let bin = |(bin, held): (usize, f64)| Bin {
        at_s: rounded(bin as f64 * width_ms / 1e3),
        utilisation: rounded(held / f64::from(history.gpus.max(1))),
    };
    held.into_iter().enumerate().map(bin).collect()
}

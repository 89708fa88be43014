//! Shortest remaining time first.

use crate::baseline_replay::policies::place_all_again;
use crate::baseline_replay::{LiveJob, QueuePolicy, UniformNodes};

/// The job with the least remaining time comes first, whatever its size. Durations are known.
#[derive(Debug, Default)]
pub struct Srtf;

impl QueuePolicy for Srtf {
    fn select_running(&mut self, _now_s: f64, live: &mut [LiveJob], nodes: &mut UniformNodes) {
        live.sort_by(|one, other| one.remaining_s.total_cmp(&other.remaining_s));
        place_all_again(live, nodes);
    }
}

//! Shortest remaining service first.

use crate::baseline_replay::policies::place_all_again;
use crate::baseline_replay::{LiveJob, QueuePolicy, UniformNodes};

/// The job with the least remaining GPU time comes first. Durations are known.
#[derive(Debug, Default)]
pub struct Srsf;

impl QueuePolicy for Srsf {
    fn select_running(&mut self, _now_s: f64, live: &mut [LiveJob], nodes: &mut UniformNodes) {
        live.sort_by(|one, other| one.remaining_gpu_s().total_cmp(&other.remaining_gpu_s()));
        place_all_again(live, nodes);
    }
}

//! Least attained service.

use crate::baseline_replay::policies::place_all_again;
use crate::baseline_replay::{LiveJob, QueuePolicy, UniformNodes};

/// The job with the least attained GPU time comes first. Durations are unknown. Jobs are selected only at arrivals
/// and ends.
#[derive(Debug, Default)]
pub struct Las;

impl QueuePolicy for Las {
    fn select_running(&mut self, _now_s: f64, live: &mut [LiveJob], nodes: &mut UniformNodes) {
        live.sort_by(|one, other| one.ran_gpu_s().total_cmp(&other.ran_gpu_s()));
        place_all_again(live, nodes);
    }
}

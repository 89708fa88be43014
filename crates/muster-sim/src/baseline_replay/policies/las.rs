//! Least attained service.

use crate::baseline_replay::policies::place_all_again;
use crate::baseline_replay::{LiveJob, UniformNodes, QueuePolicy};

/// The job that has had the least GPU time comes first. It is told nothing about durations, and looks only when
/// something happens anyway.
#[derive(Debug, Default)]
pub struct Las;

impl QueuePolicy for Las {
    fn select_running(&mut self, _now_s: f64, live: &mut [LiveJob], nodes: &mut UniformNodes) {
        live.sort_by(|one, other| one.ran_gpu_s().total_cmp(&other.ran_gpu_s()));
        place_all_again(live, nodes);
    }
}

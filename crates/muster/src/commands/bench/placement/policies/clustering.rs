//! Clustering: pods that take the same number of GPUs together.

use super::super::cluster::{PodRequest, TraceNode};
use super::super::policy::NodeScore;
use super::GPU_MILLI_MAX;

/// Full nodes first, and among them those that run the same kind of pod, best nothing else.
pub struct Clustering;

impl NodeScore for Clustering {
    fn score(&self, _: usize, state: &TraceNode, ask: &PodRequest) -> i32 {
        let Some(tag) = ask.gpu_class() else { return 0 };
        let base = (25 * GPU_MILLI_MAX.saturating_sub(state.gpu_milli_free()) / GPU_MILLI_MAX) as i32;
        let company = match state.gpu_classes {
            0 => 25,
            tags if tags == tag => 75,
            tags if tags & tag != 0 => 50,
            _ => 0,
        };
        base + company
    }
}

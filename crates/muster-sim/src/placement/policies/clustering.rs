//! GPU clustering: pods that request the same number of GPUs go to the same nodes.

use super::GPU_MILLI_MAX;
use crate::placement::cluster::{PodRequest, TraceNode};
use crate::placement::policy::NodeScore;

/// Fuller nodes score higher; more points go to nodes that run pods of the same GPU class, most if no other class.
pub struct Clustering;

impl NodeScore for Clustering {
    fn score(&self, _: usize, state: &TraceNode, request: &PodRequest) -> i32 {
        let Some(class) = request.gpu_class() else { return 0 };
        let base = (25 * GPU_MILLI_MAX.saturating_sub(state.gpu_milli_free()) / GPU_MILLI_MAX) as i32;
        let same_class = match state.gpu_classes {
            0 => 25,
            classes if classes == class => 75,
            classes if classes & class != 0 => 50,
            _ => 0,
        };
        base + same_class
    }
}

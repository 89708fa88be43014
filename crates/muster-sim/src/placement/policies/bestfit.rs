//! Best fit: the node with the least capacity left after the placement.

use super::{CPU_MILLI_MAX, GPU_MILLI_MAX};
use crate::placement::cluster::{PodRequest, TraceNode};
use crate::placement::policy::NodeScore;

/// Cores and GPUs have equal weight. The published runs also stretch the scores of each pod to 0..100, which does not
/// change the set of nodes with the highest score and is left out.
pub struct BestFit;

impl NodeScore for BestFit {
    fn score(&self, _: usize, state: &TraceNode, request: &PodRequest) -> i32 {
        let cpu = (state.cpu_milli_free - request.cpu_milli) as f64 / CPU_MILLI_MAX;
        let gpu = (state.gpu_milli_free() - request.gpu_milli_total()) as f64 / GPU_MILLI_MAX as f64;
        (100.0 * (1.0 - 0.5 * cpu - 0.5 * gpu)) as i32
    }
}

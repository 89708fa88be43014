//! Best fit: the node with the least left.

use super::super::cluster::{PodRequest, TraceNode};
use super::super::policy::NodeScore;
use super::{CPU_MILLI_MAX, GPU_MILLI_MAX};

/// What is left of cores and GPUs counts the same. The published runs stretch these scores to 0..100 for each pod; the
/// highest stay the highest and no others join them, so we need not.
pub struct BestFit;

impl NodeScore for BestFit {
    fn score(&self, _: usize, state: &TraceNode, ask: &PodRequest) -> i32 {
        let cpu = (state.cpu_milli_free - ask.cpu_milli) as f64 / CPU_MILLI_MAX;
        let gpu = (state.gpu_milli_free() - ask.gpu_milli_total()) as f64 / GPU_MILLI_MAX as f64;
        (100.0 * (1.0 - 0.5 * cpu - 0.5 * gpu)) as i32
    }
}

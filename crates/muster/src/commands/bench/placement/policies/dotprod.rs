//! Dot product: the node whose free resources are least in line with what is asked.

use super::super::cluster::{PodRequest, TraceNode};
use super::super::policy::NodeScore;
use super::{CPU_MILLI_MAX, GPU_MILLI_MAX};

/// The product of what is free and what is asked, the lower the better.
pub struct DotProd;

impl NodeScore for DotProd {
    fn score(&self, _: usize, state: &TraceNode, ask: &PodRequest) -> i32 {
        let cpu = (state.cpu_milli_free as f64 / CPU_MILLI_MAX) * (ask.cpu_milli as f64 / CPU_MILLI_MAX);
        let gpu = (state.gpu_milli_free() * ask.gpu_milli_total()) as f64 / (GPU_MILLI_MAX * GPU_MILLI_MAX) as f64;
        (100.0 * (1.0 - (cpu + gpu) / 2.0)) as i32
    }
}

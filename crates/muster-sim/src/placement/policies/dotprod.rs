//! Dot product: the node whose free capacity is least aligned with the request.

use super::{CPU_MILLI_MAX, GPU_MILLI_MAX};
use crate::placement::cluster::{PodRequest, TraceNode};
use crate::placement::policy::NodeScore;

/// The dot product of free capacity and request; the lower the product, the higher the score.
pub struct DotProd;

impl NodeScore for DotProd {
    fn score(&self, _: usize, state: &TraceNode, request: &PodRequest) -> i32 {
        let cpu = (state.cpu_milli_free as f64 / CPU_MILLI_MAX) * (request.cpu_milli as f64 / CPU_MILLI_MAX);
        let gpu = (state.gpu_milli_free() * request.gpu_milli_total()) as f64 / (GPU_MILLI_MAX * GPU_MILLI_MAX) as f64;
        (100.0 * (1.0 - (cpu + gpu) / 2.0)) as i32
    }
}

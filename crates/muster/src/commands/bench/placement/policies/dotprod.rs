//! Dot product: the node whose free resources are least in line with what is asked.

use super::super::cluster::{Ask, Node};
use super::super::policy::Score;
use super::{CPU_MAX, GPU_MAX};

/// The product of what is free and what is asked, the lower the better.
pub struct DotProd;

impl Score for DotProd {
    fn score(&self, _: usize, state: &Node, ask: &Ask) -> i32 {
        let cpu = (state.cpu as f64 / CPU_MAX) * (ask.cpu as f64 / CPU_MAX);
        let gpu = (state.gpu_milli() * ask.gpu_milli()) as f64 / (GPU_MAX * GPU_MAX) as f64;
        (100.0 * (1.0 - (cpu + gpu) / 2.0)) as i32
    }
}

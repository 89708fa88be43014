//! Best fit: the node with the least left.

use super::super::cluster::{Ask, Node};
use super::super::policy::Score;
use super::{CPU_MAX, GPU_MAX};

/// What is left of cores and GPUs counts the same. The published runs stretch these scores to 0..100 for each pod; the
/// highest stay the highest and no others join them, so we need not.
pub struct BestFit;

impl Score for BestFit {
    fn score(&self, _: usize, state: &Node, ask: &Ask) -> i32 {
        let cpu = (state.cpu - ask.cpu) as f64 / CPU_MAX;
        let gpu = (state.gpu_milli() - ask.gpu_milli()) as f64 / GPU_MAX as f64;
        (100.0 * (1.0 - 0.5 * cpu - 0.5 * gpu)) as i32
    }
}

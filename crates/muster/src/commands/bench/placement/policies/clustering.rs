//! Clustering: pods that take the same number of GPUs together.

use super::super::cluster::{Ask, Node};
use super::super::policy::Score;
use super::GPU_MAX;

/// Full nodes first, and among them those that run the same kind of pod, best nothing else.
pub struct Clustering;

impl Score for Clustering {
    fn score(&self, _: usize, state: &Node, ask: &Ask) -> i32 {
        let Some(tag) = ask.tag() else { return 0 };
        let base = (25 * GPU_MAX.saturating_sub(state.gpu_milli()) / GPU_MAX) as i32;
        let company = match state.tags {
            0 => 25,
            tags if tags == tag => 75,
            tags if tags & tag != 0 => 50,
            _ => 0,
        };
        base + company
    }
}

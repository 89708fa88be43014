//! Shortest remaining service first.

use crate::replay::policies::seat_anew;
use crate::replay::{Live, Nodes, Policy};

/// The job with the least GPU time left comes first; it is told how long jobs run.
#[derive(Debug, Default)]
pub struct Srsf;

impl Policy for Srsf {
    fn choose(&mut self, _now_s: f64, live: &mut [Live], nodes: &mut Nodes) {
        live.sort_by(|one, other| one.left_gpu_s().total_cmp(&other.left_gpu_s()));
        seat_anew(live, nodes);
    }
}

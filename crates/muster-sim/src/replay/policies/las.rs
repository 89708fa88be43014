//! Least attained service.

use crate::replay::policies::seat_anew;
use crate::replay::{Live, Nodes, Policy};

/// The job that has had the least GPU time comes first. It is told nothing about durations, and looks only when
/// something happens anyway.
#[derive(Debug, Default)]
pub struct Las;

impl Policy for Las {
    fn choose(&mut self, _now_s: f64, live: &mut [Live], nodes: &mut Nodes) {
        live.sort_by(|one, other| one.ran_gpu_s().total_cmp(&other.ran_gpu_s()));
        seat_anew(live, nodes);
    }
}

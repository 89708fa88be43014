//! Shortest remaining time first.

use crate::replay::policies::seat_anew;
use crate::replay::{Live, Nodes, Policy};

/// The job that is done soonest comes first, whatever it needs; it is told how long jobs run.
#[derive(Debug, Default)]
pub struct Srtf;

impl Policy for Srtf {
    fn choose(&mut self, _now_s: f64, live: &mut [Live], nodes: &mut Nodes) {
        live.sort_by(|one, other| one.left_s.total_cmp(&other.left_s));
        seat_anew(live, nodes);
    }
}

//! The published policies, by the rules that give the published numbers, and the plain ones they are compared with.

mod easy;
mod fifo;
mod las;
mod sjf;
mod srsf;
mod srtf;
mod tiresias;

pub use easy::Easy;
pub use fifo::Fifo;
pub use las::Las;
pub use sjf::Sjf;
pub use srsf::Srsf;
pub use srtf::Srtf;
pub use tiresias::Tiresias;

use super::{Live, Nodes, Policy};

/// A policy by the name that people give it on the command line.
pub fn named(name: &str) -> Option<Box<dyn Policy>> {
    Some(match name {
        "fifo" => Box::new(Fifo),
        "sjf" => Box::new(Sjf),
        "srtf" => Box::new(Srtf),
        "srsf" => Box::new(Srsf),
        "tiresias" => Box::new(Tiresias::default()),
        "las" => Box::new(Las),
        "easy" => Box::new(Easy),
        _ => return None,
    })
}

/// Everyone leaves, and the jobs are seated anew as they stand; who does not fit is passed.
pub fn seat_anew(live: &mut [Live], nodes: &mut Nodes) {
    nodes.clear();
    live.iter_mut().for_each(|job| job.running = nodes.seat(job.job, job.spec.gpus));
}

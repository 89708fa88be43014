//! The baseline policies: the published ones, by the rules that give the published numbers, and simple ones for
//! comparison.

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

use super::{LiveJob, QueuePolicy, UniformNodes};

/// The policy of a command-line name.
pub fn policy_by_name(name: &str) -> Option<Box<dyn QueuePolicy>> {
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

/// Releases all GPUs and places the jobs again in their order; jobs that do not fit are skipped.
pub fn place_all_again(live: &mut [LiveJob], nodes: &mut UniformNodes) {
    nodes.release_all();
    live.iter_mut().for_each(|job| job.is_running = nodes.place_gang(job.trace_index, job.spec.gpus));
}

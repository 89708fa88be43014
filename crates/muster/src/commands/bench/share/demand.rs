//! The jobs that come, and what they ask for.

use muster_core::job::Isolation;

use muster_sim::random::Random;

/// A type of job: what it asks for, and how much slower than alone it may get.
#[derive(Debug, PartialEq)]
pub struct Type {
    /// As the measured pairs call it.
    pub name: &'static str,
    /// The part of a device that it asks for, in thousandths.
    pub compute_milli: u32,
    /// Memory of the device.
    pub memory_mib: u64,
    /// How strictly it is kept apart from others.
    pub isolation: Isolation,
    /// Whether the bandwidth of the memory is what it waits for.
    pub memory_bound: bool,
    /// The slowdown that it accepts.
    pub tolerance: f64,
}

/// Who comes, each as often as the others. A share is what a job needs to stay within its tolerance beside anybody
/// who keeps to a share as well; memory is what the job takes, rounded up generously.
pub static TYPES: [Type; 5] = [
    // Arithmetic in bulk that nobody waits for. On half of the multiprocessors it was measured at up to 2.06.
    Type {
        name: "gemm-large",
        compute_milli: 500,
        memory_mib: 4_096,
        isolation: Isolation::Memory,
        memory_bound: false,
        tolerance: 2.5,
    },
    // Data that is moved through memory; nobody waits for it. A limit on multiprocessors is none on bandwidth, of which
    // it takes all there is: so it asks to be apart. With half of the memory's slices it has half of the bandwidth.
    Type {
        name: "stream-copy",
        compute_milli: 450,
        memory_mib: 4_096,
        isolation: Isolation::Full,
        memory_bound: true,
        tolerance: 2.5,
    },
    // Training that should be done by tomorrow. On half of the multiprocessors: up to 1.46.
    Type {
        name: "train-resnet50",
        compute_milli: 500,
        memory_mib: 12_288,
        isolation: Isolation::Memory,
        memory_bound: false,
        tolerance: 1.5,
    },
    // Training as well, of a model that leaves the device idle between steps: up to 1.31 on half, so less will do.
    Type {
        name: "train-bert",
        compute_milli: 400,
        memory_mib: 12_288,
        isolation: Isolation::Memory,
        memory_bound: false,
        tolerance: 1.5,
    },
    // A token in 7 ms alone; in 14 it still comes faster than anyone reads. It hardly notices to have but half.
    Type {
        name: "infer-gpt2-b1",
        compute_milli: 200,
        memory_mib: 8_192,
        isolation: Isolation::Memory,
        memory_bound: false,
        tolerance: 2.0,
    },
];

/// Whose wish to be apart is told to the planner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wall {
    /// Of all who have it.
    AsAsked,
    /// Nobody's: limits on memory and multiprocessors are all there is.
    Nobody,
}

/// A job: which of the types it is.
pub type Job = usize;

/// So many jobs by chance.
pub fn jobs(count: usize, seed: u64) -> Vec<Job> {
    let mut random = Random(seed);
    (0..count).map(|_| random.below(TYPES.len() as u64) as usize).collect()
}

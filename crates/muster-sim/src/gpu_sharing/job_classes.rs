//! The job classes of the benchmark and their requests.

use muster_core::gpu::gpu_share::Isolation;

use crate::random::Random;

/// A class of jobs: its request and the slowdown that it tolerates.
#[derive(Debug, PartialEq)]
pub struct JobClass {
    /// Its name in the table of measured pairs.
    pub name: &'static str,
    /// The requested GPU share in thousandths.
    pub compute_milli: u32,
    /// The requested GPU memory.
    pub memory_mib: u64,
    pub isolation: Isolation,
    /// True if memory bandwidth is its bottleneck.
    pub memory_bound: bool,
    /// The tolerated slowdown; 1 is alone on a whole GPU.
    pub slowdown_max: f64,
}

/// Job classes, drawn with equal probability. `compute_milli` is the share that keeps the class within `slowdown_max`
/// next to any neighbour that respects its share; memory is the measured use, rounded up.
pub static JOB_CLASSES: [JobClass; 5] = [
    // Batch arithmetic. Measured slowdown with half of the multiprocessors: up to 2.06.
    JobClass {
        name: "gemm-large",
        compute_milli: 500,
        memory_mib: 4_096,
        isolation: Isolation::Memory,
        memory_bound: false,
        slowdown_max: 2.5,
    },
    // Batch copies through GPU memory. MPS limits multiprocessors and not bandwidth, which this class saturates, so it
    // requests full isolation. Half of the memory slices give half of the bandwidth.
    JobClass {
        name: "stream-copy",
        compute_milli: 450,
        memory_mib: 4_096,
        isolation: Isolation::Full,
        memory_bound: true,
        slowdown_max: 2.5,
    },
    // Training. Measured with half of the multiprocessors: up to 1.46.
    JobClass {
        name: "train-resnet50",
        compute_milli: 500,
        memory_mib: 12_288,
        isolation: Isolation::Memory,
        memory_bound: false,
        slowdown_max: 1.5,
    },
    // Training that leaves the GPU idle between steps: up to 1.31 with half, so a smaller share suffices.
    JobClass {
        name: "train-bert",
        compute_milli: 400,
        memory_mib: 12_288,
        isolation: Isolation::Memory,
        memory_bound: false,
        slowdown_max: 1.5,
    },
    // Interactive inference: 7 ms per token alone, and 14 ms is still faster than reading. Half of the
    // multiprocessors hardly slow it down.
    JobClass {
        name: "infer-gpt2-b1",
        compute_milli: 200,
        memory_mib: 8_192,
        isolation: Isolation::Memory,
        memory_bound: false,
        slowdown_max: 2.0,
    },
];

/// Whether the planner sees the isolation requests of the classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IsolationMode {
    /// As the classes request.
    Requested,
    /// At most `memory`: MPS limits on memory and multiprocessors.
    Ignored,
}

/// A job, as the index of its class in [`JOB_CLASSES`].
pub type JobClassIndex = usize;

/// Random jobs, the same for the same seed.
pub fn random_jobs(count: usize, seed: u64) -> Vec<JobClassIndex> {
    let mut random = Random(seed);
    (0..count).map(|_| random.below(JOB_CLASSES.len() as u64) as usize).collect()
}

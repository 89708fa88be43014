//! Random streams of jobs, the same for the same seed.

use crate::random::Random;

/// GPU counts of jobs and their percentages. As in published traces, most jobs are small and most GPU time is not.
const GPU_COUNT_WEIGHTS: [(u32, u64); 4] = [(1, 50), (2, 25), (4, 15), (8, 10)];
pub const RUNTIME_MS_MEAN: u64 = 3_600_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamJob {
    pub arrival_ms: u64,
    pub gpus: u32,
    pub runtime_ms: u64,
}

/// Jobs that offer a load, as a share of `gpus`, none with more GPUs than `gpus_max`. Arrivals are a Poisson process
/// and runtimes exponential; a runtime does not depend on the GPUs that the job gets.
pub fn job_stream(seed: u64, count: usize, load: f64, gpus: usize, gpus_max: u32) -> Vec<StreamJob> {
    let sizes: Vec<(u32, u64)> = GPU_COUNT_WEIGHTS.into_iter().filter(|(size, _)| *size <= gpus_max).collect();
    let weights: u64 = sizes.iter().map(|(_, weight)| weight).sum();
    let mean_gpus = sizes.iter().map(|(size, weight)| u64::from(*size) * weight).sum::<u64>() as f64 / weights as f64;
    let interarrival_ms = RUNTIME_MS_MEAN as f64 * mean_gpus / (load * gpus as f64);
    let mut random = Random(seed);
    let mut now_ms = 0.0;
    let mut next = || {
        now_ms += random.exponential(interarrival_ms);
        let gpus = random.choose_weighted(&sizes, weights);
        StreamJob { arrival_ms: now_ms as u64, gpus, runtime_ms: random.exponential(RUNTIME_MS_MEAN as f64) as u64 + 1 }
    };
    (0..count).map(|_| next()).collect()
}

//! Jobs by chance, the same for the same seed.

use muster_sim::random::Random;

/// How many in a hundred ask for so many GPUs. Most jobs of published traces are small; most GPU time is not.
const SIZES: [(u32, u64); 4] = [(1, 50), (2, 25), (4, 15), (8, 10)];
/// How long a job holds its GPUs, on average.
pub const MEAN_MS: u64 = 3_600_000;

/// A job of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Job {
    pub arrives_ms: u64,
    pub gpus: u32,
    pub lasts_ms: u64,
}

/// Jobs that ask for this share of all GPUs, none for more than `largest`. They come at random moments, and
/// their durations are exponential; they do not depend on the devices a job gets.
pub fn jobs(seed: u64, count: usize, load: f64, gpus: usize, largest: u32) -> Vec<Job> {
    let sizes: Vec<(u32, u64)> = SIZES.into_iter().filter(|(size, _)| *size <= largest).collect();
    let weights: u64 = sizes.iter().map(|(_, weight)| weight).sum();
    let mean_gpus =
        sizes.iter().map(|(size, weight)| u64::from(*size) * weight).sum::<u64>() as f64 / weights as f64;
    let pause_ms = MEAN_MS as f64 * mean_gpus / (load * gpus as f64);
    let mut random = Random(seed);
    let mut now_ms = 0.0;
    let mut next = || {
        now_ms += random.exponential(pause_ms);
        let gpus = random.pick(&sizes, weights);
        Job { arrives_ms: now_ms as u64, gpus, lasts_ms: random.exponential(MEAN_MS as f64) as u64 + 1 }
    };
    (0..count).map(|_| next()).collect()
}

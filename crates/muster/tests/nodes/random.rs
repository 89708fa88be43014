//! A seeded generator (xorshift), so that a failed campaign can be repeated.

use std::time::Duration;

pub struct SeededRandom(u64);

impl SeededRandom {
    pub fn new(seed: u64) -> SeededRandom {
        SeededRandom(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below the limit.
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }

    pub fn pause(&mut self, at_most_ms: usize) -> Duration {
        Duration::from_millis(self.below(at_most_ms + 1) as u64)
    }
}

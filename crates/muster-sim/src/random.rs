//! A seeded random number generator: the same seed gives the same numbers on every machine.

/// SplitMix64.
#[derive(Debug, Clone)]
pub struct Random(pub u64);

impl Random {
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number below `end`, which must not be 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next_u64() % end
    }

    /// A number from `from` to `to`, both included.
    pub fn between(&mut self, from: i64, to: i64) -> i64 {
        from + self.below((to - from + 1) as u64) as i64
    }

    /// True with the given probability in thousandths.
    pub fn chance_per_mille(&mut self, per_mille: u64) -> bool {
        self.below(1_000) < per_mille
    }

    pub fn choose<'a, T>(&mut self, options: &'a [T]) -> &'a T {
        &options[self.below(options.len() as u64) as usize]
    }

    /// An exponentially distributed number above zero, as for the times between independent arrivals.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * self.unit_interval().ln()
    }

    /// A number in (0, 1]; never 0, so that its logarithm is finite.
    pub fn unit_interval(&mut self) -> f64 {
        ((self.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// One of the sizes, with a probability proportional to its weight; `weights` is the sum of all weights.
    pub fn choose_weighted(&mut self, sizes: &[(u32, u64)], weights: u64) -> u32 {
        let mut left = self.below(weights);
        for (size, weight) in sizes {
            if left < *weight {
                return *size;
            }
            left -= weight;
        }
        1
    }
}

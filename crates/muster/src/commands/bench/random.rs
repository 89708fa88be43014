//! Chance from a seed: the same seed, the same numbers.

/// SplitMix64: small, and the same everywhere.
pub struct Random(pub u64);

impl Random {
    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// The next number below an end.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// A number above zero with this mean, distributed as times between independent arrivals are.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        // Above zero, so that the logarithm is finite.
        let unit = ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64;
        -mean * unit.ln()
    }

    /// One of these sizes, as often as its weight says.
    pub fn pick(&mut self, sizes: &[(u32, u64)], weights: u64) -> u32 {
        let mut left = self.next() % weights;
        for (size, weight) in sizes {
            if left < *weight {
                return *size;
            }
            left -= weight;
        }
        1
    }
}

//! Decayed usage: the average number of GPUs that a tenant or user held, with an exponential half-life.
//!
//! A tenant that held eight GPUs for one half-life and none before has an average of four. The average is advanced
//! whenever the number of held GPUs changes, which equals a sum over the whole history at O(1). It may be advanced a
//! thousand times a second, so its internal resolution is far finer than the one it is read with.
//!
//! The half-life is the cluster's, or follows from the decay per day that a tenant is configured with.

use serde::{Deserialize, Serialize};

use crate::time::{DAY, Timestamp};

/// An exponentially decayed average.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DecayedUsage {
    /// The average at `at`, in units of 2^-26 millionths of a GPU.
    fine: u64,
    /// When the average was last advanced.
    at: Timestamp,
}

/// Bits of internal resolution below one millionth of a GPU.
const FINE_BITS: u32 = 26;

impl DecayedUsage {
    /// The average now, in millionths of a GPU, if `held_milli` thousandths of GPUs have been held since the last
    /// advance.
    pub fn micro_gpus(self, held_milli: u64, now: Timestamp, half_life_ms: i64) -> u64 {
        self.fine(held_milli, now, half_life_ms) >> FINE_BITS
    }

    /// Advance the average to `now`. Call it before the number of held GPUs changes.
    pub(crate) fn advance(&mut self, held_milli: u64, now: Timestamp, half_life_ms: i64) {
        let now = now.max(self.at);
        *self = DecayedUsage { fine: self.fine(held_milli, now, half_life_ms), at: now };
    }

    /// Subtract `held_milli` thousandths of GPUs that were counted as held during the last `ms` before the last advance
    /// but were not used.
    pub(crate) fn take_back(&mut self, held_milli: u64, ms: i64, half_life_ms: i64) {
        let counted = share_of(fine_of(held_milli), ONE - decay_factor(ms, half_life_ms));
        self.fine = self.fine.saturating_sub(u64::try_from(counted).unwrap_or(u64::MAX));
    }

    fn fine(self, held_milli: u64, now: Timestamp, half_life_ms: i64) -> u64 {
        let kept = decay_factor(now.since(self.at), half_life_ms);
        let past = u128::from(self.fine);
        let average = share_of(past, kept) + share_of(fine_of(held_milli), ONE - kept);
        u64::try_from(average).unwrap_or(u64::MAX)
    }
}

/// Thousandths of a GPU in the internal resolution.
fn fine_of(held_milli: u64) -> u128 {
    // No cluster has more than 100,000 GPUs; beyond that the sums above would overflow.
    (u128::from(held_milli.min(100_000_000)) * 1_000) << FINE_BITS
}

const ONE: u128 = 1 << 64;

fn share_of(whole: u128, part: u128) -> u128 {
    (whole * part) >> 64
}

/// 2^(−1/2), 2^(−1/4), 2^(−1/8) and so on, in units of 2^-64: each is the square root of the one before.
const ROOTS: [u128; 40] = {
    let mut roots = [0; 40];
    let mut last = ONE / 2;
    let mut at = 0;
    while at < roots.len() {
        last = (last << 64).isqrt();
        roots[at] = last;
        at += 1;
    }
    roots
};

/// The weight of past usage after `passed_ms`, in units of 2^-64: one half after each half-life.
fn decay_factor(passed_ms: i64, half_life_ms: i64) -> u128 {
    let (passed, half_life) = (passed_ms.max(0) as u128, half_life_ms.max(1) as u128);
    let halves = passed / half_life;
    if halves >= 64 {
        return 0;
    }
    // The fraction of a half-life in binary: each digit that is 1 selects a root to multiply with.
    let rest = ((passed % half_life) << ROOTS.len()) / half_life;
    let digits = (0..ROOTS.len()).filter(|digit| rest & (1 << (ROOTS.len() - 1 - digit)) != 0);
    digits.fold(ONE >> halves, |kept, digit| share_of(kept, ROOTS[digit]))
}

/// The half-life at which usage decays by `decay_milli` thousandths in a day; 1 ms if it decays by all of it.
pub(crate) fn half_life_ms(decay_milli: u32) -> i64 {
    let kept = ONE * u128::from(1_000_u32.saturating_sub(decay_milli)) / 1_000;
    if kept == 0 {
        return 1;
    }
    let (day, halvings) = ((DAY as u128) << DIGITS, halvings(kept).max(1));
    i64::try_from((day + halvings / 2) / halvings).unwrap_or(i64::MAX)
}

/// The binary logarithm of 1 / `part`, with `part` in units of 2^-64 and the result in units of 2^-40: the inverse of
/// [`decay_factor`]. The platform's logarithm is not used: platforms differ in the last digit.
fn halvings(part: u128) -> u128 {
    let whole = part.leading_zeros() - ONE.leading_zeros();
    // `left` is between one and two, in units of 2^-63. Its square exceeds two if the next binary digit of its
    // logarithm is 1.
    let (mut left, mut digits) = ((part << whole) >> 1, 0);
    for _ in 0..DIGITS {
        left = (left * left) >> 63;
        let digit = left >> 64;
        left >>= digit;
        digits = (digits << 1) | digit;
    }
    (u128::from(whole) << DIGITS) - digits
}

/// Binary digits of the logarithm: a half-life of a year is exact to a hundredth of a second.
const DIGITS: u32 = 40;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::HOUR;

    #[test]
    fn usage_decays_by_the_configured_fraction_in_a_day() {
        for milli in 1..1_000 {
            let expected = ONE * u128::from(1_000 - milli) / 1_000;
            let off = decay_factor(DAY, half_life_ms(milli)).abs_diff(expected);
            assert!(off < ONE / 100_000_000, "{milli} thousandths: {off} parts of 2^64 off");
        }
    }

    #[test]
    fn half_life_follows_from_the_decay_per_day() {
        let cases = [(1, 59_857_967_449), (250, 208_173_961), (500, DAY), (750, DAY / 2), (999, 8_669_664)];
        for (milli, ms) in cases {
            assert!(half_life_ms(milli).abs_diff(ms) <= 10, "{milli}: {} is not {ms}", half_life_ms(milli));
        }
        let all = (1..=1_000).map(half_life_ms);
        assert!(all.is_sorted_by(|a, b| a > b), "a larger decay gives a shorter half-life");
        assert_eq!((half_life_ms(1_000), half_life_ms(u32::MAX)), (1, 1), "all usage decays at once");
    }

    /// In thousandths of a GPU.
    fn milli(usage: DecayedUsage, held: u64, hours: i64) -> u64 {
        (usage.micro_gpus(held * 1_000, Timestamp(hours * HOUR), 24 * HOUR) + 500) / 1_000
    }

    #[test]
    fn past_usage_halves_after_each_half_life() {
        let mut usage = DecayedUsage::default();
        assert_eq!(milli(usage, 8, 24), 4_000);
        assert_eq!(milli(usage, 8, 48), 6_000);
        assert_eq!(milli(usage, 8, 12), 2_343);
        assert_eq!(milli(usage, 8, 24 * 40), 8_000);
        usage.advance(8_000, Timestamp(24 * HOUR), 24 * HOUR);
        assert_eq!(milli(usage, 0, 24), 4_000);
        assert_eq!(milli(usage, 0, 48), 2_000);
        assert_eq!(milli(usage, 0, 24 * 40), 0);
    }

    #[test]
    fn advancing_in_steps_equals_advancing_at_once() {
        for step_ms in [1, 997, 9_000, 60_000, HOUR] {
            let steps = (24 * HOUR / step_ms).min(200_000);
            let (mut stepwise, end) = (DecayedUsage::default(), Timestamp(steps * step_ms));
            (1..=steps).for_each(|step| stepwise.advance(5_000, Timestamp(step * step_ms), 24 * HOUR));
            let at_once = DecayedUsage::default().micro_gpus(5_000, end, 24 * HOUR);
            let off = stepwise.micro_gpus(0, end, 24 * HOUR).abs_diff(at_once);
            assert!(off <= 2, "steps of {step_ms} ms are {off} millionths off");
        }
    }

    #[test]
    fn take_back_subtracts_unused_gpu_time() {
        let (mut counted, mut held) = (DecayedUsage::default(), DecayedUsage::default());
        counted.advance(8_000, Timestamp(30 * HOUR), 24 * HOUR);
        counted.take_back(3_000, 6 * HOUR, 24 * HOUR);
        held.advance(8_000, Timestamp(24 * HOUR), 24 * HOUR);
        held.advance(5_000, Timestamp(30 * HOUR), 24 * HOUR);
        assert!(milli(counted, 0, 30).abs_diff(milli(held, 0, 30)) <= 1, "{counted:?}, {held:?}");
    }

    #[test]
    fn decay_in_many_steps_equals_decay_in_one() {
        let mut usage = DecayedUsage::default();
        usage.advance(8_000, Timestamp(24 * HOUR), 24 * HOUR);
        (1..=24 * 3_600).for_each(|second| usage.advance(0, Timestamp(24 * HOUR + second * 1_000), 24 * HOUR));
        assert!(usage.micro_gpus(0, Timestamp(48 * HOUR), 24 * HOUR).abs_diff(2_000_000) <= 2);
    }
}

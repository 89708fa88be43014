//! How many GPUs someone held of late: an average in which the past counts half after each half-life.
//!
//! Who held eight GPUs for a whole half-life and none before has an average of four. The average is brought up to
//! date whenever what is held changes, which gives the same as a sum over all of history, at O(1). It may be brought
//! up to date a thousand times a second, so it is kept far finer than it is read.

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// A moving average.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Recent {
    /// The average at that moment, in parts of 2^26 of a millionth of a GPU.
    fine: u64,
    /// When it was brought up to date.
    at: Timestamp,
}

/// One millionth of a GPU is so many bits finer inside.
const FINE_BITS: u32 = 26;

impl Recent {
    /// The average now, in millionths of a GPU, for someone who has held so many since it was last brought up to
    /// date.
    pub fn micro_gpus(self, held: u64, now: Timestamp, half_life_ms: i64) -> u64 {
        self.fine(held, now, half_life_ms) >> FINE_BITS
    }

    /// Bring it up to date, before what is held changes.
    pub(crate) fn advance(&mut self, held: u64, now: Timestamp, half_life_ms: i64) {
        let now = now.max(self.at);
        *self = Recent { fine: self.fine(held, now, half_life_ms), at: now };
    }

    fn fine(self, held: u64, now: Timestamp, half_life_ms: i64) -> u64 {
        let kept = kept(now.since(self.at), half_life_ms);
        let past = u128::from(self.fine);
        // No cluster has more GPUs than that; beyond it the sum below would not fit.
        let present = (u128::from(held.min(100_000)) * 1_000_000) << FINE_BITS;
        let average = share_of(past, kept) + share_of(present, ONE - kept);
        u64::try_from(average).unwrap_or(u64::MAX)
    }
}

const ONE: u128 = 1 << 64;

fn share_of(whole: u128, part: u128) -> u128 {
    (whole * part) >> 64
}

/// 2^(−1/2), 2^(−1/4), 2^(−1/8) and so on, as parts of 2^64: each the square root of the one before.
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

/// What is kept of the past after a while, as a part of 2^64: one half after each half-life.
fn kept(passed_ms: i64, half_life_ms: i64) -> u128 {
    let (passed, half_life) = (passed_ms.max(0) as u128, half_life_ms.max(1) as u128);
    let halves = passed / half_life;
    if halves >= 64 {
        return 0;
    }
    // The rest of a half-life in binary: each digit is a root to multiply with.
    let rest = ((passed % half_life) << ROOTS.len()) / half_life;
    let digits = (0..ROOTS.len()).filter(|digit| rest & (1 << (ROOTS.len() - 1 - digit)) != 0);
    digits.fold(ONE >> halves, |kept, digit| share_of(kept, ROOTS[digit]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::HOUR;

    /// In thousandths of a GPU.
    fn milli(recent: Recent, held: u64, hours: i64) -> u64 {
        (recent.micro_gpus(held, Timestamp(hours * HOUR), 24 * HOUR) + 500) / 1_000
    }

    #[test]
    fn the_past_counts_half_after_each_half_life() {
        let mut recent = Recent::default();
        assert_eq!(milli(recent, 8, 24), 4_000);
        assert_eq!(milli(recent, 8, 48), 6_000);
        assert_eq!(milli(recent, 8, 12), 2_343);
        assert_eq!(milli(recent, 8, 24 * 40), 8_000);
        recent.advance(8, Timestamp(24 * HOUR), 24 * HOUR);
        assert_eq!(milli(recent, 0, 24), 4_000);
        assert_eq!(milli(recent, 0, 48), 2_000);
        assert_eq!(milli(recent, 0, 24 * 40), 0);
    }

    #[test]
    fn steps_in_between_change_nothing() {
        for step_ms in [1, 997, 9_000, 60_000, HOUR] {
            let steps = (24 * HOUR / step_ms).min(200_000);
            let (mut stepwise, end) = (Recent::default(), Timestamp(steps * step_ms));
            (1..=steps).for_each(|step| stepwise.advance(5, Timestamp(step * step_ms), 24 * HOUR));
            let at_once = Recent::default().micro_gpus(5, end, 24 * HOUR);
            let off = stepwise.micro_gpus(0, end, 24 * HOUR).abs_diff(at_once);
            assert!(off <= 2, "steps of {step_ms} ms are {off} millionths off");
        }
    }

    #[test]
    fn many_steps_forget_as_one_does() {
        let mut recent = Recent::default();
        recent.advance(8, Timestamp(24 * HOUR), 24 * HOUR);
        (1..=24 * 3_600)
            .for_each(|second| recent.advance(0, Timestamp(24 * HOUR + second * 1_000), 24 * HOUR));
        assert!(recent.micro_gpus(0, Timestamp(48 * HOUR), 24 * HOUR).abs_diff(2_000_000) <= 2);
    }
}

//! How many GPUs someone held of late: an average in which the past counts half after each half-life.
//!
//! Who held eight GPUs for a whole half-life and none before has an average of four. The average is brought up to
//! date whenever what is held changes, which gives the same as a sum over all of history, at O(1).

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// A moving average, in millionths of a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Recent {
    /// The average at that moment.
    micro_gpus: u64,
    /// When it was brought up to date.
    at: Timestamp,
}

impl Recent {
    /// The average now, for someone who has held so many GPUs since it was last brought up to date.
    pub fn micro_gpus(self, held: u64, now: Timestamp, half_life_ms: i64) -> u64 {
        let kept = kept(now.since(self.at), half_life_ms);
        let (past, present) = (u128::from(self.micro_gpus), u128::from(held) * 1_000_000);
        let average = (past * u128::from(kept) + present * u128::from(ONE - kept)) >> ONE_BITS;
        u64::try_from(average).unwrap_or(u64::MAX)
    }

    /// Bring it up to date, before what is held changes.
    pub(crate) fn advance(&mut self, held: u64, now: Timestamp, half_life_ms: i64) {
        let now = now.max(self.at);
        *self = Recent { micro_gpus: self.micro_gpus(held, now, half_life_ms), at: now };
    }
}

const ONE_BITS: u32 = 32;
const ONE: u64 = 1 << ONE_BITS;

/// 2^(−1/2), 2^(−1/4), 2^(−1/8) and so on, as parts of 2^32.
const ROOTS: [u64; 16] = [
    3_037_000_500,
    3_611_622_603,
    3_938_502_376,
    4_112_874_773,
    4_202_935_003,
    4_248_701_965,
    4_271_771_996,
    4_283_353_945,
    4_289_156_690,
    4_292_061_010,
    4_293_513_907,
    4_294_240_540,
    4_294_603_903,
    4_294_785_595,
    4_294_876_445,
    4_294_921_870,
];

/// What is kept of the past after a while, as a part of 2^32: one half after each half-life.
fn kept(passed_ms: i64, half_life_ms: i64) -> u64 {
    let (passed, half_life) = (passed_ms.max(0) as u128, half_life_ms.max(1) as u128);
    let halves = passed / half_life;
    if halves >= u128::from(ONE_BITS) {
        return 0;
    }
    // The rest of a half-life in binary: each digit is a root to multiply with.
    let rest = ((passed % half_life) << ROOTS.len()) / half_life;
    let digits = (0..ROOTS.len()).filter(|digit| rest & (1 << (ROOTS.len() - 1 - digit)) != 0);
    digits.fold(ONE >> halves, |kept, digit| (kept * ROOTS[digit]) >> ONE_BITS)
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
        let mut stepwise = Recent::default();
        (1..=24 * 7).for_each(|hour| stepwise.advance(5, Timestamp(hour * HOUR), 24 * HOUR));
        let at_once = milli(Recent::default(), 5, 24 * 7);
        assert!(milli(stepwise, 5, 24 * 7).abs_diff(at_once) <= 1, "{stepwise:?} against {at_once}");
    }
}

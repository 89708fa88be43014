//! How right the planner was when it said when jobs would start, and how much it learns from that.
//!
//! A range that turns out too short makes all that follow longer by a tenth; one that does not makes them shorter by
//! a hundredth, and so for those that begin too late. Whatever the runtimes are, about one start in eleven is then
//! late and one in eleven early in the long run, and four in five are inside.

use serde::{Deserialize, Serialize};

use crate::plan::Range;
use crate::time::{SECOND, Timestamp};

/// How many of the last ranges are remembered.
const REMEMBERED: u32 = 500;
/// One, in thousandths.
const ONE: i64 = 1_000;
/// The number of newest starts by which the accuracy of start ranges is judged.
const JUDGED: u32 = 20;
/// A round and the way to the node take a moment, however soon a job starts.
const LEAST_MS: i64 = 10 * SECOND;

/// How right ranges were.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Foresight {
    /// What the near end of a range is multiplied by, in thousandths.
    near_milli: i64,
    /// And its far end.
    far_milli: i64,
    /// The last ranges, newest in the lowest bit: whether the start was inside.
    inside: Vec<u64>,
    /// How many are remembered.
    count: u32,
}

impl Default for Foresight {
    fn default() -> Foresight {
        Foresight { near_milli: ONE / 2, far_milli: ONE * 5 / 4, inside: Vec::new(), count: 0 }
    }
}

impl Foresight {
    /// A range as it is told, given how right others were.
    pub fn stretched(&self, range: Range, now: Timestamp) -> Range {
        let scaled = |ms: i64, milli: i64| (i128::from(ms) * i128::from(milli) / i128::from(ONE)) as i64;
        let near = scaled(range.from.since(now), self.near_milli);
        let far = scaled(range.to.since(now), self.far_milli).saturating_add(LEAST_MS);
        Range { from: now.plus(near), to: now.plus(far) }
    }

    /// How many of the last starts were inside the range that was told, of how many.
    pub fn hits(&self) -> (u32, u32) {
        (self.inside.iter().map(|word| word.count_ones()).sum(), self.count)
    }

    /// The same of the newest of them, which say whether a range is worth telling now.
    pub fn recent_hits(&self) -> (u32, u32) {
        let newest = self.inside.first().copied().unwrap_or_default() & ((1 << JUDGED) - 1);
        (newest.count_ones(), self.count.min(JUDGED))
    }

    /// Whether start ranges are shown to users: at least half of the newest were right, or none was shown yet.
    /// What is not told is recorded all the same, so that ranges become right and are told again.
    pub fn is_reliable(&self) -> bool {
        let (right, of) = self.recent_hits();
        2 * right >= of
    }

    /// A job has started of which a range was told.
    pub(crate) fn add(&mut self, told: Range, started: Timestamp) {
        let (early, late) = (started < told.from, started > told.to);
        self.far_milli = moved(self.far_milli, late, true).clamp(ONE, 20 * ONE);
        self.near_milli = moved(self.near_milli, early, false).clamp(0, ONE);
        self.remember(!early && !late);
    }

    fn remember(&mut self, inside: bool) {
        let words = REMEMBERED.div_ceil(u64::BITS) as usize;
        self.inside.resize(words, 0);
        let mut carry = u64::from(inside);
        for word in &mut self.inside {
            (*word, carry) = (*word << 1 | carry, *word >> (u64::BITS - 1));
        }
        let unused = words as u32 * u64::BITS - REMEMBERED;
        if let Some(last) = self.inside.last_mut() {
            *last &= u64::MAX >> unused;
        }
        self.count = (self.count + 1).min(REMEMBERED);
    }
}

/// Away from what was missed by a tenth, back by a hundredth otherwise.
fn moved(milli: i64, missed: bool, outward_is_up: bool) -> i64 {
    let step = if missed { milli.max(10) / 10 + 1 } else { -(milli / 100 + 1) };
    if outward_is_up { milli + step } else { milli - step }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ranges_are_remembered_and_no_more() {
        let mut foresight = Foresight::default();
        let told = Range { from: Timestamp(0), to: Timestamp(10) };
        (0..700).for_each(|_| foresight.add(told, Timestamp(5)));
        assert_eq!(foresight.hits(), (500, 500));
        (0..100).for_each(|_| foresight.add(told, Timestamp(11)));
        assert_eq!(foresight.hits(), (400, 500));
    }

    #[test]
    fn a_poor_record_is_not_told_until_it_is_better() {
        let mut foresight = Foresight::default();
        let told = Range { from: Timestamp(0), to: Timestamp(10) };
        assert!(foresight.is_reliable(), "none was told yet");
        (0..5).for_each(|_| foresight.add(told, Timestamp(11)));
        assert!(!foresight.is_reliable(), "none of five was right");
        (0..5).for_each(|_| foresight.add(told, Timestamp(5)));
        assert!(foresight.is_reliable(), "half of ten were right");
        (0..100).for_each(|_| foresight.add(told, Timestamp(5)));
        assert_eq!(foresight.recent_hits(), (20, 20), "what is long past no longer counts");
    }

    #[test]
    fn ranges_are_right_four_times_in_five_whatever_is_told() {
        for times in [1, 3, 9] {
            let mut foresight = Foresight::default();
            let mut seed = 1u64;
            for _ in 0..3_000 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                // It says an hour, and it takes anything from nothing to so many hours.
                let really = Timestamp((seed >> 40) as i64 * 3_600 * times / (1 << 24) * 1_000);
                let hour = Timestamp(3_600_000);
                let told = foresight.stretched(Range { from: hour, to: hour }, Timestamp(0));
                foresight.add(told, really);
            }
            let (inside, of) = foresight.hits();
            assert!((380..=460).contains(&inside), "{inside} of {of} were inside with {times}");
        }
    }
}

//! Forecast calibration: how accurate start ranges were, and the factors that correct the next ones.
//!
//! A start after the end of its range widens the far end of later ranges by a tenth; any other start narrows it by a
//! hundredth. The near end is adjusted alike by starts before the range. Whatever the runtimes are, in the long run
//! about one start in eleven is late, one in eleven is early, and four in five are inside.

use serde::{Deserialize, Serialize};

use crate::objects::start_range::StartRange;
use crate::time::{SECOND, Timestamp};

/// The number of newest starts that are recorded.
const REMEMBERED_STARTS: u32 = 500;
/// A factor of one, in thousandths.
const ONE: i64 = 1_000;
/// The number of newest starts by which the accuracy of start ranges is judged.
const JUDGED_STARTS: u32 = 20;
/// The least delay of a start: a planner round and the dispatch to the node.
const START_DELAY_MS: i64 = 10 * SECOND;

/// The accuracy of past start ranges, and the factors derived from it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForecastCalibration {
    /// Factor of the near end of a range, in thousandths.
    near_milli: i64,
    /// Factor of the far end of a range, in thousandths.
    far_milli: i64,
    /// One bit per recorded start, the newest in the lowest bit: whether it was inside its range.
    inside: Vec<u64>,
    /// Number of recorded starts.
    count: u32,
}

impl Default for ForecastCalibration {
    fn default() -> ForecastCalibration {
        ForecastCalibration { near_milli: ONE / 2, far_milli: ONE * 5 / 4, inside: Vec::new(), count: 0 }
    }
}

impl ForecastCalibration {
    /// A forecast range, scaled by the factors.
    pub fn calibrated(&self, range: StartRange, now: Timestamp) -> StartRange {
        let scaled = |ms: i64, milli: i64| (i128::from(ms) * i128::from(milli) / i128::from(ONE)) as i64;
        let near = scaled(range.from.since(now), self.near_milli);
        let far = scaled(range.to.since(now), self.far_milli).saturating_add(START_DELAY_MS);
        StartRange { from: now.plus(near), to: now.plus(far) }
    }

    /// The number of recorded starts inside their range, and the number of recorded starts.
    pub fn hits(&self) -> (u32, u32) {
        (self.inside.iter().map(|word| word.count_ones()).sum(), self.count)
    }

    /// The same for the newest starts, by which [`ForecastCalibration::is_reliable`] judges.
    pub fn recent_hits(&self) -> (u32, u32) {
        let newest = self.inside.first().copied().unwrap_or_default() & ((1 << JUDGED_STARTS) - 1);
        (newest.count_ones(), self.count.min(JUDGED_STARTS))
    }

    /// Whether start ranges are shown to users: at least half of the newest starts were inside, or none is recorded
    /// yet. Ranges that are not shown are recorded all the same, so that they can become accurate and be shown again.
    pub fn is_reliable(&self) -> bool {
        let (right, of) = self.recent_hits();
        2 * right >= of
    }

    /// Record the start of a job for which a range was forecast.
    pub(crate) fn add(&mut self, range: StartRange, started: Timestamp) {
        let (early, late) = (started < range.from, started > range.to);
        self.far_milli = moved(self.far_milli, late, true).clamp(ONE, 20 * ONE);
        self.near_milli = moved(self.near_milli, early, false).clamp(0, ONE);
        self.remember(!early && !late);
    }

    fn remember(&mut self, inside: bool) {
        let words = REMEMBERED_STARTS.div_ceil(u64::BITS) as usize;
        self.inside.resize(words, 0);
        let mut carry = u64::from(inside);
        for word in &mut self.inside {
            (*word, carry) = (*word << 1 | carry, *word >> (u64::BITS - 1));
        }
        let unused = words as u32 * u64::BITS - REMEMBERED_STARTS;
        if let Some(last) = self.inside.last_mut() {
            *last &= u64::MAX >> unused;
        }
        self.count = (self.count + 1).min(REMEMBERED_STARTS);
    }
}

/// Move a factor outward by a tenth after a miss, and inward by a hundredth otherwise.
fn moved(milli: i64, missed: bool, outward_is_up: bool) -> i64 {
    let step = if missed { milli.max(10) / 10 + 1 } else { -(milli / 100 + 1) };
    if outward_is_up { milli + step } else { milli - step }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_count_only_the_newest_starts() {
        let mut calibration = ForecastCalibration::default();
        let range = StartRange { from: Timestamp(0), to: Timestamp(10) };
        (0..700).for_each(|_| calibration.add(range, Timestamp(5)));
        assert_eq!(calibration.hits(), (500, 500));
        (0..100).for_each(|_| calibration.add(range, Timestamp(11)));
        assert_eq!(calibration.hits(), (400, 500));
    }

    #[test]
    fn ranges_are_unreliable_while_most_recent_starts_miss_them() {
        let mut calibration = ForecastCalibration::default();
        let range = StartRange { from: Timestamp(0), to: Timestamp(10) };
        assert!(calibration.is_reliable(), "no start is recorded yet");
        (0..5).for_each(|_| calibration.add(range, Timestamp(11)));
        assert!(!calibration.is_reliable(), "none of five starts was inside");
        (0..5).for_each(|_| calibration.add(range, Timestamp(5)));
        assert!(calibration.is_reliable(), "half of ten starts were inside");
        (0..100).for_each(|_| calibration.add(range, Timestamp(5)));
        assert_eq!(calibration.recent_hits(), (20, 20), "older starts no longer count");
    }

    #[test]
    fn four_in_five_starts_are_inside_whatever_the_forecast_error() {
        for times in [1, 3, 9] {
            let mut calibration = ForecastCalibration::default();
            let mut seed = 1u64;
            for _ in 0..3_000 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                // The forecast is one hour; the start is uniform between zero and `times` hours.
                let started = Timestamp((seed >> 40) as i64 * 3_600 * times / (1 << 24) * 1_000);
                let hour = Timestamp(3_600_000);
                let range = calibration.calibrated(StartRange { from: hour, to: hour }, Timestamp(0));
                calibration.add(range, started);
            }
            let (inside, of) = calibration.hits();
            assert!((380..=460).contains(&inside), "{inside} of {of} were inside with {times}");
        }
    }
}

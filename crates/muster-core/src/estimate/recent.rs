//! The runtimes of recently ended jobs: their median and maximum.

use serde::{Deserialize, Serialize};

/// The last runtimes of a user, job type, tenant or cluster, in milliseconds; the newest last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RecentRuntimes {
    newest: [i64; RecentRuntimes::KEPT],
    count: u8,
}

impl RecentRuntimes {
    const KEPT: usize = 8;

    /// Add the runtime of an ended job.
    pub fn add(&mut self, ms: i64) {
        self.newest.rotate_left(1);
        self.newest[RecentRuntimes::KEPT - 1] = ms.max(0);
        self.count = (self.count + 1).min(RecentRuntimes::KEPT as u8);
    }

    /// Median and longest; `None` below three runtimes.
    pub fn median_and_longest_ms(&self) -> Option<(i64, i64)> {
        let mut newest = self.newest;
        let known = &mut newest[RecentRuntimes::KEPT - usize::from(self.count)..];
        known.sort_unstable();
        let longest = *known.last().filter(|_| known.len() >= 3)?;
        Some((known[known.len() / 2], longest))
    }

    /// The same from one or two runtimes: they show the order of magnitude only, so the longest is multiplied by four.
    pub fn median_and_longest_ms_of_few(&self) -> Option<(i64, i64)> {
        let known = &self.newest[RecentRuntimes::KEPT - usize::from(self.count)..];
        let longest = *known.iter().max()?;
        Some((known[known.len() / 2], longest.saturating_mul(4)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_and_longest_of_recent_runtimes() {
        let mut runtimes = RecentRuntimes::default();
        [50, 10].into_iter().for_each(|ms| runtimes.add(ms));
        assert_eq!(runtimes.median_and_longest_ms(), None, "two runtimes are too few");
        runtimes.add(30);
        assert_eq!(runtimes.median_and_longest_ms(), Some((30, 50)));
        (0..RecentRuntimes::KEPT).for_each(|_| runtimes.add(7));
        assert_eq!(runtimes.median_and_longest_ms(), Some((7, 7)), "only the newest are kept");
    }
}

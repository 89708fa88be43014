//! How values spread.

use serde::Serialize;

use super::rounded;

/// How values spread.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Spread {
    /// Their mean.
    pub mean: f64,
    /// Half are at most this.
    pub p50: f64,
    /// 95 of 100 are.
    pub p95: f64,
    /// 99 of 100 are.
    pub p99: f64,
    /// All are.
    pub max: f64,
}

impl Spread {
    /// Of some values; nothing but zeros if there is none.
    pub fn of(mut values: Vec<f64>) -> Spread {
        values.sort_by(f64::total_cmp);
        let rank = |percent: usize| (values.len() * percent).div_ceil(100).max(1) - 1;
        let at = |percent: usize| rounded(values.get(rank(percent)).copied().unwrap_or_default());
        let mean = rounded(values.iter().sum::<f64>() / values.len().max(1) as f64);
        Spread { mean, p50: at(50), p95: at(95), p99: at(99), max: at(100) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_hundred_values_the_99th_is_that_of_99_in_100() {
        let spread = Spread::of((1..=100).rev().map(f64::from).collect());
        assert_eq!(spread, Spread { mean: 50.5, p50: 50.0, p95: 95.0, p99: 99.0, max: 100.0 });
        assert_eq!(Spread::of(vec![7.0]), Spread { mean: 7.0, p50: 7.0, p95: 7.0, p99: 7.0, max: 7.0 });
        assert_eq!(Spread::of(Vec::new()), Spread::default());
    }
}

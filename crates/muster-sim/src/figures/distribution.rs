//! Mean and percentiles of a figure.

use serde::Serialize;

use super::round_to_4_decimals;

/// Mean, percentiles and maximum.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Distribution {
    pub mean: f64,
    pub p50: f64,
    pub p95: f64,
    pub p99: f64,
    pub max: f64,
}

impl Distribution {
    /// The distribution of the values (nearest-rank percentiles); all zeros without values.
    pub fn from_values(mut values: Vec<f64>) -> Distribution {
        values.sort_by(f64::total_cmp);
        let rank = |percent: usize| (values.len() * percent).div_ceil(100).max(1) - 1;
        let at = |percent: usize| round_to_4_decimals(values.get(rank(percent)).copied().unwrap_or_default());
        let mean = round_to_4_decimals(values.iter().sum::<f64>() / values.len().max(1) as f64);
        Distribution { mean, p50: at(50), p95: at(95), p99: at(99), max: at(100) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_rank() {
        let distribution = Distribution::from_values((1..=100).rev().map(f64::from).collect());
        assert_eq!(distribution, Distribution { mean: 50.5, p50: 50.0, p95: 95.0, p99: 99.0, max: 100.0 });
        assert_eq!(
            Distribution::from_values(vec![7.0]),
            Distribution { mean: 7.0, p50: 7.0, p95: 7.0, p99: 7.0, max: 7.0 }
        );
        assert_eq!(Distribution::from_values(Vec::new()), Distribution::default());
    }
}

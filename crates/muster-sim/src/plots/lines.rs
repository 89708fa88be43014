//! Plots with a line for each policy.

use super::axes::{Axis, Plot};
use super::colour;
use crate::figures::UtilisationBin;

const DAY_S: f64 = 86_400.0;
const HOUR_S: f64 = 3_600.0;

/// Utilisation over time.
pub fn utilisation(policies: &[(&str, &[UtilisationBin])]) -> String {
    let last_s = policies.iter().filter_map(|(_, bins)| bins.last()).map(|bin| bin.at_s).fold(1.0, f64::max);
    let (unit_s, unit) = if last_s > 2.0 * DAY_S { (DAY_S, "days") } else { (HOUR_S, "hours") };
    let title = format!("time since the first submission ({unit})");
    let x = Axis { title, from: 0.0, to: last_s / unit_s, log: false, ..Axis::default() };
    let y = Axis { title: "GPUs in use (%)".to_string(), from: 0.0, to: 100.0, log: false, ..Axis::default() };
    let mut plot = Plot::new("GPU utilisation over time", x, y);
    // The first policy is drawn last, on top of the others.
    for (index, (_, bins)) in policies.iter().enumerate().rev() {
        plot.line(index, bins.iter().map(|bin| (bin.at_s / unit_s, bin.utilisation * 100.0)));
    }
    with_legend(plot, policies)
}

/// The cumulative distribution of waits. The time axis is logarithmic; waits below one second count as one second.
pub fn waits(policies: &[(&str, &[f64])]) -> String {
    let longest = policies.iter().flat_map(|(_, waits)| waits.iter()).copied().fold(10.0, f64::max);
    let x = Axis {
        title: "time from submission to first start (seconds; 1 and less at the left)".to_string(),
        from: 1.0,
        to: longest,
        log: true,
        ..Axis::default()
    };
    let y = Axis {
        title: "jobs that waited at most this long (%)".to_string(),
        from: 0.0,
        to: 100.0,
        log: false,
        ..Axis::default()
    };
    let mut plot = Plot::new("Waiting times", x, y);
    for (index, (_, waits)) in policies.iter().enumerate().rev() {
        plot.line(index, cumulative_distribution(waits).into_iter());
    }
    with_legend(plot, policies)
}

/// The cumulative distribution, reduced to about 300 points.
fn cumulative_distribution(waits: &[f64]) -> Vec<(f64, f64)> {
    let mut waits = waits.to_vec();
    waits.sort_by(f64::total_cmp);
    let stride = (waits.len() / 300).max(1);
    let last = waits.len().saturating_sub(1);
    let indexes = (0..waits.len()).filter(|index| index % stride == 0 || *index == last);
    let percent = |index: usize| (index + 1) as f64 * 100.0 / waits.len() as f64;
    indexes.map(|index| (waits[index].max(1.0), percent(index))).collect()
}

fn with_legend<T: ?Sized>(mut plot: Plot, policies: &[(&str, &T)]) -> String {
    let names = policies.iter().enumerate().map(|(index, (name, _))| (*name, colour(index)));
    plot.legend(&names.collect::<Vec<_>>());
    plot.into_svg()
}

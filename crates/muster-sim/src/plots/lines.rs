//! Plots with a line for each policy.

use super::axes::{Axis, Plot};
use super::colour;
use crate::figures::Bin;

const DAY_S: f64 = 86_400.0;
const HOUR_S: f64 = 3_600.0;

/// Utilisation over time.
pub fn utilisation(policies: &[(&str, &[Bin])]) -> String {
    let last_s = policies.iter().filter_map(|(_, bins)| bins.last()).map(|bin| bin.at_s).fold(1.0, f64::max);
    let (unit_s, unit) = if last_s > 2.0 * DAY_S { (DAY_S, "days") } else { (HOUR_S, "hours") };
    let title = format!("time since the first submission ({unit})");
    let x = Axis { title, from: 0.0, to: last_s / unit_s, log: false, ..Axis::default() };
    let y =
        Axis { title: "GPUs in use (%)".to_string(), from: 0.0, to: 100.0, log: false, ..Axis::default() };
    let mut plot = Plot::new("GPU utilisation over time", x, y);
    // The first is the one that is asked about: it lies on top.
    for (place, (_, bins)) in policies.iter().enumerate().rev() {
        plot.line(place, bins.iter().map(|bin| (bin.at_s / unit_s, bin.utilisation * 100.0)));
    }
    with_names(plot, policies)
}

/// Which part of the jobs waited at most how long. Times are by powers of ten, and all below a second are one.
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
        title: "jobs that waited at most so long (%)".to_string(),
        from: 0.0,
        to: 100.0,
        log: false,
        ..Axis::default()
    };
    let mut plot = Plot::new("Waiting times", x, y);
    for (place, (_, waits)) in policies.iter().enumerate().rev() {
        plot.line(place, distribution(waits).into_iter());
    }
    with_names(plot, policies)
}

/// The steps of a distribution, some three hundred of them.
fn distribution(waits: &[f64]) -> Vec<(f64, f64)> {
    let mut waits = waits.to_vec();
    waits.sort_by(f64::total_cmp);
    let stride = (waits.len() / 300).max(1);
    let last = waits.len().saturating_sub(1);
    let places = (0..waits.len()).filter(|place| place % stride == 0 || *place == last);
    let percent = |place: usize| (place + 1) as f64 * 100.0 / waits.len() as f64;
    places.map(|place| (waits[place].max(1.0), percent(place))).collect()
}

fn with_names<T: ?Sized>(mut plot: Plot, policies: &[(&str, &T)]) -> String {
    let names = policies.iter().enumerate().map(|(place, (name, _))| (*name, colour(place)));
    plot.legend(&names.collect::<Vec<_>>());
    plot.into_svg()
}

//! Plots that compare figures: grouped bars and curves.

use super::axes::{Axis, Plot};
use super::colour;

/// The fraction of the width of a group that its bars fill.
const GROUP_FILL_FRACTION: f64 = 0.8;
/// The height of the frame relative to the highest value.
const HEADROOM_FACTOR: f64 = 1.05;

/// The texts of a plot.
pub struct PlotLabels<'a> {
    pub title: &'a str,
    /// The title of the horizontal axis, with its unit.
    pub x: &'a str,
    /// The title of the vertical axis, with its unit.
    pub y: &'a str,
}

/// For each group a bar of every series, in the same order; a missing value has no bar.
pub fn bars(labels: &PlotLabels, groups: &[String], series: &[(&str, Vec<Option<f64>>)]) -> String {
    let values = series.iter().flat_map(|(_, values)| values.iter().flatten());
    let x = Axis { title: labels.x.to_string(), to: groups.len() as f64, names: groups.to_vec(), ..Axis::default() };
    let y = Axis { title: labels.y.to_string(), to: axis_end(values.copied()), ..Axis::default() };
    let mut plot = Plot::new(labels.title, x, y);
    let width = GROUP_FILL_FRACTION / series.len().max(1) as f64;
    for (index, (name, values)) in series.iter().enumerate() {
        for (group, value) in values.iter().enumerate() {
            let Some(value) = value else { continue };
            let from = group as f64 + (1.0 - GROUP_FILL_FRACTION) / 2.0 + index as f64 * width;
            let tooltip = format!("{}, {name}: {value:.1}", groups.get(group).map_or("", String::as_str));
            plot.bar((from, from + width * 0.9), (0.0, *value), colour(index), &tooltip);
        }
    }
    with_legend(plot, series)
}

/// A line through the points of every series.
pub fn curves(labels: &PlotLabels, series: &[(&str, Vec<(f64, f64)>)]) -> String {
    let points = || series.iter().flat_map(|(_, points)| points.iter());
    let from = points().map(|(x, _)| *x).fold(f64::INFINITY, f64::min);
    let to = points().map(|(x, _)| *x).fold(from, f64::max);
    let x = Axis { title: labels.x.to_string(), from, to, ..Axis::default() };
    let y = Axis { title: labels.y.to_string(), to: axis_end(points().map(|(_, y)| *y)), ..Axis::default() };
    let mut plot = Plot::new(labels.title, x, y);
    for (index, (_, points)) in series.iter().enumerate().rev() {
        plot.line(index, points.iter().copied());
    }
    with_legend(plot, series)
}

fn axis_end(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(f64::MIN_POSITIVE, f64::max) * HEADROOM_FACTOR
}

fn with_legend<T>(mut plot: Plot, series: &[(&str, T)]) -> String {
    let names = series.iter().enumerate().map(|(index, (name, _))| (*name, colour(index)));
    plot.legend(&names.collect::<Vec<_>>());
    plot.into_svg()
}

//! Plots that compare a figure: bars side by side, and curves.

use super::axes::{Axis, Plot};
use super::colour;

/// How much of the room of a group its bars take.
const FULL: f64 = 0.8;
/// How much higher than the highest value the frame is.
const ROOM: f64 = 1.05;

/// What a plot is about.
pub struct Words<'a> {
    /// Above it.
    pub title: &'a str,
    /// Along it, with the unit.
    pub x: &'a str,
    /// Beside it, with the unit.
    pub y: &'a str,
}

/// For each group a bar of every series, in the same order; none where a value is missing.
pub fn bars(words: &Words, groups: &[String], series: &[(&str, Vec<Option<f64>>)]) -> String {
    let values = series.iter().flat_map(|(_, values)| values.iter().flatten());
    let x = Axis {
        title: words.x.to_string(),
        to: groups.len() as f64,
        names: groups.to_vec(),
        ..Axis::default()
    };
    let y = Axis { title: words.y.to_string(), to: highest(values.copied()), ..Axis::default() };
    let mut plot = Plot::new(words.title, x, y);
    let width = FULL / series.len().max(1) as f64;
    for (place, (name, values)) in series.iter().enumerate() {
        for (group, value) in values.iter().enumerate() {
            let Some(value) = value else { continue };
            let from = group as f64 + (1.0 - FULL) / 2.0 + place as f64 * width;
            let says = format!("{}, {name}: {value:.1}", groups.get(group).map_or("", String::as_str));
            plot.bar((from, from + width * 0.9), (0.0, *value), colour(place), &says);
        }
    }
    named(plot, series)
}

/// A line for every series, through its points.
pub fn curves(words: &Words, series: &[(&str, Vec<(f64, f64)>)]) -> String {
    let points = || series.iter().flat_map(|(_, points)| points.iter());
    let from = points().map(|(x, _)| *x).fold(f64::INFINITY, f64::min);
    let to = points().map(|(x, _)| *x).fold(from, f64::max);
    let x = Axis { title: words.x.to_string(), from, to, ..Axis::default() };
    let y = Axis { title: words.y.to_string(), to: highest(points().map(|(_, y)| *y)), ..Axis::default() };
    let mut plot = Plot::new(words.title, x, y);
    for (place, (_, points)) in series.iter().enumerate().rev() {
        plot.line(place, points.iter().copied());
    }
    named(plot, series)
}

fn highest(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(f64::MIN_POSITIVE, f64::max) * ROOM
}

fn named<T>(mut plot: Plot, series: &[(&str, T)]) -> String {
    let names = series.iter().enumerate().map(|(place, (name, _))| (*name, colour(place)));
    plot.legend(&names.collect::<Vec<_>>());
    plot.into_svg()
}

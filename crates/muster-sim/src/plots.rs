//! Plots of a history, as plain SVG: axes with units, a light ground, nothing to load.

mod axes;
mod compared;
mod gantt;
mod lines;

pub use compared::{Words, bars, curves};
pub use gantt::gantt;
pub use lines::{utilisation, waits};

/// Colours that are told apart in print and by most eyes (Okabe and Ito's), the first for the first line.
const COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d31", "#444444"];

/// The colour of a line by its place.
fn colour(place: usize) -> &'static str {
    COLOURS[place % COLOURS.len()]
}

#[cfg(test)]
mod tests;

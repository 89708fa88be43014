//! Plots of run histories as plain SVG: axes with units, a light background, no external resources.

mod axes;
mod comparison;
mod gantt;
mod lines;

pub use comparison::{PlotLabels, bars, curves};
pub use gantt::gantt;
pub use lines::{utilisation, waits};

/// Colours that can be distinguished in print and by colour-blind readers (Okabe and Ito), in the order of the lines.
const COLOURS: [&str; 8] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d31", "#444444"];

/// The colour of a line by its index.
fn colour(index: usize) -> &'static str {
    COLOURS[index % COLOURS.len()]
}

#[cfg(test)]
mod tests;

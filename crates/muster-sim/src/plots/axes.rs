//! The frame of a plot: two axes with ticks and units, a title and a legend.

use std::fmt::Write;

use super::colour;

/// The size of the drawing and its margins, in pixels.
const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 78.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 62.0;
const BOTTOM: f64 = 56.0;
/// The approximate number of ticks on an axis.
const TICKS_TARGET: f64 = 7.0;

/// An axis with its title and range.
#[derive(Debug, Clone, Default)]
pub struct Axis {
    /// With its unit.
    pub title: String,
    /// The value at the left or bottom.
    pub from: f64,
    /// The value at the right or top.
    pub to: f64,
    /// Logarithmic; both ends must be above zero.
    pub log: bool,
    /// Labels in place of numbers: the first between 0 and 1, the next between 1 and 2, and so on.
    pub names: Vec<String>,
}

impl Axis {
    /// The position of a value on the axis, from 0 to 1.
    fn fraction(&self, value: f64) -> f64 {
        let scale = |value: f64| if self.log { value.log10() } else { value };
        (scale(value) - scale(self.from)) / (scale(self.to) - scale(self.from))
    }

    /// The values and texts of the labels.
    fn tick_labels(&self) -> Vec<(f64, String)> {
        let named = (0..).map(|index| f64::from(index) + 0.5).zip(self.names.iter().cloned());
        let round = self.ticks().into_iter().map(|value| (value, format_tick(value)));
        if self.names.is_empty() { round.collect() } else { named.collect() }
    }

    /// Round values; the axis may be reversed.
    fn ticks(&self) -> Vec<f64> {
        let (low, high) = (self.from.min(self.to), self.from.max(self.to));
        if self.log {
            let powers = low.log10().ceil() as i32..=high.log10().floor() as i32;
            return powers.map(|power| 10f64.powi(power)).collect();
        }
        let rough = (high - low) / TICKS_TARGET;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|times| times * power).find(|step| *step >= rough);
        let step = step.unwrap_or(power);
        let (first, last) = ((low / step).ceil() as i64, (high / step + 1e-9).floor() as i64);
        (first..=last).map(|count| count as f64 * step).collect()
    }
}

/// A plot under construction.
pub struct Plot {
    x: Axis,
    y: Axis,
    height: f64,
    text: String,
}

impl Plot {
    /// An empty plot.
    pub fn new(title: &str, x: Axis, y: Axis) -> Plot {
        Plot::with_height(HEIGHT, title, x, y)
    }

    /// An empty plot of the given height.
    pub fn with_height(height: f64, title: &str, x: Axis, y: Axis) -> Plot {
        let mut plot = Plot { x, y, height, text: String::new() };
        plot.draw(&format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
             height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#222222\">"
        ));
        plot.draw(&format!("<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>"));
        plot.draw(&format!("<text x=\"{LEFT}\" y=\"22\" font-size=\"15\">{}</text>", escape_xml(title)));
        plot.draw_axes();
        plot
    }

    fn draw(&mut self, line: &str) {
        // Writing to a string does not fail.
        let _ = writeln!(self.text, "{line}");
    }

    fn x_pixel(&self, value: f64) -> f64 {
        LEFT + self.x.fraction(value).clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT)
    }

    fn y_pixel(&self, value: f64) -> f64 {
        self.height - BOTTOM - self.y.fraction(value).clamp(0.0, 1.0) * (self.height - TOP - BOTTOM)
    }

    fn draw_axes(&mut self) {
        let (left, right, top, bottom) = (LEFT, WIDTH - RIGHT, TOP, self.height - BOTTOM);
        for (value, text) in self.x.tick_labels() {
            let x = self.x_pixel(value);
            self.draw(&format!("<path d=\"M{x:.1} {top}V{bottom}\" stroke=\"#e4e4e4\"/>"));
            let (y, text) = (bottom + 17.0, escape_xml(&text));
            self.draw(&format!("<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">{text}</text>"));
        }
        for (value, text) in self.y.tick_labels() {
            let y = self.y_pixel(value);
            self.draw(&format!("<path d=\"M{left} {y:.1}H{right}\" stroke=\"#e4e4e4\"/>"));
            let (x, y, text) = (left - 8.0, y + 4.0, escape_xml(&text));
            self.draw(&format!("<text x=\"{x}\" y=\"{y:.1}\" text-anchor=\"end\">{text}</text>"));
        }
        self.draw(&format!("<path d=\"M{left} {top}V{bottom}H{right}\" fill=\"none\" stroke=\"#444444\"/>"));
        let (middle, below) = ((left + right) / 2.0, self.height - 14.0);
        let title = escape_xml(&self.x.title);
        self.draw(&format!("<text x=\"{middle}\" y=\"{below}\" text-anchor=\"middle\">{title}</text>"));
        let (middle, title) = ((top + bottom) / 2.0, escape_xml(&self.y.title));
        self.draw(&format!(
            "<text transform=\"translate(20 {middle}) rotate(-90)\" text-anchor=\"middle\">{title}</text>"
        ));
    }

    /// Draws a line through the points.
    pub fn line(&mut self, index: usize, points: impl Iterator<Item = (f64, f64)>) {
        let mut path = String::new();
        for (x, y) in points {
            let _ = write!(
                path,
                "{}{:.1} {:.1}",
                if path.is_empty() { "M" } else { "L" },
                self.x_pixel(x),
                self.y_pixel(y)
            );
        }
        let colour = colour(index);
        self.draw(&format!("<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.6\"/>"));
    }

    /// Draws a bar with a horizontal and a vertical range.
    pub fn bar(&mut self, (from, to): (f64, f64), (low, high): (f64, f64), fill: &str, tooltip: &str) {
        let (x, y) = (self.x_pixel(from), self.y_pixel(high));
        let (width, height) = ((self.x_pixel(to) - x).max(0.5), self.y_pixel(low) - y);
        self.draw(&format!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{fill}\">\
             <title>{}</title></rect>",
            escape_xml(tooltip)
        ));
    }

    /// Draws the legend in a row under the title: name and colour of each entry.
    pub fn legend(&mut self, names: &[(&str, &str)]) {
        let mut x = LEFT;
        for (name, fill) in names {
            self.draw(&format!("<rect x=\"{x}\" y=\"36\" width=\"12\" height=\"12\" fill=\"{fill}\"/>"));
            self.draw(&format!("<text x=\"{}\" y=\"46\">{}</text>", x + 17.0, escape_xml(name)));
            x += 34.0 + 7.0 * name.chars().count() as f64;
        }
    }

    /// The finished SVG.
    pub fn into_svg(mut self) -> String {
        self.draw("</svg>");
        self.text
    }
}

/// The text of a tick, with as few digits as needed.
fn format_tick(value: f64) -> String {
    match value.abs() {
        1e6.. => format!("{:.0}M", value / 1e6),
        1e4.. => format!("{:.0}k", value / 1e3),
        _ => {
            let text = format!("{value:.3}");
            text.trim_end_matches('0').trim_end_matches('.').to_string()
        }
    }
}

fn escape_xml(text: &str) -> String {
    let printable: String = text.chars().filter(|character| !character.is_control()).collect();
    printable.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

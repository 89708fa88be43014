//! The ground of a plot: a frame, two axes with ticks and units, a title and a legend.

use std::fmt::Write;

use super::colour;

/// Size of the drawing, and of what lies outside of the frame.
const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 78.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 62.0;
const BOTTOM: f64 = 56.0;
/// About so many ticks on an axis.
const TICKS: f64 = 7.0;

/// An axis: what it shows, and from where to where.
#[derive(Debug, Clone, Default)]
pub struct Axis {
    /// With its unit.
    pub title: String,
    /// At the left or below.
    pub from: f64,
    /// At the right or above.
    pub to: f64,
    /// By powers of ten; both ends are above zero then.
    pub log: bool,
    /// Names in place of numbers, the first between 0 and 1, the next between 1 and 2, and so on.
    pub names: Vec<String>,
}

impl Axis {
    /// Where a value lies, from 0 to 1.
    fn part(&self, value: f64) -> f64 {
        let scale = |value: f64| if self.log { value.log10() } else { value };
        (scale(value) - scale(self.from)) / (scale(self.to) - scale(self.from))
    }

    /// Where something is written along it, and what.
    fn marks(&self) -> Vec<(f64, String)> {
        let named = (0..).map(|place| f64::from(place) + 0.5).zip(self.names.iter().cloned());
        let round = self.ticks().into_iter().map(|value| (value, number(value)));
        if self.names.is_empty() { round.collect() } else { named.collect() }
    }

    /// Round values; an axis may run downwards.
    fn ticks(&self) -> Vec<f64> {
        let (low, high) = (self.from.min(self.to), self.from.max(self.to));
        if self.log {
            let powers = low.log10().ceil() as i32..=high.log10().floor() as i32;
            return powers.map(|power| 10f64.powi(power)).collect();
        }
        let rough = (high - low) / TICKS;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|times| times * power).find(|step| *step >= rough);
        let step = step.unwrap_or(power);
        let (first, last) = ((low / step).ceil() as i64, (high / step + 1e-9).floor() as i64);
        (first..=last).map(|count| count as f64 * step).collect()
    }
}

/// A plot that is being drawn.
pub struct Plot {
    x: Axis,
    y: Axis,
    height: f64,
    text: String,
}

impl Plot {
    /// An empty one.
    pub fn new(title: &str, x: Axis, y: Axis) -> Plot {
        Plot::of_height(HEIGHT, title, x, y)
    }

    /// One of another height.
    pub fn of_height(height: f64, title: &str, x: Axis, y: Axis) -> Plot {
        let mut plot = Plot { x, y, height, text: String::new() };
        plot.draw(&format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
             height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#222222\">"
        ));
        plot.draw(&format!("<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>"));
        plot.draw(&format!("<text x=\"{LEFT}\" y=\"22\" font-size=\"15\">{}</text>", escaped(title)));
        plot.draw_axes();
        plot
    }

    fn draw(&mut self, line: &str) {
        // Writing to a string does not fail.
        let _ = writeln!(self.text, "{line}");
    }

    fn at_x(&self, value: f64) -> f64 {
        LEFT + self.x.part(value).clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT)
    }

    fn at_y(&self, value: f64) -> f64 {
        self.height - BOTTOM - self.y.part(value).clamp(0.0, 1.0) * (self.height - TOP - BOTTOM)
    }

    fn draw_axes(&mut self) {
        let (left, right, top, bottom) = (LEFT, WIDTH - RIGHT, TOP, self.height - BOTTOM);
        for (value, text) in self.x.marks() {
            let x = self.at_x(value);
            self.draw(&format!("<path d=\"M{x:.1} {top}V{bottom}\" stroke=\"#e4e4e4\"/>"));
            let (y, text) = (bottom + 17.0, escaped(&text));
            self.draw(&format!("<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">{text}</text>"));
        }
        for (value, text) in self.y.marks() {
            let y = self.at_y(value);
            self.draw(&format!("<path d=\"M{left} {y:.1}H{right}\" stroke=\"#e4e4e4\"/>"));
            let (x, y, text) = (left - 8.0, y + 4.0, escaped(&text));
            self.draw(&format!("<text x=\"{x}\" y=\"{y:.1}\" text-anchor=\"end\">{text}</text>"));
        }
        self.draw(&format!("<path d=\"M{left} {top}V{bottom}H{right}\" fill=\"none\" stroke=\"#444444\"/>"));
        let (middle, below) = ((left + right) / 2.0, self.height - 14.0);
        let title = escaped(&self.x.title);
        self.draw(&format!("<text x=\"{middle}\" y=\"{below}\" text-anchor=\"middle\">{title}</text>"));
        let (middle, title) = ((top + bottom) / 2.0, escaped(&self.y.title));
        self.draw(&format!(
            "<text transform=\"translate(20 {middle}) rotate(-90)\" text-anchor=\"middle\">{title}</text>"
        ));
    }

    /// A line through points.
    pub fn line(&mut self, place: usize, points: impl Iterator<Item = (f64, f64)>) {
        let mut path = String::new();
        for (x, y) in points {
            let _ = write!(
                path,
                "{}{:.1} {:.1}",
                if path.is_empty() { "M" } else { "L" },
                self.at_x(x),
                self.at_y(y)
            );
        }
        let colour = colour(place);
        self.draw(&format!("<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.6\"/>"));
    }

    /// A bar from one value of the horizontal axis to another, in the row of a value of the other.
    pub fn bar(&mut self, (from, to): (f64, f64), (low, high): (f64, f64), fill: &str, says: &str) {
        let (x, y) = (self.at_x(from), self.at_y(high));
        let (width, height) = ((self.at_x(to) - x).max(0.5), self.at_y(low) - y);
        self.draw(&format!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{fill}\">\
             <title>{}</title></rect>",
            escaped(says)
        ));
    }

    /// What each colour means, in a row under the title.
    pub fn legend(&mut self, names: &[(&str, &str)]) {
        let mut x = LEFT;
        for (name, fill) in names {
            self.draw(&format!("<rect x=\"{x}\" y=\"36\" width=\"12\" height=\"12\" fill=\"{fill}\"/>"));
            self.draw(&format!("<text x=\"{}\" y=\"46\">{}</text>", x + 17.0, escaped(name)));
            x += 34.0 + 7.0 * name.chars().count() as f64;
        }
    }

    /// The whole text.
    pub fn into_svg(mut self) -> String {
        self.draw("</svg>");
        self.text
    }
}

/// A value at a tick, with as many digits as it needs.
fn number(value: f64) -> String {
    match value.abs() {
        1e6.. => format!("{:.0}M", value / 1e6),
        1e4.. => format!("{:.0}k", value / 1e3),
        _ => {
            let text = format!("{value:.3}");
            text.trim_end_matches('0').trim_end_matches('.').to_string()
        }
    }
}

fn escaped(text: &str) -> String {
    let plain: String = text.chars().filter(|letter| !letter.is_control()).collect();
    plain.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

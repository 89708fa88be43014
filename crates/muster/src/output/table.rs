//! Columns for people: as wide as their widest cell, two spaces between, nothing cut.

use super::Format;
use crate::error::CliError;

/// One column of a list.
pub struct Column<T> {
    /// What stands above it.
    pub title: &'static str,
    /// Shown only when more is asked for.
    pub wide: bool,
    /// What stands in it.
    pub cell: fn(&T) -> Cell,
}

impl<T> Column<T> {
    /// A column that is always shown.
    pub const fn new(title: &'static str, cell: fn(&T) -> Cell) -> Column<T> {
        Column { title, wide: false, cell }
    }

    /// A column of the wide list.
    pub const fn wide(title: &'static str, cell: fn(&T) -> Cell) -> Column<T> {
        Column { title, wide: true, cell }
    }
}

/// One cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    /// What it says; one line.
    pub text: String,
    /// How it looks on a terminal with colours.
    pub tint: Tint,
}

/// How a word looks on a terminal with colours. The word itself says the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tint {
    /// As everything else.
    Plain,
    /// All is well.
    Good,
    /// Worth a look.
    Warn,
    /// Needs a person.
    Bad,
    /// Over, or not important now.
    Faint,
}

impl Tint {
    fn code(self) -> Option<&'static str> {
        match self {
            Tint::Plain => None,
            Tint::Good => Some("32"),
            Tint::Warn => Some("33"),
            Tint::Bad => Some("31"),
            Tint::Faint => Some("2"),
        }
    }

    /// Put the colour around a text.
    pub fn paint(self, text: &str) -> String {
        match self.code() {
            Some(code) => format!("\x1b[{code}m{text}\x1b[0m"),
            None => text.to_string(),
        }
    }
}

impl Cell {
    /// A cell in a colour.
    pub fn tinted(text: impl Into<String>, tint: Tint) -> Cell {
        Cell { tint, ..Cell::from(text.into()) }
    }

    /// What there is, or a dash.
    pub fn or_dash<T: ToString>(value: Option<T>) -> Cell {
        Cell::from(value.map(|value| value.to_string()).unwrap_or_default())
    }
}

impl From<String> for Cell {
    /// Line breaks and control letters come from other people's names; they must not draw on our terminal.
    fn from(text: String) -> Cell {
        let text: String =
            text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
        let text = if text.is_empty() { "-".to_string() } else { text };
        Cell { text, tint: Tint::Plain }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell::from(text.to_string())
    }
}

macro_rules! from_number {
    ($($number:ty),*) => { $(impl From<$number> for Cell {
        fn from(number: $number) -> Cell {
            Cell::from(number.to_string())
        }
    })* };
}
from_number!(u8, u32, u64, i32, usize);

/// The columns to print: those asked for by name, else those of the format.
pub fn choose<'a, T>(
    columns: &'a [Column<T>],
    names: &[String],
    format: Format,
) -> Result<Vec<&'a Column<T>>, CliError> {
    if names.is_empty() {
        return Ok(columns.iter().filter(|column| !column.wide || format != Format::Table).collect());
    }
    names.iter().map(|name| find(columns, name)).collect()
}

/// The column of that name; capitals do not matter.
pub fn find<'a, T>(columns: &'a [Column<T>], name: &str) -> Result<&'a Column<T>, CliError> {
    columns.iter().find(|column| column.title.eq_ignore_ascii_case(name)).ok_or_else(|| {
        let known: Vec<String> = columns.iter().map(|column| column.title.to_lowercase()).collect();
        CliError::usage(format!("there is no column `{name}`")).hint(format!("one of {}", known.join(", ")))
    })
}

/// The list as text.
pub fn text<T>(columns: &[&Column<T>], rows: &[T], headers: bool, color: bool) -> String {
    let titles = headers.then(|| columns.iter().map(|column| Cell::from(column.title)).collect());
    let cells = rows.iter().map(|row| columns.iter().map(|column| (column.cell)(row)).collect());
    let lines: Vec<Vec<Cell>> = titles.into_iter().chain(cells).collect();
    let widths: Vec<usize> = (0..columns.len())
        .map(|place| lines.iter().map(|line| width(&line[place].text)).max().unwrap_or(0))
        .collect();
    lines.iter().map(|line| format!("{}\n", one_line(line, &widths, color))).collect()
}

fn one_line(cells: &[Cell], widths: &[usize], color: bool) -> String {
    let mut text = String::new();
    for (place, cell) in cells.iter().enumerate() {
        let shown = if color { cell.tint.paint(&cell.text) } else { cell.text.clone() };
        text.push_str(&shown);
        if place + 1 < cells.len() {
            text.push_str(&" ".repeat(widths[place] - width(&cell.text) + 2));
        }
    }
    text
}

/// Letters, not bytes. Double-wide letters may push a line to the right; nothing is lost by that.
fn width(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column<(&str, u32)>; 3] = [
        Column::new("NAME", |row| row.0.into()),
        Column::new("GPUS", |row| Cell::tinted(row.1.to_string(), Tint::Good)),
        Column::wide("NOTE", |_| Cell::from("")),
    ];

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let chosen = choose(&COLUMNS, &[], Format::Table).unwrap();
        let rows = [("a-very-long-name", 8), ("ü", 16)];
        assert_eq!(
            text(&chosen, &rows, true, false),
            "NAME              GPUS\na-very-long-name  8\nü                 16\n"
        );
    }

    #[test]
    fn colours_do_not_move_columns() {
        let chosen = choose(&COLUMNS, &["gpus".to_string(), "NAME".to_string()], Format::Table).unwrap();
        assert_eq!(text(&chosen, &[("a", 8)], false, true), "\x1b[32m8\x1b[0m  a\n");
    }

    #[test]
    fn wide_adds_columns_and_nothing_is_a_dash() {
        let chosen = choose(&COLUMNS, &[], Format::Wide).unwrap();
        assert_eq!(text(&chosen, &[("a", 8)], false, false), "a  8  -\n");
    }

    #[test]
    fn a_name_cannot_draw_on_the_terminal() {
        assert_eq!(Cell::from("a\x1b[2J\nb").text, "a [2J b");
    }

    #[test]
    fn an_unknown_column_is_answered_with_the_known_ones() {
        let error = choose(&COLUMNS, &["gpu".to_string()], Format::Table).err().unwrap();
        assert_eq!(error.hint.unwrap(), "one of name, gpus, note");
    }
}

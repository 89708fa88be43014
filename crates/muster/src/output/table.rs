//! Tables: columns as wide as their widest cell, separated by two spaces, never truncated.

use super::Format;
use crate::error::CliError;

/// One column of a list.
pub struct Column<T> {
    pub title: &'static str,
    /// Not printed in the format `table`.
    pub wide: bool,
    pub cell: fn(&T) -> Cell,
}

impl<T> Column<T> {
    /// A column of every format.
    pub const fn new(title: &'static str, cell: fn(&T) -> Cell) -> Column<T> {
        Column { title, wide: false, cell }
    }

    /// A column of every format but `table`.
    pub const fn wide(title: &'static str, cell: fn(&T) -> Cell) -> Column<T> {
        Column { title, wide: true, cell }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    /// One line.
    pub text: String,
    pub tint: Tint,
}

/// The colour of a cell on a terminal. Colour only repeats what the text says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tint {
    Plain,
    Good,
    Warn,
    /// Needs somebody to act.
    Bad,
    /// Ended, or not important now.
    Faint,
}

impl Tint {
    fn ansi_code(self) -> Option<&'static str> {
        match self {
            Tint::Plain => None,
            Tint::Good => Some("32"),
            Tint::Warn => Some("33"),
            Tint::Bad => Some("31"),
            Tint::Faint => Some("2"),
        }
    }

    /// The text with the escape codes of the colour.
    pub fn paint(self, text: &str) -> String {
        match self.ansi_code() {
            Some(code) => format!("\x1b[{code}m{text}\x1b[0m"),
            None => text.to_string(),
        }
    }
}

impl Cell {
    pub fn tinted(text: impl Into<String>, tint: Tint) -> Cell {
        Cell { tint, ..Cell::from(text.into()) }
    }

    /// The value, or a dash if `None`.
    pub fn or_dash<T: ToString>(value: Option<T>) -> Cell {
        Cell::from(value.map(|value| value.to_string()).unwrap_or_default())
    }
}

impl From<String> for Cell {
    /// Names of other users may contain line breaks and control characters, which could manipulate the terminal.
    fn from(text: String) -> Cell {
        let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
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

/// The columns to print: those of `--columns`, else those of the format.
pub fn select_columns<'a, T>(
    columns: &'a [Column<T>],
    names: &[String],
    format: Format,
) -> Result<Vec<&'a Column<T>>, CliError> {
    if names.is_empty() {
        return Ok(columns.iter().filter(|column| !column.wide || format != Format::Table).collect());
    }
    names.iter().map(|name| find_column(columns, name)).collect()
}

/// The column with this title, ignoring case.
pub fn find_column<'a, T>(columns: &'a [Column<T>], name: &str) -> Result<&'a Column<T>, CliError> {
    columns.iter().find(|column| column.title.eq_ignore_ascii_case(name)).ok_or_else(|| {
        let known: Vec<String> = columns.iter().map(|column| column.title.to_lowercase()).collect();
        CliError::usage(format!("there is no column `{name}`")).hint(format!("one of {}", known.join(", ")))
    })
}

pub fn table_text<T>(columns: &[&Column<T>], rows: &[T], headers: bool, color: bool) -> String {
    let titles = headers.then(|| columns.iter().map(|column| Cell::from(column.title)).collect());
    let cells = rows.iter().map(|row| columns.iter().map(|column| (column.cell)(row)).collect());
    let lines: Vec<Vec<Cell>> = titles.into_iter().chain(cells).collect();
    let widths: Vec<usize> = (0..columns.len())
        .map(|column| lines.iter().map(|line| char_width(&line[column].text)).max().unwrap_or(0))
        .collect();
    lines.iter().map(|line| format!("{}\n", row_text(line, &widths, color))).collect()
}

fn row_text(cells: &[Cell], widths: &[usize], color: bool) -> String {
    let mut text = String::new();
    for (column, cell) in cells.iter().enumerate() {
        let shown = if color { cell.tint.paint(&cell.text) } else { cell.text.clone() };
        text.push_str(&shown);
        if column + 1 < cells.len() {
            text.push_str(&" ".repeat(widths[column] - char_width(&cell.text) + 2));
        }
    }
    text
}

/// Characters, not bytes. Double-width characters may shift the rest of a line to the right.
fn char_width(text: &str) -> usize {
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
        let chosen = select_columns(&COLUMNS, &[], Format::Table).unwrap();
        let rows = [("a-very-long-name", 8), ("ü", 16)];
        assert_eq!(
            table_text(&chosen, &rows, true, false),
            "NAME              GPUS\na-very-long-name  8\nü                 16\n"
        );
    }

    #[test]
    fn colours_do_not_move_columns() {
        let chosen = select_columns(&COLUMNS, &["gpus".to_string(), "NAME".to_string()], Format::Table).unwrap();
        assert_eq!(table_text(&chosen, &[("a", 8)], false, true), "\x1b[32m8\x1b[0m  a\n");
    }

    #[test]
    fn wide_format_adds_columns_and_empty_cells_are_dashes() {
        let chosen = select_columns(&COLUMNS, &[], Format::Wide).unwrap();
        assert_eq!(table_text(&chosen, &[("a", 8)], false, false), "a  8  -\n");
    }

    #[test]
    fn control_characters_are_removed_from_cells() {
        assert_eq!(Cell::from("a\x1b[2J\nb").text, "a [2J b");
    }

    #[test]
    fn an_unknown_column_error_lists_the_known_columns() {
        let error = select_columns(&COLUMNS, &["gpu".to_string()], Format::Table).err().unwrap();
        assert_eq!(error.hint.unwrap(), "one of name, gpus, note");
    }
}

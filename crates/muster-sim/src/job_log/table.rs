//! Tables with a header line: fields by column name, and numbers parsed from them.

use std::borrow::Cow;
use std::str::FromStr;

/// A text whose first line names the columns.
pub struct LogTable<'a> {
    columns: Vec<Cow<'a, str>>,
    lines: Vec<(usize, &'a str)>,
    separator: char,
}

impl<'a> LogTable<'a> {
    /// Splits a text into lines; empty lines are skipped.
    pub fn parse(text: &'a str, separator: char) -> LogTable<'a> {
        let text = text.trim_start_matches('\u{feff}');
        let mut lines = text.lines().enumerate().map(|(number, line)| (number + 1, line));
        let columns = lines.next().map(|(_, line)| split_fields(line, separator)).unwrap_or_default();
        let lines = lines.filter(|(_, line)| !line.trim().is_empty()).collect();
        LogTable { columns, lines, separator }
    }

    /// Fails if one of the columns is missing.
    pub fn check_required_columns(&self, columns: &[&str]) -> Result<(), String> {
        match columns.iter().find(|column| !self.columns.iter().any(|name| name == **column)) {
            Some(column) => Err(format!("there is no column `{column}`")),
            None => Ok(()),
        }
    }

    /// Fails if a column is not one of these, so that a misspelt name does not go unnoticed.
    pub fn check_known_columns(&self, columns: &[&str]) -> Result<(), String> {
        match self.columns.iter().find(|column| !columns.contains(&column.as_ref())) {
            Some(column) => Err(format!("unknown column `{column}`; known columns are {}", columns.join(", "))),
            None => Ok(()),
        }
    }

    /// The rows with their line numbers, without the header.
    pub fn rows(&self) -> impl Iterator<Item = (usize, Result<LogRow<'_>, String>)> {
        self.lines.iter().map(|(number, line)| {
            let fields = split_fields(line, self.separator);
            let row = match fields.len() == self.columns.len() {
                true => Ok(LogRow { columns: &self.columns, fields }),
                false => Err(format!("the line has {} fields, the header has {}", fields.len(), self.columns.len())),
            };
            (*number, row)
        })
    }
}

pub struct LogRow<'a> {
    columns: &'a [Cow<'a, str>],
    fields: Vec<Cow<'a, str>>,
}

impl LogRow<'_> {
    /// The text of a column; `None` if it is empty or the column does not exist.
    pub fn optional_text(&self, column: &str) -> Option<&str> {
        let index = self.columns.iter().position(|name| name == column)?;
        Some(self.fields[index].as_ref()).filter(|text| !text.is_empty())
    }

    /// The text of a required column.
    pub fn required_text(&self, column: &str) -> Result<&str, String> {
        self.optional_text(column).ok_or_else(|| format!("`{column}` is empty"))
    }

    /// The number in a required column.
    pub fn required_number<N: FromStr>(&self, column: &str) -> Result<N, String> {
        parse_number(column, self.required_text(column)?)
    }

    /// The number in an optional column.
    pub fn optional_number<N: FromStr>(&self, column: &str) -> Result<Option<N>, String> {
        self.optional_text(column).map(|text| parse_number(column, text)).transpose()
    }

    /// The seconds in a required column, in milliseconds.
    pub fn required_seconds_as_ms(&self, column: &str) -> Result<i64, String> {
        scaled_ms(column, self.required_number(column)?, 1_000.0)
    }

    /// The seconds in an optional column, in milliseconds.
    pub fn optional_seconds_as_ms(&self, column: &str) -> Result<Option<i64>, String> {
        self.optional_number(column)?.map(|seconds| scaled_ms(column, seconds, 1_000.0)).transpose()
    }
}

fn parse_number<N: FromStr>(column: &str, text: &str) -> Result<N, String> {
    text.parse().map_err(|_| format!("`{column}` is `{text}`, which is not a number"))
}

/// A duration in milliseconds, of at most a century.
pub fn scaled_ms(column: &str, value: f64, unit_ms: f64) -> Result<i64, String> {
    let ms = value * unit_ms;
    let is_valid = (0.0..=3.2e12).contains(&ms);
    if is_valid { Ok(ms.round() as i64) } else { Err(format!("`{column}` is {value}, which is not a valid time")) }
}

/// Splits a line into fields. A field in quotes may contain separators; two quotes in it mean one.
fn split_fields(line: &str, separator: char) -> Vec<Cow<'_, str>> {
    if !line.contains('"') {
        return line.split(separator).map(|field| Cow::Borrowed(field.trim())).collect();
    }
    let (mut fields, mut field, mut quoted) = (Vec::new(), String::new(), false);
    let mut chars = line.chars().peekable();
    while let Some(character) = chars.next() {
        match character {
            '"' if quoted && chars.next_if_eq(&'"').is_some() => field.push('"'),
            '"' => quoted = !quoted,
            character if character == separator && !quoted => {
                fields.push(Cow::Owned(std::mem::take(&mut field).trim().to_string()));
            }
            character => field.push(character),
        }
    }
    fields.push(Cow::Owned(field.trim().to_string()));
    fields
}

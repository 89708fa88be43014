//! Lines with titles: fields by their name, and numbers out of them.

use std::borrow::Cow;
use std::str::FromStr;

/// A text whose first line says what stands where.
pub struct LogTable<'a> {
    columns: Vec<Cow<'a, str>>,
    lines: Vec<(usize, &'a str)>,
    separator: char,
}

impl<'a> LogTable<'a> {
    /// Take a text apart; empty lines are passed.
    pub fn parse(text: &'a str, separator: char) -> LogTable<'a> {
        let text = text.trim_start_matches('\u{feff}');
        let mut lines = text.lines().enumerate().map(|(at, line)| (at + 1, line));
        let titles = lines.next().map(|(_, line)| split_fields(line, separator)).unwrap_or_default();
        let lines = lines.filter(|(_, line)| !line.trim().is_empty()).collect();
        LogTable { columns: titles, lines, separator }
    }

    /// Whether every one of these columns is there.
    pub fn check_required_columns(&self, columns: &[&str]) -> Result<(), String> {
        match columns.iter().find(|column| !self.columns.iter().any(|title| title == **column)) {
            Some(column) => Err(format!("there is no column `{column}`")),
            None => Ok(()),
        }
    }

    /// Whether every column is one of these: a word that is misspelt must not go unnoticed.
    pub fn check_known_columns(&self, columns: &[&str]) -> Result<(), String> {
        match self.columns.iter().find(|title| !columns.contains(&title.as_ref())) {
            Some(title) => Err(format!("nobody knows a column `{title}`; known are {}", columns.join(", "))),
            None => Ok(()),
        }
    }

    /// Its lines by their number, without that of titles.
    pub fn rows(&self) -> impl Iterator<Item = (usize, Result<LogRow<'_>, String>)> {
        self.lines.iter().map(|(at, line)| {
            let fields = split_fields(line, self.separator);
            let row = match fields.len() == self.columns.len() {
                true => Ok(LogRow { columns: &self.columns, fields }),
                false => Err(format!("{} fields, but {} titles", fields.len(), self.columns.len())),
            };
            (*at, row)
        })
    }
}

/// One line.
pub struct LogRow<'a> {
    columns: &'a [Cow<'a, str>],
    fields: Vec<Cow<'a, str>>,
}

impl LogRow<'_> {
    /// What stands under a title; nothing if it is empty or there is no such column.
    pub fn optional_text(&self, title: &str) -> Option<&str> {
        let place = self.columns.iter().position(|known| known == title)?;
        Some(self.fields[place].as_ref()).filter(|text| !text.is_empty())
    }

    /// What must stand under a title.
    pub fn required_text(&self, title: &str) -> Result<&str, String> {
        self.optional_text(title).ok_or_else(|| format!("`{title}` is empty"))
    }

    /// The number that must stand under a title.
    pub fn required_number<N: FromStr>(&self, title: &str) -> Result<N, String> {
        parse_number(title, self.required_text(title)?)
    }

    /// The number that may stand under a title.
    pub fn optional_number<N: FromStr>(&self, title: &str) -> Result<Option<N>, String> {
        self.optional_text(title).map(|text| parse_number(title, text)).transpose()
    }

    /// Seconds that must stand under a title, in milliseconds.
    pub fn required_seconds_as_ms(&self, title: &str) -> Result<i64, String> {
        scaled_ms(title, self.required_number(title)?, 1_000.0)
    }

    /// Seconds that may stand under a title, in milliseconds.
    pub fn optional_seconds_as_ms(&self, title: &str) -> Result<Option<i64>, String> {
        self.optional_number(title)?.map(|seconds| scaled_ms(title, seconds, 1_000.0)).transpose()
    }
}

fn parse_number<N: FromStr>(title: &str, text: &str) -> Result<N, String> {
    text.parse().map_err(|_| format!("`{text}` is no number for `{title}`"))
}

/// Some time in milliseconds; a century is the most that makes sense.
pub fn scaled_ms(title: &str, value: f64, unit_ms: f64) -> Result<i64, String> {
    let ms = value * unit_ms;
    let sensible = (0.0..=3.2e12).contains(&ms);
    if sensible { Ok(ms.round() as i64) } else { Err(format!("`{title}` is {value}, which is no time")) }
}

/// Fields between separators; one that begins with a quote ends with a quote, and two of them mean one.
fn split_fields(line: &str, separator: char) -> Vec<Cow<'_, str>> {
    if !line.contains('"') {
        return line.split(separator).map(|field| Cow::Borrowed(field.trim())).collect();
    }
    let (mut fields, mut field, mut quoted) = (Vec::new(), String::new(), false);
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' if quoted && letters.next_if_eq(&'"').is_some() => field.push('"'),
            '"' => quoted = !quoted,
            letter if letter == separator && !quoted => {
                fields.push(Cow::Owned(std::mem::take(&mut field).trim().to_string()));
            }
            letter => field.push(letter),
        }
    }
    fields.push(Cow::Owned(field.trim().to_string()));
    fields
}

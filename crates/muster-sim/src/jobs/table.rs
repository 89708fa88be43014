//! Lines with titles: fields by their name, and numbers out of them.

use std::borrow::Cow;
use std::str::FromStr;

/// A text whose first line says what stands where.
pub struct Table<'a> {
    titles: Vec<Cow<'a, str>>,
    lines: Vec<(usize, &'a str)>,
    separator: char,
}

impl<'a> Table<'a> {
    /// Take a text apart; empty lines are passed.
    pub fn of(text: &'a str, separator: char) -> Table<'a> {
        let text = text.trim_start_matches('\u{feff}');
        let mut lines = text.lines().enumerate().map(|(at, line)| (at + 1, line));
        let titles = lines.next().map(|(_, line)| split(line, separator)).unwrap_or_default();
        let lines = lines.filter(|(_, line)| !line.trim().is_empty()).collect();
        Table { titles, lines, separator }
    }

    /// Whether every one of these columns is there.
    pub fn has_all(&self, columns: &[&str]) -> Result<(), String> {
        match columns.iter().find(|column| !self.titles.iter().any(|title| title == **column)) {
            Some(column) => Err(format!("there is no column `{column}`")),
            None => Ok(()),
        }
    }

    /// Whether every column is one of these: a word that is misspelt must not go unnoticed.
    pub fn has_only(&self, columns: &[&str]) -> Result<(), String> {
        match self.titles.iter().find(|title| !columns.contains(&title.as_ref())) {
            Some(title) => Err(format!("nobody knows a column `{title}`; known are {}", columns.join(", "))),
            None => Ok(()),
        }
    }

    /// Its lines by their number, without that of titles.
    pub fn rows(&self) -> impl Iterator<Item = (usize, Result<Row<'_>, String>)> {
        self.lines.iter().map(|(at, line)| {
            let fields = split(line, self.separator);
            let row = match fields.len() == self.titles.len() {
                true => Ok(Row { titles: &self.titles, fields }),
                false => Err(format!("{} fields, but {} titles", fields.len(), self.titles.len())),
            };
            (*at, row)
        })
    }
}

/// One line.
pub struct Row<'a> {
    titles: &'a [Cow<'a, str>],
    fields: Vec<Cow<'a, str>>,
}

impl Row<'_> {
    /// What stands under a title; nothing if it is empty or there is no such column.
    pub fn said(&self, title: &str) -> Option<&str> {
        let place = self.titles.iter().position(|known| known == title)?;
        Some(self.fields[place].as_ref()).filter(|text| !text.is_empty())
    }

    /// What must stand under a title.
    pub fn text(&self, title: &str) -> Result<&str, String> {
        self.said(title).ok_or_else(|| format!("`{title}` is empty"))
    }

    /// The number that must stand under a title.
    pub fn number<N: FromStr>(&self, title: &str) -> Result<N, String> {
        number(title, self.text(title)?)
    }

    /// The number that may stand under a title.
    pub fn maybe<N: FromStr>(&self, title: &str) -> Result<Option<N>, String> {
        self.said(title).map(|text| number(title, text)).transpose()
    }

    /// Seconds that must stand under a title, in milliseconds.
    pub fn seconds(&self, title: &str) -> Result<i64, String> {
        ms(title, self.number(title)?, 1_000.0)
    }

    /// Seconds that may stand under a title, in milliseconds.
    pub fn maybe_seconds(&self, title: &str) -> Result<Option<i64>, String> {
        self.maybe(title)?.map(|seconds| ms(title, seconds, 1_000.0)).transpose()
    }
}

fn number<N: FromStr>(title: &str, text: &str) -> Result<N, String> {
    text.parse().map_err(|_| format!("`{text}` is no number for `{title}`"))
}

/// Some time in milliseconds; a century is the most that makes sense.
pub fn ms(title: &str, value: f64, unit_ms: f64) -> Result<i64, String> {
    let ms = value * unit_ms;
    let sensible = (0.0..=3.2e12).contains(&ms);
    if sensible { Ok(ms.round() as i64) } else { Err(format!("`{title}` is {value}, which is no time")) }
}

/// Fields between separators; one that begins with a quote ends with a quote, and two of them mean one.
fn split(line: &str, separator: char) -> Vec<Cow<'_, str>> {
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

//! Reader of CSV files: recorded traces and published figures, packed with gzip or not.
//!
//! [`CsvText`] splits a text that is already in memory, [`CsvTable`] is a file. The errors of a file name its path
//! and line.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::str::FromStr;

use flate2::read::GzDecoder;

/// The first bytes of a gzip file.
const GZIP_MAGIC: &[u8] = &[0x1f, 0x8b];

/// Why a trace could not be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The traces directory has no directory of this trace.
    #[error("there is no trace at `{dir}`")]
    Missing { dir: PathBuf },
    #[error("cannot read `{path}`: {source}")]
    Unreadable { path: PathBuf, source: io::Error },
    /// A line, counted from 1, has a missing column or an invalid field.
    #[error("`{path}`, line {line}: {message}")]
    Line { path: PathBuf, line: usize, message: String },
    /// Every line is valid, but rows are missing.
    #[error("`{path}` {message}")]
    Incomplete { path: PathBuf, message: String },
}

/// The directory of one trace in the traces directory.
pub fn trace_dir(traces: &Path, name: &str) -> Result<PathBuf, TraceError> {
    let dir = traces.join(name);
    if dir.is_dir() { Ok(dir) } else { Err(TraceError::Missing { dir }) }
}

/// Names of the files in a directory, in no order.
pub fn file_names(dir: &Path) -> Result<Vec<String>, TraceError> {
    let entries = dir.read_dir().map_err(|source| TraceError::Unreadable { path: dir.to_path_buf(), source })?;
    Ok(entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect())
}

/// The bytes of a file, unpacked if it is a gzip file.
pub fn read_unpacked(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.read_to_end(&mut bytes)?;
    if !bytes.starts_with(GZIP_MAGIC) {
        return Ok(bytes);
    }
    let mut unpacked = Vec::new();
    GzDecoder::new(&bytes[..]).read_to_end(&mut unpacked)?;
    Ok(unpacked)
}

/// A CSV file with commas and a header line.
pub struct CsvTable {
    path: PathBuf,
    text: String,
}

impl CsvTable {
    pub fn read(path: &Path) -> Result<CsvTable, TraceError> {
        let unreadable = |source| TraceError::Unreadable { path: path.to_path_buf(), source };
        let bytes = read_unpacked(path).map_err(unreadable)?;
        let text =
            String::from_utf8(bytes).map_err(|error| unreadable(io::Error::new(io::ErrorKind::InvalidData, error)))?;
        Ok(CsvTable { path: path.to_path_buf(), text })
    }

    /// All lines but the header and empty ones.
    pub fn rows(&self) -> impl Iterator<Item = Result<CsvRow<'_>, TraceError>> {
        CsvText::parse(&self.text, ',').into_rows().map(|(line, fields)| match fields {
            Ok(fields) => Ok(CsvRow { path: &self.path, line, fields }),
            Err(message) => Err(TraceError::Line { path: self.path.clone(), line, message }),
        })
    }
}

/// One line of a [`CsvTable`].
pub struct CsvRow<'a> {
    path: &'a Path,
    line: usize,
    pub fields: CsvFields<'a>,
}

impl CsvRow<'_> {
    /// The field of a column that must exist; the field may be empty.
    pub fn text(&self, column: &str) -> Result<&str, TraceError> {
        self.fields.text(column).ok_or_else(|| self.error(format!("there is no column `{column}`")))
    }

    pub fn number<N: FromStr>(&self, column: &str) -> Result<N, TraceError> {
        parse_number(column, self.text(column)?).map_err(|message| self.error(message))
    }

    /// An error that names this line.
    pub fn error(&self, message: impl Into<String>) -> TraceError {
        TraceError::Line { path: self.path.to_path_buf(), line: self.line, message: message.into() }
    }
}

/// A text whose first line is the header.
pub struct CsvText<'a> {
    columns: Rc<[Cow<'a, str>]>,
    lines: Vec<(usize, &'a str)>,
    separator: char,
}

impl<'a> CsvText<'a> {
    /// Skips a byte order mark and empty lines.
    pub fn parse(text: &'a str, separator: char) -> CsvText<'a> {
        let text = text.trim_start_matches('\u{feff}');
        let mut lines = text.lines().enumerate().map(|(at, line)| (at + 1, line));
        let columns = lines.next().map(|(_, line)| split_fields(line, separator)).unwrap_or_default();
        let lines = lines.filter(|(_, line)| !line.trim().is_empty()).collect();
        CsvText { columns: columns.into(), lines, separator }
    }

    /// An error if one of these columns is missing.
    pub fn check_required_columns(&self, columns: &[&str]) -> Result<(), String> {
        match columns.iter().find(|column| !self.columns.iter().any(|known| known == **column)) {
            Some(column) => Err(format!("there is no column `{column}`")),
            None => Ok(()),
        }
    }

    /// An error if the header has any other column, so that a misspelt optional column is noticed.
    pub fn check_known_columns(&self, columns: &[&str]) -> Result<(), String> {
        match self.columns.iter().find(|column| !columns.contains(&column.as_ref())) {
            Some(column) => Err(format!("unknown column `{column}`; known are {}", columns.join(", "))),
            None => Ok(()),
        }
    }

    /// All lines but the header and empty ones, with their numbers counted from 1.
    pub fn into_rows(self) -> impl Iterator<Item = (usize, Result<CsvFields<'a>, String>)> {
        let CsvText { columns, lines, separator } = self;
        lines.into_iter().map(move |(line, text)| {
            let fields = split_fields(text, separator);
            let row = match fields.len() == columns.len() {
                true => Ok(CsvFields { columns: columns.clone(), fields }),
                false => Err(format!("{} fields, but {} columns", fields.len(), columns.len())),
            };
            (line, row)
        })
    }
}

/// The fields of one line by column.
pub struct CsvFields<'a> {
    columns: Rc<[Cow<'a, str>]>,
    fields: Vec<Cow<'a, str>>,
}

impl CsvFields<'_> {
    /// `None` if there is no such column.
    pub fn text(&self, column: &str) -> Option<&str> {
        let index = self.columns.iter().position(|known| known == column)?;
        Some(self.fields[index].as_ref())
    }

    /// `None` if the field is empty or there is no such column.
    pub fn optional_text(&self, column: &str) -> Option<&str> {
        self.text(column).filter(|text| !text.is_empty())
    }

    pub fn required_text(&self, column: &str) -> Result<&str, String> {
        self.optional_text(column).ok_or_else(|| format!("`{column}` is empty"))
    }

    pub fn required_number<N: FromStr>(&self, column: &str) -> Result<N, String> {
        parse_number(column, self.required_text(column)?)
    }

    pub fn optional_number<N: FromStr>(&self, column: &str) -> Result<Option<N>, String> {
        self.optional_text(column).map(|text| parse_number(column, text)).transpose()
    }
}

fn parse_number<N: FromStr>(column: &str, text: &str) -> Result<N, String> {
    text.parse().map_err(|_| format!("`{text}` is not a number for `{column}`"))
}

/// Fields between separators, trimmed. Inside a quoted field separators do not count, and two quotes mean one.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_fields_may_contain_separators_and_quotes() {
        assert_eq!(split_fields(r#"a,"b,c", "say ""d""" "#, ','), ["a", "b,c", r#"say "d""#]);
    }

    #[test]
    fn an_invalid_field_is_reported_with_path_and_line() {
        let path = std::env::temp_dir().join(format!("muster-csv-table-{}.csv", std::process::id()));
        std::fs::write(&path, "\u{feff}name,gpus\n\na,1\nb,many\nc\n").unwrap();
        let table = CsvTable::read(&path).unwrap();
        let gpus = |row: Result<CsvRow, TraceError>| row?.number::<u32>("gpus");
        let found: Vec<Result<u32, String>> =
            table.rows().map(|row| gpus(row).map_err(|error| error.to_string())).collect();
        std::fs::remove_file(&path).unwrap();
        let at = path.display();
        let expected = [
            Ok(1),
            Err(format!("`{at}`, line 4: `many` is not a number for `gpus`")),
            Err(format!("`{at}`, line 5: 1 fields, but 2 columns")),
        ];
        assert_eq!(found, expected);
    }
}

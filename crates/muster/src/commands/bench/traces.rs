//! Traces: where they lie, and how their files are read.
//!
//! The files have no quotes and no commas within a field, so a line is split where the commas are.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::str::FromStr;

use flate2::read::GzDecoder;

use crate::error::CliError;

/// Where traces lie unless it is said.
const TRACES: &str = "../shared/traces";

/// The folder of traces: as it is said, else as the environment says.
pub fn folder(said: Option<PathBuf>) -> PathBuf {
    let from_variable = || std::env::var_os("MUSTER_TRACES").filter(|dir| !dir.is_empty()).map(PathBuf::from);
    said.or_else(from_variable).unwrap_or_else(|| PathBuf::from(TRACES))
}

/// The folder of one trace, which must be there.
pub fn trace(traces: &Path, name: &str) -> Result<PathBuf, CliError> {
    let folder = traces.join(name);
    if !folder.is_dir() {
        return Err(CliError::failed(format!("there is no trace at `{}`", folder.display()))
            .hint("the folder of traces with `--traces DIR`, or in MUSTER_TRACES"));
    }
    Ok(folder)
}

/// What is said of a file or folder that cannot be read.
pub fn unreadable(path: &Path, error: &std::io::Error) -> CliError {
    CliError::failed(format!("cannot read `{}`: {error}", path.display()))
}

/// A file of lines with commas, packed or not.
pub struct Table {
    path: PathBuf,
    text: String,
}

impl Table {
    /// Read it.
    pub fn read(path: &Path) -> Result<Table, CliError> {
        let mut text = String::new();
        let file = File::open(path).map_err(|error| unreadable(path, &error))?;
        let packed = path.extension().is_some_and(|extension| extension == "gz");
        let mut source: Box<dyn Read> = if packed { Box::new(GzDecoder::new(file)) } else { Box::new(file) };
        source.read_to_string(&mut text).map_err(|error| unreadable(path, &error))?;
        Ok(Table { path: path.to_path_buf(), text })
    }

    /// Its lines, without that of titles.
    pub fn rows(&self) -> impl Iterator<Item = Result<Row<'_>, CliError>> {
        let mut lines = self.text.lines().enumerate();
        let titles: Vec<&str> = lines.next().map(|(_, line)| line.split(',').collect()).unwrap_or_default();
        let titles = Rc::new(titles);
        lines.map(move |(at, line)| {
            let row = Row { table: self, titles: titles.clone(), at, fields: line.split(',').collect() };
            match row.fields.len() == row.titles.len() {
                true => Ok(row),
                false => Err(row.wrong(&format!("{} fields, {} titles", row.fields.len(), row.titles.len()))),
            }
        })
    }
}

/// One line.
pub struct Row<'a> {
    table: &'a Table,
    titles: Rc<Vec<&'a str>>,
    at: usize,
    fields: Vec<&'a str>,
}

impl Row<'_> {
    /// What stands under a title.
    pub fn text(&self, title: &str) -> Result<&str, CliError> {
        let place = self.titles.iter().position(|known| *known == title);
        place
            .map(|place| self.fields[place])
            .ok_or_else(|| self.wrong(&format!("there is no column `{title}`")))
    }

    /// The number that stands under a title.
    pub fn number<N: FromStr>(&self, title: &str) -> Result<N, CliError> {
        let text = self.text(title)?;
        text.parse().map_err(|_| self.wrong(&format!("`{text}` is no number for `{title}`")))
    }

    /// What is wrong with this line.
    pub fn wrong(&self, what: &str) -> CliError {
        CliError::failed(format!("`{}`, line {}: {what}", self.table.path.display(), self.at + 1))
    }
}

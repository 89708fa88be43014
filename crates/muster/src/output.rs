//! What goes to standard output: lists and cards, in the format that was asked for.
//!
//! Data goes to standard output, talk to standard error. Ids and reasons are never cut.

mod card;
mod csv;
mod sort;
mod table;

use std::io::Write;

use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::error::CliError;
pub use card::Card;
pub use table::{Cell, Column, Tint};

/// Flags of a read that shows one thing.
#[derive(Debug, Clone, Default, Args)]
pub struct ShowArgs {
    /// table, wide, json, yaml, csv or name
    #[arg(short, long, value_name = "FORMAT", default_value = "table", help_heading = "Output")]
    #[arg(hide_possible_values = true)]
    pub output: Format,
}

/// Flags of a read that shows many things.
#[derive(Debug, Clone, Default, Args)]
pub struct ListArgs {
    #[command(flatten)]
    pub show: ShowArgs,
    /// Leave out the line of titles
    #[arg(long, help_heading = "Output")]
    pub no_headers: bool,
    /// Only these columns, in this order, for example `id,name`
    #[arg(long, value_delimiter = ',', value_name = "NAMES", help_heading = "Output")]
    pub columns: Vec<String>,
    /// Sort by this column; `-` before the name turns the order around
    #[arg(long, value_name = "NAME", allow_hyphen_values = true, help_heading = "Output")]
    pub sort: Option<String>,
    /// Print at most this many, after sorting; 0 prints all
    #[arg(long, value_name = "N", help_heading = "Output")]
    pub limit: Option<usize>,
}

impl ListArgs {
    /// The most rows to print: as asked, where 0 is all, else so many.
    pub fn most(&self, unless_said: usize) -> usize {
        match self.limit {
            Some(0) => usize::MAX,
            Some(limit) => limit,
            None => unless_said,
        }
    }
}

/// How data is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Format {
    /// Columns for people
    #[default]
    Table,
    /// More columns
    Wide,
    /// As the API says it
    Json,
    /// The same as YAML
    Yaml,
    /// All columns, separated by commas
    Csv,
    /// Names only, one a line
    Name,
}

/// Print a list. `whole` is what the API said, for formats that machines read; the first column is the name.
pub fn list<T>(
    args: &ListArgs,
    color: bool,
    columns: &[Column<T>],
    rows: Vec<T>,
    whole: &impl Serialize,
) -> Result<(), CliError> {
    list_with_total(args, color, columns, (rows, None), whole)
}

/// The same with a last row for people, which is neither sorted nor cut.
pub fn list_with_total<T>(
    args: &ListArgs,
    color: bool,
    columns: &[Column<T>],
    (mut rows, total): (Vec<T>, Option<T>),
    whole: &impl Serialize,
) -> Result<(), CliError> {
    if let Some(text) = for_machines(args.show.output, whole)? {
        return print(&text);
    }
    if let Some(by) = &args.sort {
        sort::by_column(columns, &mut rows, by)?;
    }
    rows.truncate(args.most(usize::MAX));
    let for_people = matches!(args.show.output, Format::Table | Format::Wide);
    rows.extend(total.filter(|_| for_people));
    let chosen = table::choose(columns, &args.columns, args.show.output)?;
    let text = match args.show.output {
        Format::Csv => csv::text(&chosen, &rows, !args.no_headers),
        Format::Name => names(columns, &rows),
        _ => table::text(&chosen, &rows, !args.no_headers, color),
    };
    print(&text)
}

/// Refuse columns that do not exist, before anything is asked of a server.
pub fn check_columns<T>(args: &ListArgs, columns: &[Column<T>]) -> Result<(), CliError> {
    let sort = args.sort.as_deref().map(|by| by.strip_prefix('-').unwrap_or(by));
    args.columns
        .iter()
        .map(String::as_str)
        .chain(sort)
        .try_for_each(|name| table::find(columns, name).map(drop))
}

/// A table for people, to stand among other things.
pub fn table<T>(columns: &[Column<T>], rows: &[T], color: bool) -> String {
    table::text(&columns.iter().collect::<Vec<_>>(), rows, true, color)
}

/// Print one thing.
pub fn show(args: &ShowArgs, card: &Card, name: &str, whole: &impl Serialize) -> Result<(), CliError> {
    if let Some(text) = for_machines(args.output, whole)? {
        return print(&text);
    }
    match args.output {
        Format::Name => print(&format!("{name}\n")),
        Format::Csv => print(&card.csv()),
        _ => print(&card.text()),
    }
}

/// Print something that has no columns: as it is for people, else as the API said it.
pub fn say(args: &ShowArgs, text: &str, name: &str, whole: &impl Serialize) -> Result<(), CliError> {
    match for_machines(args.output, whole)? {
        Some(text) => print(&text),
        None if args.output == Format::Name => print(&format!("{name}\n")),
        None => print(text),
    }
}

/// Write to standard output.
pub fn print(text: &str) -> Result<(), CliError> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Say something to the person, beside the data. Nobody there to listen is fine.
pub fn talk(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

fn for_machines(format: Format, whole: &impl Serialize) -> Result<Option<String>, CliError> {
    match format {
        Format::Json => Ok(Some(format!("{}\n", muster_json::to_string_pretty(whole)))),
        Format::Yaml => yaml(whole).map(Some),
        Format::Table | Format::Wide | Format::Csv | Format::Name => Ok(None),
    }
}

fn yaml(whole: &impl Serialize) -> Result<String, CliError> {
    serde_saphyr::to_string(whole)
        .map_err(|error| CliError::failed(format!("cannot write this as YAML: {error}")))
}

fn names<T>(columns: &[Column<T>], rows: &[T]) -> String {
    let name = |row| columns.first().map(|column| (column.cell)(row).text).unwrap_or_default();
    rows.iter().map(|row| format!("{}\n", name(row))).collect()
}

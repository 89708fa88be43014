//! Standard output: lists and cards in the format that `-o` selects.
//!
//! Results go to standard output, messages to standard error. Ids and reasons are never truncated.

mod card;
mod csv;
mod sort;
mod table;

use std::io::Write;

use clap::{Args, ValueEnum};
use muster_json::JsonText;
use serde::Serialize;

use crate::error::CliError;
pub use card::Card;
pub use table::{Cell, Column, Tint};

/// Flags of a command that shows one object.
#[derive(Debug, Clone, Default, Args)]
pub struct ShowArgs {
    /// table, wide, json, yaml, csv or name
    #[arg(short, long, value_name = "FORMAT", default_value = "table", help_heading = "Output")]
    #[arg(hide_possible_values = true)]
    pub output: Format,
}

/// Flags of a command that lists objects.
#[derive(Debug, Clone, Default, Args)]
pub struct ListArgs {
    #[command(flatten)]
    pub show: ShowArgs,
    /// Omit the header line
    #[arg(long, help_heading = "Output")]
    pub no_headers: bool,
    /// Print only these columns, in this order, for example `id,name`
    #[arg(long, value_delimiter = ',', value_name = "NAMES", help_heading = "Output")]
    pub columns: Vec<String>,
    /// Sort by this column; `-` before the name reverses the order
    #[arg(long, value_name = "NAME", allow_hyphen_values = true, help_heading = "Output")]
    pub sort: Option<String>,
    /// Print at most this many rows, after sorting; 0 prints all
    #[arg(long, value_name = "N", help_heading = "Output")]
    pub limit: Option<usize>,
}

impl ListArgs {
    /// The maximum number of rows: `--limit`, of which 0 is all, else `default`.
    pub fn row_limit(&self, default: usize) -> usize {
        match self.limit {
            Some(0) => usize::MAX,
            Some(limit) => limit,
            None => default,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Format {
    /// Columns for people
    #[default]
    Table,
    /// More columns
    Wide,
    /// The response of the API
    Json,
    /// The response of the API as YAML
    Yaml,
    /// All columns, separated by commas
    Csv,
    /// Names only, one per line
    Name,
}

/// Prints a list. `response` is the API's response, for JSON and YAML; the first column is the name.
pub fn list<T>(
    args: &ListArgs,
    color: bool,
    columns: &[Column<T>],
    rows: Vec<T>,
    response: &impl Serialize,
) -> Result<(), CliError> {
    list_with_total(args, color, columns, (rows, None), response)
}

/// Prints a list whose tables end with a total row, which is neither sorted nor limited.
pub fn list_with_total<T>(
    args: &ListArgs,
    color: bool,
    columns: &[Column<T>],
    (mut rows, total): (Vec<T>, Option<T>),
    response: &impl Serialize,
) -> Result<(), CliError> {
    if let Some(text) = structured_text(args.show.output, response)? {
        return print_stdout(&text);
    }
    if let Some(by) = &args.sort {
        sort::sort_by_column(columns, &mut rows, by)?;
    }
    rows.truncate(args.row_limit(usize::MAX));
    let is_table = matches!(args.show.output, Format::Table | Format::Wide);
    rows.extend(total.filter(|_| is_table));
    let chosen = table::select_columns(columns, &args.columns, args.show.output)?;
    let text = match args.show.output {
        Format::Csv => csv::csv_text(&chosen, &rows, !args.no_headers),
        Format::Name => names_text(columns, &rows),
        _ => table::table_text(&chosen, &rows, !args.no_headers, color),
    };
    print_stdout(&text)
}

/// Refuses unknown columns before a request is sent.
pub fn check_columns<T>(args: &ListArgs, columns: &[Column<T>]) -> Result<(), CliError> {
    let sort = args.sort.as_deref().map(|by| by.strip_prefix('-').unwrap_or(by));
    args.columns.iter().map(String::as_str).chain(sort).try_for_each(|name| table::find_column(columns, name).map(drop))
}

/// A table as text, for a larger output.
pub fn table<T>(columns: &[Column<T>], rows: &[T], color: bool) -> String {
    table::table_text(&columns.iter().collect::<Vec<_>>(), rows, true, color)
}

/// Prints one object.
pub fn show(args: &ShowArgs, card: &Card, name: &str, response: &impl Serialize) -> Result<(), CliError> {
    if let Some(text) = structured_text(args.output, response)? {
        return print_stdout(&text);
    }
    match args.output {
        Format::Name => print_stdout(&format!("{name}\n")),
        Format::Csv => print_stdout(&card.csv()),
        _ => print_stdout(&card.text()),
    }
}

/// Prints free text, or the API's response as JSON or YAML.
pub fn print_text(args: &ShowArgs, text: &str, name: &str, response: &impl Serialize) -> Result<(), CliError> {
    match structured_text(args.output, response)? {
        Some(text) => print_stdout(&text),
        None if args.output == Format::Name => print_stdout(&format!("{name}\n")),
        None => print_stdout(text),
    }
}

pub fn print_stdout(text: &str) -> Result<(), CliError> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Prints a message beside the results. A closed standard error is not an error.
pub fn print_stderr(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

fn structured_text(format: Format, response: &impl Serialize) -> Result<Option<String>, CliError> {
    match format {
        Format::Json => Ok(Some(format!("{}\n", muster_json::to_string_pretty(response)))),
        Format::Yaml => yaml(response).map(Some),
        Format::Table | Format::Wide | Format::Csv | Format::Name => Ok(None),
    }
}

fn yaml(response: &impl Serialize) -> Result<String, CliError> {
    serde_saphyr::to_string(&JsonText::of(response))
        .map_err(|error| CliError::failed(format!("cannot write this as YAML: {error}")))
}

fn names_text<T>(columns: &[Column<T>], rows: &[T]) -> String {
    let name = |row| columns.first().map(|column| (column.cell)(row).text).unwrap_or_default();
    rows.iter().map(|row| format!("{}\n", name(row))).collect()
}

//! Commas for spreadsheets, quoted by RFC 4180.

use super::table::Column;

/// The list as CSV.
pub fn text<T>(columns: &[&Column<T>], rows: &[T], headers: bool) -> String {
    let titles = headers.then(|| line(columns.iter().map(|column| column.title.to_string())));
    let lines = rows.iter().map(|row| line(columns.iter().map(|column| value(&(column.cell)(row).text))));
    titles.into_iter().chain(lines).collect()
}

/// One line.
pub fn line(values: impl Iterator<Item = String>) -> String {
    let quoted: Vec<String> = values.map(|value| quote(&value)).collect();
    format!("{}\n", quoted.join(","))
}

/// A dash is how people see nothing; a spreadsheet sees it by an empty field.
fn value(text: &str) -> String {
    if text == "-" { String::new() } else { text.to_string() }
}

/// A leading `=`, `+`, `-` or `@` would be run as a formula; names come from other people.
fn quote(text: &str) -> String {
    let formula = text.starts_with(['=', '+', '-', '@']) && text.parse::<f64>().is_err();
    let text = if formula { format!("'{text}") } else { text.to_string() };
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Cell;

    #[test]
    fn what_would_break_a_line_is_quoted() {
        let column: Column<&str> = Column::new("NAME", |row| Cell::from(*row));
        let rows = ["plain", "a,b", "say \"hi\"", "", "=1+1", "-3"];
        assert_eq!(text(&[&column], &rows, true), "NAME\nplain\n\"a,b\"\n\"say \"\"hi\"\"\"\n\n'=1+1\n-3\n");
    }
}

//! CSV, quoted by RFC 4180.

use super::table::Column;

pub fn csv_text<T>(columns: &[&Column<T>], rows: &[T], headers: bool) -> String {
    let titles = headers.then(|| csv_line(columns.iter().map(|column| column.title.to_string())));
    let lines = rows.iter().map(|row| csv_line(columns.iter().map(|column| csv_value(&(column.cell)(row).text))));
    titles.into_iter().chain(lines).collect()
}

pub fn csv_line(values: impl Iterator<Item = String>) -> String {
    let quoted: Vec<String> = values.map(|value| csv_quoted(&value)).collect();
    format!("{}\n", quoted.join(","))
}

/// Tables print a missing value as a dash, CSV as an empty field.
fn csv_value(text: &str) -> String {
    if text == "-" { String::new() } else { text.to_string() }
}

/// Names of other users must not become formulas of a spreadsheet: a leading `=`, `+`, `-` or `@` is escaped.
fn csv_quoted(text: &str) -> String {
    let formula = text.starts_with(['=', '+', '-', '@']) && text.parse::<f64>().is_err();
    let text = if formula { format!("'{text}") } else { text.to_string() };
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Cell;

    #[test]
    fn special_characters_and_formulas_are_quoted() {
        let column: Column<&str> = Column::new("NAME", |row| Cell::from(*row));
        let rows = ["plain", "a,b", "say \"hi\"", "", "=1+1", "-3"];
        assert_eq!(csv_text(&[&column], &rows, true), "NAME\nplain\n\"a,b\"\n\"say \"\"hi\"\"\"\n\n'=1+1\n-3\n");
    }
}

//! Sorting rows by the text of a column.

use std::cmp::Ordering;

use super::table::{Column, find_column};
use crate::error::CliError;
use crate::units;

/// Sorts by the named column; `-name` reverses the order. The sort is stable.
pub fn sort_by_column<T>(columns: &[Column<T>], rows: &mut [T], by: &str) -> Result<(), CliError> {
    let (name, reverse) = match by.strip_prefix('-') {
        Some(name) => (name, true),
        None => (by, false),
    };
    let column = find_column(columns, name)?;
    rows.sort_by(|a, b| {
        let order = compare_cells(&(column.cell)(a).text, &(column.cell)(b).text);
        if reverse { order.reverse() } else { order }
    });
    Ok(())
}

/// Amounts by size, other text in natural order; missing values come last.
fn compare_cells(a: &str, b: &str) -> Ordering {
    match (a == "-", b == "-") {
        (true, true) => return Ordering::Equal,
        (false, true) => return Ordering::Less,
        (true, false) => return Ordering::Greater,
        (false, false) => {}
    }
    match (numeric_value(a), numeric_value(b)) {
        (Some(a), Some(b)) => a.total_cmp(&b),
        _ => natural_key(a).cmp(&natural_key(b)),
    }
}

/// The value of a number, of the first number of `3/8`, or of a span such as `2m05s`.
fn numeric_value(text: &str) -> Option<f64> {
    let first = text.split([' ', '/']).next().unwrap_or_default();
    first.parse().ok().or_else(|| units::parse_duration_ms(first).ok().map(|ms| ms as f64))
}

/// Text and numbers alternate, so that `job-9` comes before `job-10`.
fn natural_key(text: &str) -> Vec<(String, u64)> {
    let mut parts: Vec<(String, u64)> = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let letters = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let (word, after) = rest.split_at(letters);
        let digits = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        let (number, after) = after.split_at(digits);
        parts.push((word.to_string(), number.parse().unwrap_or(0)));
        rest = after;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Cell;

    fn sorted<'a>(by: &str, rows: &[&'a str]) -> Vec<&'a str> {
        let columns = [Column::new("X", |row: &&str| Cell::from(*row))];
        let mut rows = rows.to_vec();
        sort_by_column(&columns, &mut rows, by).unwrap();
        rows
    }

    #[test]
    fn amounts_sort_by_size_and_names_in_natural_order() {
        assert_eq!(sorted("x", &["job-10", "job-9", "job-10.2"]), ["job-9", "job-10", "job-10.2"]);
        assert_eq!(sorted("-x", &["2m05s", "1h00m", "14s"]), ["1h00m", "2m05s", "14s"]);
        assert_eq!(sorted("x", &["-", "8/8", "16/8"]), ["8/8", "16/8", "-"]);
    }
}

//! Sorting rows by what a column shows.

use std::cmp::Ordering;

use super::table::{Column, find};
use crate::error::CliError;
use crate::units;

/// Sort by the column of that name; `-name` turns the order around. Equal rows keep their order.
pub fn by_column<T>(columns: &[Column<T>], rows: &mut [T], by: &str) -> Result<(), CliError> {
    let (name, backwards) = match by.strip_prefix('-') {
        Some(name) => (name, true),
        None => (by, false),
    };
    let column = find(columns, name)?;
    rows.sort_by(|a, b| {
        let order = compare(&(column.cell)(a).text, &(column.cell)(b).text);
        if backwards { order.reverse() } else { order }
    });
    Ok(())
}

/// Amounts by size, everything else by its letters; what is missing comes last.
fn compare(a: &str, b: &str) -> Ordering {
    match (a == "-", b == "-") {
        (true, true) => return Ordering::Equal,
        (false, true) => return Ordering::Less,
        (true, false) => return Ordering::Greater,
        (false, false) => {}
    }
    match (amount(a), amount(b)) {
        (Some(a), Some(b)) => a.total_cmp(&b),
        _ => natural(a).cmp(&natural(b)),
    }
}

/// A number, `3/8`, a span such as `2m05s`.
fn amount(text: &str) -> Option<f64> {
    let first = text.split([' ', '/']).next().unwrap_or_default();
    first.parse().ok().or_else(|| units::duration_ms(first).ok().map(|ms| ms as f64))
}

/// Letters and numbers apart, so that `job-9` comes before `job-10`.
fn natural(text: &str) -> Vec<(String, u64)> {
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
        by_column(&columns, &mut rows, by).unwrap();
        rows
    }

    #[test]
    fn amounts_go_by_size_and_names_as_people_count() {
        assert_eq!(sorted("x", &["job-10", "job-9", "job-10.2"]), ["job-9", "job-10", "job-10.2"]);
        assert_eq!(sorted("-x", &["2m05s", "1h00m", "14s"]), ["1h00m", "2m05s", "14s"]);
        assert_eq!(sorted("x", &["-", "8/8", "16/8"]), ["8/8", "16/8", "-"]);
    }
}

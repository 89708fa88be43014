//! One object with its fields, one per line.

use super::csv;

/// Fields and their values, in the order of printing.
#[derive(Debug, Default)]
pub struct Card {
    fields: Vec<(&'static str, String)>,
}

impl Card {
    /// Adds a field; a field with an empty value is omitted.
    pub fn field(mut self, name: &'static str, value: impl Into<String>) -> Card {
        let value = value.into();
        if !value.is_empty() {
            self.fields.push((name, value));
        }
        self
    }

    /// Adds a field that has a value.
    pub fn field_if_some<T: ToString>(self, name: &'static str, value: Option<T>) -> Card {
        self.field(name, value.map(|value| value.to_string()).unwrap_or_default())
    }

    /// Names in a column; further lines of a value below its first line.
    pub fn text(&self) -> String {
        let width = self.fields.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        self.fields.iter().map(|(name, value)| paragraph(name, value, width)).collect()
    }

    /// Two columns: name and value.
    pub fn csv(&self) -> String {
        let lines =
            self.fields.iter().map(|(name, value)| csv::csv_line([name.to_string(), value.clone()].into_iter()));
        lines.collect()
    }
}

fn paragraph(name: &str, value: &str, width: usize) -> String {
    let mut lines = value.lines();
    let first = format!("{name:<width$}  {}\n", without_control_chars(lines.next().unwrap_or_default()));
    lines.fold(first, |text, line| format!("{text}{:width$}  {}\n", "", without_control_chars(line)))
}

/// Names and scripts of other users may contain control characters, which could manipulate the terminal.
fn without_control_chars(line: &str) -> String {
    line.chars().map(|c| if c.is_control() && c != '\t' { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn card_values_are_aligned() {
        let card = Card::default()
            .field("name", "train")
            .field("tenant", "")
            .field_if_some("exit", Some(3))
            .field("script", "a\nb");
        assert_eq!(card.text(), "name    train\nexit    3\nscript  a\n        b\n");
        assert_eq!(card.csv(), "name,train\nexit,3\nscript,\"a\nb\"\n");
    }
}

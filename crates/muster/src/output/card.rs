//! One thing with all its fields, one a line.

use super::csv;

/// Fields and their values, in the order in which a person asks.
#[derive(Debug, Default)]
pub struct Card {
    fields: Vec<(&'static str, String)>,
}

impl Card {
    /// One more field; one without a value is left out.
    pub fn field(mut self, name: &'static str, value: impl Into<String>) -> Card {
        let value = value.into();
        if !value.is_empty() {
            self.fields.push((name, value));
        }
        self
    }

    /// The same for something that may not be there.
    pub fn maybe<T: ToString>(self, name: &'static str, value: Option<T>) -> Card {
        self.field(name, value.map(|value| value.to_string()).unwrap_or_default())
    }

    /// For people: names in a column, further lines of a value below its first.
    pub fn text(&self) -> String {
        let width = self.fields.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        self.fields.iter().map(|(name, value)| paragraph(name, value, width)).collect()
    }

    /// Two columns for spreadsheets.
    pub fn csv(&self) -> String {
        let lines =
            self.fields.iter().map(|(name, value)| csv::line([name.to_string(), value.clone()].into_iter()));
        lines.collect()
    }
}

fn paragraph(name: &str, value: &str, width: usize) -> String {
    let mut lines = value.lines();
    let first = format!("{name:<width$}  {}\n", clean(lines.next().unwrap_or_default()));
    lines.fold(first, |text, line| format!("{text}{:width$}  {}\n", "", clean(line)))
}

/// Control letters come from other people's scripts and names; they must not draw on our terminal.
fn clean(line: &str) -> String {
    line.chars().map(|letter| if letter.is_control() && letter != '\t' { ' ' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stand_in_a_column() {
        let card = Card::default()
            .field("name", "train")
            .field("tenant", "")
            .maybe("exit", Some(3))
            .field("script", "a\nb");
        assert_eq!(card.text(), "name    train\nexit    3\nscript  a\n        b\n");
        assert_eq!(card.csv(), "name,train\nexit,3\nscript,\"a\nb\"\n");
    }
}

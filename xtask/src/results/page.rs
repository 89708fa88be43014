//! A hand-written page with generated tables between markers, and the format of the tables.

use anyhow::{Context, Result};

const END: &str = "<!-- end -->";

/// The text of the page.
pub struct Page(pub String);

impl Page {
    /// Replaces the text between the markers of this name.
    pub fn replace(&mut self, name: &str, table: &str) -> Result<()> {
        let begin = format!("<!-- results:{name} -->\n");
        let from = self.0.find(&begin).with_context(|| format!("there is no marker `{}`", begin.trim()))?;
        let from = from + begin.len();
        let length = self.0[from..].find(END).with_context(|| format!("`{}` has no end marker", begin.trim()))?;
        self.0.replace_range(from..from + length, &format!("{}\n", table.trim_end()));
        Ok(())
    }
}

/// A table in Markdown: the first column is aligned left, the others right.
pub fn table(titles: &[String], rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let rule = format!("|---|{}\n", "--:|".repeat(titles.len().saturating_sub(1)));
    line(titles) + &rule + &rows.iter().map(|row| line(row)).collect::<String>()
}

/// A number with this many decimals and commas between thousands.
pub fn number(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    let whole = text.find('.').unwrap_or(text.len());
    let comma = |index: usize| index > 0 && index < whole && (whole - index).is_multiple_of(3);
    let characters = text.char_indices();
    characters.flat_map(|(index, character)| comma(index).then_some(',').into_iter().chain([character])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replace_changes_only_the_text_between_the_markers() {
        let text = "a\n<!-- results:x -->\nold\n<!-- end -->\nb\n<!-- results:y -->\n<!-- end -->\n";
        let mut page = Page(text.to_string());
        page.replace("x", "new\nlines\n\n").unwrap();
        assert_eq!(page.0, text.replace("old", "new\nlines"));
        page.replace("y", "z").unwrap();
        assert!(page.0.ends_with("<!-- results:y -->\nz\n<!-- end -->\n"), "{}", page.0);
        assert!(page.replace("z", "").is_err());
    }

    #[test]
    fn numbers_have_commas_between_thousands() {
        let numbers = [0.0, 999.0, 1_000.0, 12_529_500.04].map(|value| number(value, 1));
        assert_eq!(numbers, ["0.0", "999.0", "1,000.0", "12,529,500.0"]);
        assert_eq!(number(46_130.4, 0), "46,130");
    }

    #[test]
    fn a_table_has_a_rule_under_its_titles() {
        let cells = |cells: &[&str]| cells.iter().map(|cell| cell.to_string()).collect::<Vec<_>>();
        assert_eq!(table(&cells(&["", "x"]), &[cells(&["a", "1"])]), "|  | x |\n|---|--:|\n| a | 1 |\n");
    }
}

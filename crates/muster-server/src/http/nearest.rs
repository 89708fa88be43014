//! Which of the known names somebody probably meant.

/// The known name that needs the fewest changes, if they are few enough to be a slip.
pub fn nearest<'a>(said: &str, known: &[&'a str]) -> Option<&'a str> {
    let (slips, name) = known.iter().map(|name| (slips(said, name), *name)).min()?;
    (slips <= 3 && slips * 2 <= name.len().max(said.len())).then_some(name)
}

/// Letters to insert, remove or replace, one row of the table at a time.
fn slips(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (above, letter) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = above + 1;
        for (left, other) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *other);
            diagonal = row[left + 1];
            row[left + 1] = replaced.min(row[left] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_its_name_and_another_word_does_not() {
        let known = ["gpu_count", "cpu_cores", "name"];
        assert_eq!(nearest("gpu_cout", &known), Some("gpu_count"));
        assert_eq!(nearest("gpus_count", &known), Some("gpu_count"));
        assert_eq!(nearest("favourite_colour", &known), None);
        assert_eq!(nearest("x", &[]), None);
    }
}

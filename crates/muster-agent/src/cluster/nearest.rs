//! Which known key somebody probably meant.

/// More differences than this and it is another word, not a slip.
const SLIPS_MAX: usize = 3;

/// A hint for the message: the nearest known key, or all of them when none is near.
pub(super) fn hint(key: &str, known: &[&str]) -> String {
    match nearest(key, known) {
        Some(word) => format!("did you mean `{word}`?"),
        None => format!("known keys are {}", quoted(known)),
    }
}

/// The known word that differs least, if it is near.
pub(super) fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let (count, nearest) = known.iter().map(|known| (slips(word, known), *known)).min()?;
    (count <= SLIPS_MAX && count < nearest.len()).then_some(nearest)
}

/// Words as a sentence lists them.
pub(super) fn quoted(words: &[&str]) -> String {
    words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

/// Letters to insert, remove or replace (Levenshtein), one row of the table at a time.
fn slips(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, letter) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, other) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *other);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_key_is_named() {
        let known = ["name", "count", "cpus", "memory_gib"];
        assert_eq!(hint("cpu", &known), "did you mean `cpus`?");
        assert_eq!(hint("memory_gb", &known), "did you mean `memory_gib`?");
        assert_eq!(hint("favourite_colour", &["name", "count"]), "known keys are `name`, `count`");
    }

    #[test]
    fn slips_are_counted() {
        assert_eq!(slips("kitten", "sitting"), 3);
        assert_eq!(slips("", "abc"), 3);
        assert_eq!(slips("same", "same"), 0);
    }
}

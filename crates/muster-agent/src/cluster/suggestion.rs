//! Which known key somebody probably meant.

/// More differences than this and it is another word, not a slip.
const EDIT_DISTANCE_MAX: usize = 3;

/// A hint for the message: the nearest known key, or all of them when none is near.
pub(super) fn unknown_key_hint(key: &str, known: &[&str]) -> String {
    match nearest_name(key, known) {
        Some(word) => format!("did you mean `{word}`?"),
        None => format!("known keys are {}", quoted_list(known)),
    }
}

/// The known word that differs least, if it is near.
pub(super) fn nearest_name<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let (count, nearest) = known.iter().map(|known| (edit_distance(word, known), *known)).min()?;
    (count <= EDIT_DISTANCE_MAX && count < nearest.len()).then_some(nearest)
}

/// Words as a sentence lists them.
pub(super) fn quoted_list(words: &[&str]) -> String {
    words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

/// Letters to insert, remove or replace (Levenshtein), one row of the table at a time.
fn edit_distance(a: &str, b: &str) -> usize {
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
    fn an_unknown_key_suggests_the_nearest_known_key() {
        let known = ["name", "count", "cpus", "memory_gib"];
        assert_eq!(unknown_key_hint("cpu", &known), "did you mean `cpus`?");
        assert_eq!(unknown_key_hint("memory_gb", &known), "did you mean `memory_gib`?");
        assert_eq!(unknown_key_hint("favourite_colour", &["name", "count"]), "known keys are `name`, `count`");
    }

    #[test]
    fn edit_distance_is_levenshtein() {
        assert_eq!(edit_distance("kitten", "sitting"), 3);
        assert_eq!(edit_distance("", "abc"), 3);
        assert_eq!(edit_distance("same", "same"), 0);
    }
}

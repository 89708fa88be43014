//! Which known word somebody probably meant: for messages.

/// More differences than this and it is another word, not a slip.
const SLIPS_MAX: usize = 3;

/// The known name that `said` most likely meant. A name at the wrong level counts as well: `http_port` at the
/// top means `api.http_port`.
pub fn nearest<'a>(said: &str, known: impl Iterator<Item = &'a str> + Clone) -> Option<&'a str> {
    let slip = known.clone().map(|name| (slips(said, name), name)).min();
    match slip {
        Some((count, name)) if count <= SLIPS_MAX && count * 2 <= name.len().max(said.len()) => Some(name),
        _ => known.filter(|name| last_part(name) == last_part(said)).min(),
    }
}

fn last_part(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
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
    fn the_nearest_name_is_found_at_any_level() {
        let known = ["listen", "api.http_port", "scheduler.max_queue_size"];
        let near = |said: &str| nearest(said, known.iter().copied());
        assert_eq!(near("listen_"), Some("listen"));
        assert_eq!(near("scheduler.max_queue_sise"), Some("scheduler.max_queue_size"));
        assert_eq!(near("http_port"), Some("api.http_port"));
        assert_eq!(near("favourite_colour"), None);
    }

    #[test]
    fn slips_are_counted() {
        assert_eq!(slips("kitten", "sitting"), 3);
        assert_eq!(slips("", "abc"), 3);
        assert_eq!(slips("same", "same"), 0);
    }
}

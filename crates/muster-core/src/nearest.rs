//! Spelling suggestions for messages: the known name nearest to an unknown one, by Levenshtein distance.

/// The largest edit distance that counts as a typing error. Beyond it the text is another name.
const SLIPS_MAX: usize = 3;

/// The known name that `typed` most likely means. A name at the wrong level matches, too: `http_port` at the top level
/// means `api.http_port`.
pub fn nearest<'a>(typed: &str, known: impl Iterator<Item = &'a str> + Clone) -> Option<&'a str> {
    let closest = known.clone().map(|name| (slips(typed, name), name)).min();
    match closest {
        Some((count, name)) if count <= SLIPS_MAX && count * 2 <= name.len().max(typed.len()) => Some(name),
        _ => known.filter(|name| last_part(name) == last_part(typed)).min(),
    }
}

fn last_part(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

/// The Levenshtein distance: characters to insert, remove or replace. Keeps one row of the table at a time.
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
        let near = |typed: &str| nearest(typed, known.iter().copied());
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

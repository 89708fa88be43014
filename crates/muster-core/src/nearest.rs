//! Spelling suggestions for messages: the known name nearest to an unknown one, by Levenshtein distance.

/// The largest edit distance (characters inserted, removed or replaced) that counts as a typing error. Beyond it the text is another name.
const EDIT_DISTANCE_MAX: usize = 3;

/// The known name that `typed` most likely means. A name at the wrong level matches, too: `http_port` at the top level
/// means `api.http_port`.
pub fn nearest<'a>(typed: &str, known: impl Iterator<Item = &'a str> + Clone) -> Option<&'a str> {
    let closest = known.clone().map(|name| (strsim::levenshtein(typed, name), name)).min();
    match closest {
        Some((distance, name)) if is_typing_error(distance, typed, name) => Some(name),
        _ => known.filter(|name| last_part(name) == last_part(typed)).min(),
    }
}

/// A short name must share at least half of its letters: `cpu` does not mean `job`.
fn is_typing_error(distance: usize, typed: &str, name: &str) -> bool {
    distance <= EDIT_DISTANCE_MAX && distance * 2 <= name.len().max(typed.len())
}

fn last_part(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
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
}

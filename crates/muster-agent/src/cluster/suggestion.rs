//! Hints for unknown keys and boxes in a cluster file: the nearest known name, or the list of all.

use muster_core::nearest::nearest;

/// The nearest known key, or all of them if none is near.
pub(super) fn unknown_key_hint(key: &str, known: &[&str]) -> String {
    match nearest(key, known.iter().copied()) {
        Some(name) => format!("did you mean `{name}`?"),
        None => format!("known keys are {}", quoted_list(known)),
    }
}

/// The nearest known box, if one is near, and all of them.
pub(super) fn unknown_box_hint(name: &str, known: &[&str]) -> String {
    let nearest = nearest(name, known.iter().copied()).map(|name| format!("did you mean `{name}`? "));
    format!("{}known boxes are {}", nearest.unwrap_or_default(), quoted_list(known))
}

fn quoted_list(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
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
}

//! Where a job was placed and why there, in words.

use muster_protocol::score::{Score, Term};

/// `gpu01, cheapest of 12 kinds of free space: waste +35, locality +60 (thousandths of a GPU)`. Nothing of a gang that
/// grew over more nodes: the score is that of its first place.
pub fn placed(nodes: &[String], score: &Score) -> Option<String> {
    let [node] = nodes else { return None };
    let among = match score.compared {
        0 | 1 => "the only kind of free space that would do".to_string(),
        compared => format!("cheapest of {compared} kinds of free space"),
    };
    Some(format!("{node}, {among}: {}", costs(&score.terms)))
}

fn costs(terms: &[Term]) -> String {
    if terms.is_empty() {
        return "it costs nothing".to_string();
    }
    let words: Vec<String> = terms.iter().map(|term| format!("{} {:+}", term.name, term.milli)).collect();
    format!("{} (thousandths of a GPU)", words.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_says_what_it_cost() {
        let term = |name: &str, milli| Term { name: name.to_string(), milli };
        let score = |terms, compared| Score { terms, compared };
        let nodes = ["gpu01".to_string()];
        let chosen = score(vec![term("waste", -35), term("locality", 60)], 12);
        let wanted =
            "gpu01, cheapest of 12 kinds of free space: waste -35, locality +60 (thousandths of a GPU)";
        assert_eq!(placed(&nodes, &chosen).as_deref(), Some(wanted));
        let only = "gpu01, the only kind of free space that would do: it costs nothing";
        assert_eq!(placed(&nodes, &score(Vec::new(), 1)).as_deref(), Some(only));
        assert_eq!(placed(&["gpu01", "gpu02"].map(String::from), &chosen), None);
    }
}

//! The placement of a job and its score, for people.

use muster_protocol::score::{Score, ScoreTerm};

/// `gpu01, lowest cost of 12 kinds of nodes: fragmentation +35, locality +60 (thousandths of a GPU)`. `None` for a gang on
/// several nodes: the score describes its first node only.
pub fn placement_summary(nodes: &[String], score: &Score) -> Option<String> {
    let [node] = nodes else { return None };
    let among = match score.compared {
        0 | 1 => "the only kind of node that fits".to_string(),
        compared => format!("lowest cost of {compared} kinds of nodes"),
    };
    Some(format!("{node}, {among}: {}", score_terms_text(&score.terms)))
}

fn score_terms_text(terms: &[ScoreTerm]) -> String {
    if terms.is_empty() {
        return "cost 0".to_string();
    }
    let words: Vec<String> = terms.iter().map(|term| format!("{} {:+}", term.name, term.milli)).collect();
    format!("{} (thousandths of a GPU)", words.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placement_summary_lists_its_score_terms() {
        let term = |name: &str, milli| ScoreTerm { name: name.to_string(), milli };
        let score = |terms, compared| Score { terms, compared };
        let nodes = ["gpu01".to_string()];
        let chosen = score(vec![term("fragmentation", -35), term("locality", 60)], 12);
        let wanted = "gpu01, lowest cost of 12 kinds of nodes: fragmentation -35, locality +60 (thousandths of a GPU)";
        assert_eq!(placement_summary(&nodes, &chosen).as_deref(), Some(wanted));
        let only = "gpu01, the only kind of node that fits: cost 0";
        assert_eq!(placement_summary(&nodes, &score(Vec::new(), 1)).as_deref(), Some(only));
        assert_eq!(placement_summary(&["gpu01", "gpu02"].map(String::from), &chosen), None);
    }
}

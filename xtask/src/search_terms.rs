//! The search test: a person who knows Slurm or Kubernetes greps for a term of the field and must land in the right
//! file.
//!
//! For each term at most three source files carry a spelling of it in their name or in the first line of their
//! documentation, and one of them is the file that implements the term. Two spellings are narrower than their word,
//! because the names of more files contain it: `savepoint.rs` (each database has a `savepoints.rs`) and `numa node` (the
//! files of `muster bench numa`).

use std::path::Path;

use anyhow::{Context, Result, bail};

/// Files that may carry one term.
const FILES_MAX: usize = 3;

/// A term, its spellings in file names and first lines, and the file that implements it.
struct SearchTerm {
    term: &'static str,
    spellings: &'static [&'static str],
    implemented_in: &'static str,
}

const fn term(term: &'static str, spellings: &'static [&'static str], implemented_in: &'static str) -> SearchTerm {
    SearchTerm { term, spellings, implemented_in }
}

const TERMS: &[SearchTerm] = &[
    term("backfill", &["backfill"], "crates/muster-core/src/planner/backfill.rs"),
    term("fragmentation", &["fragmentation"], "crates/muster-core/src/estimate/fragmentation.rs"),
    term(
        "runtime estimate",
        &["runtime_model", "runtime estimate"],
        "crates/muster-core/src/estimate/runtime_model.rs",
    ),
    term("victim selection", &["victim"], "crates/muster-core/src/planner/preempt/victims.rs"),
    term("eviction", &["eviction"], "crates/muster-core/src/planner/preempt.rs"),
    term(
        "multi-node gang placement",
        &["multi_node", "multi-node"],
        "crates/muster-core/src/planner/place/multi_node.rs",
    ),
    term(
        "multi-node gang preemption",
        &["multi_node", "multi-node"],
        "crates/muster-core/src/planner/preempt/multi_node.rs",
    ),
    term("leader epoch", &["epoch"], "crates/muster-store/src/leader_epoch.rs"),
    term("fencing", &["fencing"], "crates/muster-store/src/leader_epoch.rs"),
    term("GPU topology", &["topology"], "crates/muster-core/src/gpu/topology.rs"),
    term("NUMA node", &["numa node"], "crates/muster-core/src/gpu/topology.rs"),
    term("NVLink", &["nvlink"], "crates/muster-core/src/gpu/topology.rs"),
    term("fair share", &["fair_share", "fair share"], "crates/muster-core/src/planner/fair_share.rs"),
    term("DRF", &["drf"], "crates/muster-core/src/planner/fair_share.rs"),
    term("SRPT", &["srpt"], "crates/muster-core/src/planner/preempt/srpt.rs"),
    term("Gittins index", &["gittins"], "crates/muster-core/src/estimate/gittins.rs"),
    term("defragmentation", &["defragment"], "crates/muster-core/src/planner/preempt/defragment.rs"),
    term("elastic gang", &["elastic"], "crates/muster-core/src/planner/place/elastic.rs"),
    term("dry run", &["dry_run", "dry run"], "crates/muster-core/src/planner/explain/dry_run.rs"),
    term("start forecast", &["forecast"], "crates/muster-core/src/planner/forecast.rs"),
    term("forecast calibration", &["calibration"], "crates/muster-core/src/estimate/calibration.rs"),
    term("workload mix", &["workload_mix", "workload mix"], "crates/muster-core/src/estimate/workload_mix.rs"),
    term("remedies", &["remedies"], "crates/muster-core/src/planner/explain/remedies.rs"),
    term("decayed usage", &["decayed_usage", "decayed usage"], "crates/muster-core/src/accounting/decayed_usage.rs"),
    term(
        "preemption loss",
        &["preemption_loss", "preemption loss"],
        "crates/muster-core/src/accounting/preemption_loss.rs",
    ),
    term("MIG repartitioning", &["repartition"], "crates/muster-core/src/planner/repartition.rs"),
    term("reservation", &["reservation"], "crates/muster-core/src/planner/backfill/reservation.rs"),
    term("savepoint", &["savepoint.rs"], "crates/muster-store/src/savepoint.rs"),
    term("checkpoint acknowledgement", &["checkpoint"], "crates/muster-server/src/http/checkpoint.rs"),
    term("reconciler", &["reconciler"], "crates/muster-agent/src/reconciler.rs"),
];

/// Fail where a term is carried by too many files, or not by the file that implements it.
pub fn check(root: &Path) -> Result<()> {
    let mut headlines = Vec::new();
    for path in crate::rust_files(&root.join("crates"))? {
        let relative = path.strip_prefix(root)?.display().to_string().replace('\\', "/");
        if relative.contains("/src/") && !relative.ends_with("/tests.rs") && !relative.contains("/tests/") {
            let text = std::fs::read_to_string(&path).with_context(|| format!("reading {relative}"))?;
            let first = text.lines().next().filter(|line| line.starts_with("//!")).unwrap_or_default();
            headlines.push((relative, first.to_lowercase()));
        }
    }
    let problems: Vec<String> = TERMS.iter().filter_map(|term| term.problem(&headlines)).collect();
    if problems.is_empty() { Ok(()) } else { bail!("the search test fails\n{}", problems.join("\n")) }
}

impl SearchTerm {
    fn problem(&self, headlines: &[(String, String)]) -> Option<String> {
        let carries = |(path, first): &&(String, String)| {
            let name = path.rsplit('/').next().unwrap_or(path);
            self.spellings.iter().any(|spelling| name.contains(spelling) || first.contains(spelling))
        };
        let found: Vec<&str> = headlines.iter().filter(carries).map(|(path, _)| path.as_str()).collect();
        if !found.contains(&self.implemented_in) {
            return Some(format!("  {}: not found in {}; found in {found:?}", self.term, self.implemented_in));
        }
        (found.len() > FILES_MAX).then(|| format!("  {}: {} files carry it: {found:?}", self.term, found.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_term_is_found_in_its_file_and_in_few_others() {
        let backfill = &TERMS[0];
        let home = backfill.implemented_in.to_string();
        let file = |path: &str, first: &str| (path.to_string(), first.to_string());
        assert_eq!(backfill.problem(&[file(&home, "//! backfill")]), None);
        let missing = backfill.problem(&[file("crates/a/src/reserve.rs", "//! who passes whom")]);
        assert!(missing.is_some_and(|problem| problem.contains("not found")));
        let many: Vec<(String, String)> =
            (0..4).map(|n| file(&format!("crates/a/src/{n}.rs"), "//! backfill")).chain([file(&home, "")]).collect();
        assert!(backfill.problem(&many).is_some_and(|problem| problem.contains("5 files")));
    }

    #[test]
    fn there_are_at_least_twenty_terms() {
        assert!(TERMS.len() >= 20);
    }
}

//! Cycles among the modules inside a module, at every level below the layers of the crate's root.
//!
//! The nodes of a level are the modules that one module contains, each with everything inside it. A path from one of them to an
//! item of another is an arrow, also through a re-export, and a cycle of arrows is an error. Between a module and the modules
//! inside it arrows may point both ways: Rust declares the types that they share, private to them, in the file that contains
//! them, and the same file calls them. If two modules need each other's items, those items belong into a third module.

use std::collections::{BTreeMap, BTreeSet};

use super::imports::{Arrow, Import, is_inside};

/// Modules that import each other, with the first line of each import.
pub struct Cycle {
    /// The module that contains them.
    pub inside: String,
    pub arrows: Vec<(String, String, Import)>,
}

/// The arrows among the nodes of one level.
#[derive(Default)]
struct Level(BTreeMap<String, BTreeMap<String, Import>>);

/// Every cycle of a crate, level by level.
pub fn cycles(arrows: &[Arrow]) -> Vec<Cycle> {
    let mut levels: BTreeMap<String, Level> = BTreeMap::new();
    let is_between_siblings = |arrow: &&Arrow| !is_inside(&arrow.from, &arrow.to) && !is_inside(&arrow.to, &arrow.from);
    for Arrow { from, to, import } in arrows.iter().filter(is_between_siblings) {
        let inside = common_ancestor(from, to);
        let arrow = levels.entry(inside.to_string()).or_default().0.entry(node(from, inside)).or_default();
        arrow.entry(node(to, inside)).or_insert_with(|| import.clone());
    }
    let cycle = |(inside, level): (String, Level)| Cycle { inside, arrows: level.arrows_in_cycles() };
    levels.into_iter().map(cycle).filter(|cycle| !cycle.inside.is_empty() && !cycle.arrows.is_empty()).collect()
}

impl Level {
    fn arrows_in_cycles(&self) -> Vec<(String, String, Import)> {
        let arrows = self.0.iter().flat_map(|(from, all)| all.iter().map(move |(to, import)| (from, to, import)));
        let closing = arrows.filter(|(from, to, _)| self.reached_from(to).contains(from.as_str()));
        closing.map(|(from, to, import)| (from.clone(), to.clone(), import.clone())).collect()
    }

    fn reached_from(&self, node: &str) -> BTreeSet<&str> {
        let next = |node: &str| self.0.get(node).into_iter().flat_map(BTreeMap::keys).map(String::as_str);
        let mut reached = BTreeSet::new();
        let mut open: Vec<&str> = next(node).collect();
        while let Some(node) = open.pop() {
            if reached.insert(node) {
                open.extend(next(node));
            }
        }
        reached
    }
}

/// The innermost module that contains both.
fn common_ancestor<'a>(one: &'a str, other: &str) -> &'a str {
    let ancestors = one.match_indices("::").map(|(end, _)| &one[..end]);
    ancestors.filter(|ancestor| is_inside(other, ancestor)).last().unwrap_or_default()
}

/// The module directly inside `inside` that contains `module`, or is it.
fn node(module: &str, inside: &str) -> String {
    let rest = module[inside.len()..].trim_start_matches("::");
    rest.split("::").next().unwrap_or_default().to_string()
}

#[cfg(test)]
mod tests {
    use super::super::imports::Modules;
    use super::*;

    fn cycles_of(texts: &[(&str, &str)]) -> Vec<String> {
        let cycle = |cycle: Cycle| {
            let arrows: Vec<String> = cycle.arrows.iter().map(|(from, to, _)| format!("{from} -> {to}")).collect();
            format!("{}: {}", cycle.inside, arrows.join(", "))
        };
        cycles(&Modules::of_texts(texts).arrows()).into_iter().map(cycle).collect()
    }

    #[test]
    fn modules_inside_a_module_may_not_import_each_other() {
        let texts = [
            ("planner", "mod draft;\nmod order;"),
            ("planner::draft", "use crate::planner::order::QueueHead;"),
            ("planner::draft::space", ""),
            ("planner::order", "use super::draft::space::Space;"),
        ];
        assert_eq!(cycles_of(&texts), ["planner: draft -> order, order -> draft"]);
        assert!(cycles_of(&texts[..3]).is_empty());
    }

    #[test]
    fn a_cycle_of_three_is_found_at_every_level() {
        let texts = [
            ("a", "mod b;"),
            ("a::b", "mod one;"),
            ("a::b::one", "use super::two::Two;"),
            ("a::b::two", "use crate::a::b::three;"),
            ("a::b::three", "fn f() { super::one::f() }"),
        ];
        assert_eq!(cycles_of(&texts), ["a::b: one -> two, three -> one, two -> three"]);
    }

    #[test]
    fn a_module_and_those_inside_it_may_use_each_other() {
        let texts =
            [("config", "mod file;\nuse file::File;\npub struct Error;"), ("config::file", "use super::Error;")];
        assert!(cycles_of(&texts).is_empty());
    }
}

//! The module graph of every crate: which top-level module imports which. Modules that import each other in a circle cannot be
//! read, moved or tested one by one, so the check fails on a new cycle and names the imports that close it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// Modules that are part of a cycle today. The list only shrinks: a module that has left its cycle is taken off.
const KNOWN_CYCLES: &[(&str, &[&str])] = &[
    ("muster", &["args", "client", "commands", "follow", "jobs", "options", "policy_folder", "tail"]),
    (
        "muster-core",
        &[
            "budget",
            "capacity",
            "command",
            "event",
            "foresight",
            "guarantee",
            "haste",
            "job",
            "lasting",
            "ledger",
            "limits",
            "loss",
            "mix",
            "model_guarantee",
            "models",
            "node",
            "partition",
            "plan",
            "policy",
            "queue",
            "refusal",
            "runtimes",
            "share",
            "state",
            "tenant",
            "users",
            "verdict",
            "waste",
            "window",
            "wiring",
        ],
    ),
    (
        "muster-policy",
        &["attributes", "builtins", "bundle", "hooks", "limits", "load", "program", "samples", "testing"],
    ),
    ("muster-server", &["evaluations", "http", "metrics", "whatif"]),
    ("muster-store", &["deep", "postgres", "sqlite"]),
];

/// An import: the file and line that name the other module.
type Import = (PathBuf, usize);

/// The top-level modules of a crate, and for each the modules it imports.
struct Graph {
    modules: BTreeSet<String>,
    imports: BTreeMap<String, BTreeMap<String, Import>>,
}

/// Print the graph of every crate.
pub fn print(root: &Path) -> Result<()> {
    for (name, graph) in graphs(root)? {
        println!("{name}: {} modules, {} of them in cycles", graph.modules.len(), graph.in_cycles().len());
        for (module, imports) in &graph.imports {
            let imports: Vec<&str> = imports.keys().map(String::as_str).collect();
            println!("  {module} -> {}", imports.join(" "));
        }
    }
    Ok(())
}

/// Fail where a module is in a cycle that is not known, or in none although it is listed.
pub fn check(root: &Path) -> Result<()> {
    let mut problems = String::new();
    for (name, graph) in graphs(root)? {
        let known = KNOWN_CYCLES.iter().find(|(one, _)| *one == name).map_or(&[][..], |(_, modules)| modules);
        let known: BTreeSet<&str> = known.iter().copied().collect();
        let found = graph.in_cycles();
        for module in found.iter().filter(|module| !known.contains(module.as_str())) {
            writeln!(problems, "{name}: `{module}` is part of a cycle of modules, by")?;
            for (other, (file, line)) in graph.closing(module) {
                writeln!(problems, "  {}:{line}: imports `{other}`", file.display())?;
            }
        }
        for module in known.iter().filter(|module| !found.contains(**module)) {
            writeln!(
                problems,
                "{name}: `{module}` has left its cycle: take it off the list in xtask/src/modules.rs"
            )?;
        }
    }
    if problems.is_empty() { Ok(()) } else { bail!("{problems}") }
}

fn graphs(root: &Path) -> Result<BTreeMap<String, Graph>> {
    let mut graphs = BTreeMap::new();
    for entry in std::fs::read_dir(root.join("crates"))? {
        let folder = entry?.path();
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if let Some(graph) = Graph::of(&folder.join("src"))? {
            graphs.insert(name, graph);
        }
    }
    Ok(graphs)
}

impl Graph {
    fn of(source: &Path) -> Result<Option<Graph>> {
        let entry = ["lib.rs", "main.rs"].iter().map(|name| source.join(name)).find(|path| path.exists());
        let Some(entry) = entry else { return Ok(None) };
        let text = std::fs::read_to_string(&entry)?;
        let modules: BTreeSet<String> =
            text.lines().filter_map(declared_module).map(str::to_string).collect();
        let mut graph = Graph { modules, imports: BTreeMap::new() };
        let aliases = re_exports(&text);
        for file in crate::rust_files(source)? {
            graph.add_file(source, &file, &aliases)?;
        }
        Ok(Some(graph))
    }

    fn add_file(&mut self, source: &Path, file: &Path, aliases: &BTreeMap<String, String>) -> Result<()> {
        let relative = file.strip_prefix(source)?;
        let is_test = |part: &std::ffi::OsStr| part == "tests.rs" || part == "tests";
        let first = relative.iter().next().unwrap_or_default().to_string_lossy().into_owned();
        let module = first.trim_end_matches(".rs").to_string();
        if !self.modules.contains(&module) || relative.iter().any(is_test) {
            return Ok(());
        }
        let text = std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
        for (number, name) in names_after_crate(&text) {
            let other = aliases.get(&name).unwrap_or(&name);
            if *other != module && self.modules.contains(other) {
                let imports = self.imports.entry(module.clone()).or_default();
                imports.entry(other.clone()).or_insert_with(|| (file.to_path_buf(), number));
            }
        }
        Ok(())
    }

    fn reached_from(&self, module: &str) -> BTreeSet<&str> {
        let mut reached = BTreeSet::new();
        let mut open = vec![module];
        while let Some(module) = open.pop() {
            for other in self.imports.get(module).into_iter().flat_map(BTreeMap::keys) {
                if reached.insert(other.as_str()) {
                    open.push(other);
                }
            }
        }
        reached
    }

    /// Modules from which their own imports lead back to them.
    fn in_cycles(&self) -> BTreeSet<String> {
        let is_in_cycle = |module: &&String| self.reached_from(module).contains(module.as_str());
        self.modules.iter().filter(is_in_cycle).cloned().collect()
    }

    /// The imports of a module that lead back to it.
    fn closing<'a>(&'a self, module: &'a str) -> impl Iterator<Item = (&'a String, &'a Import)> {
        let imports = self.imports.get(module).into_iter().flatten();
        imports.filter(move |(other, _)| self.reached_from(other).contains(module))
    }
}

/// The `x` of `mod x;`, with any visibility.
fn declared_module(line: &str) -> Option<&str> {
    let line = line.trim();
    let rest = match line.strip_prefix("pub") {
        Some(rest) => rest.trim_start_matches(|c: char| c != ' ').trim_start(),
        None => line,
    };
    rest.strip_prefix("mod ")?.strip_suffix(';')
}

/// Names that the root of a crate offers, with the module each comes from: `pub use event::Event;`.
fn re_exports(text: &str) -> BTreeMap<String, String> {
    let mut names = BTreeMap::new();
    for line in text.replace('\n', " ").split(';') {
        let Some((_, path)) = line.split_once("pub use ") else { continue };
        let Some((module, rest)) = path.split_once("::") else { continue };
        for name in rest.trim_matches(['{', '}', ' ']).split(',') {
            let name = name.rsplit("::").next().unwrap_or(name).trim().to_string();
            names.insert(name, module.trim().to_string());
        }
    }
    names
}

/// The first name of every path that begins at the crate, with its line. Comments and tests do not count.
fn names_after_crate(text: &str) -> Vec<(usize, String)> {
    let mut names = Vec::new();
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    for (number, line) in (1..).zip(code.lines()) {
        let code = line.split("//").next().unwrap_or_default();
        for path in code.split("crate::").skip(1) {
            let grouped = path.strip_prefix('{').map(|group| group.split(", ").collect());
            let firsts: Vec<&str> = grouped.unwrap_or_else(|| vec![path]);
            let end =
                |name: &str| name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
            names.extend(firsts.into_iter().map(|name| (number, name[..end(name)].to_string())));
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(imports: &[(&str, &str)]) -> Graph {
        let modules = imports.iter().flat_map(|(from, to)| [from.to_string(), to.to_string()]).collect();
        let mut graph = Graph { modules, imports: BTreeMap::new() };
        for (from, to) in imports {
            let imports = graph.imports.entry(from.to_string()).or_default();
            imports.insert(to.to_string(), (PathBuf::from(from), 1));
        }
        graph
    }

    #[test]
    fn a_cycle_is_found_with_the_imports_that_close_it() {
        let graph = graph(&[("state", "event"), ("event", "plan"), ("plan", "state"), ("http", "state")]);
        assert_eq!(graph.in_cycles(), ["event", "plan", "state"].map(str::to_string).into());
        let closing: Vec<&String> = graph.closing("event").map(|(other, _)| other).collect();
        assert_eq!(closing, ["plan"]);
    }

    #[test]
    fn imports_are_read_from_the_code_alone() {
        let text = "use crate::ids::JobId; // not crate::plan\nlet x = crate::{node::Gpu, job};\n#[cfg(test)]\nmod tests {\nuse crate::state;";
        let names: Vec<String> = names_after_crate(text).into_iter().map(|(_, name)| name).collect();
        assert_eq!(names, ["ids", "node", "job"]);
        let declared = ["pub mod a;", "mod b;", "pub(crate) mod c;", "use d;"].map(declared_module);
        assert_eq!(declared, [Some("a"), Some("b"), Some("c"), None]);
        let names = re_exports("pub use event::Event;\npub use ids::{GpuId,\n    JobId};");
        assert_eq!((names["Event"].as_str(), names["JobId"].as_str()), ("event", "ids"));
    }
}

//! Sizes, for information: the longest files and functions, percentiles, and type names that a crate defines more
//! than once. Generated code does not count.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Result;

/// Names that several types of a crate may share: clap's argument structs and subcommand enums.
const EXEMPT: [&str; 2] = ["Args", "Verb"];

pub fn print(crates: &Path) -> Result<()> {
    let mut files = Vec::new();
    let mut functions = Vec::new();
    let mut types: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    let written_by_hand = |path: &PathBuf| !path.components().any(|folder| folder.as_os_str() == "generated");
    for path in crate::rust_files(crates)?.into_iter().filter(written_by_hand) {
        let text = std::fs::read_to_string(&path)?;
        let lines: Vec<&str> = text.lines().collect();
        let relative = path.strip_prefix(crates)?.display().to_string();
        files.push((lines.len(), relative.clone()));
        functions.extend(function_sizes(&lines).map(|(size, name)| (size, format!("{relative} {name}"))));
        let krate = relative.split('/').next().unwrap_or_default();
        for name in defined_types(&lines).filter(|_| relative.contains("/src/")) {
            types.entry((krate.to_string(), name.to_string())).or_default().push(relative.clone());
        }
    }
    for (title, mut list) in [("files", files), ("functions", functions)] {
        list.sort_by(|a, b| b.cmp(a));
        let percentile = |percent: usize| list.get(list.len() * (100 - percent) / 100).map_or(0, |(size, _)| *size);
        println!("{title}: median {}, p75 {}, p95 {} lines; longest", percentile(50), percentile(75), percentile(95));
        list.iter().take(15).for_each(|(size, name)| println!("{size:>6}  {name}"));
    }
    let mut twice: Vec<_> = types.into_iter().filter(|(_, files)| files.len() > 1).collect();
    twice.retain(|((_, name), _)| !EXEMPT.contains(&name.as_str()));
    twice.sort_by_key(|(_, files)| std::cmp::Reverse(files.len()));
    println!("type names defined more than once in a crate: {}", twice.len());
    twice.iter().for_each(|((krate, name), files)| println!("  {krate} {name}: {}", files.join(" ")));
    Ok(())
}

/// Lines of each function with a body; declarations of traits have none.
fn function_sizes<'a>(lines: &'a [&'a str]) -> impl Iterator<Item = (usize, String)> + 'a {
    lines.iter().enumerate().filter_map(|(start, line)| {
        let name = line.split_once("fn ")?.1.split(['(', '<']).next()?;
        let signature_end = start + lines[start..].iter().position(|line| line.ends_with(['{', ';', '}']))?;
        match lines[signature_end].chars().last()? {
            '}' => Some((1, format!("{}: {name}", start + 1))),
            '{' => {
                let indent = line.len() - line.trim_start().len();
                let close = format!("{}}}", " ".repeat(indent));
                let end = signature_end + lines[signature_end..].iter().position(|line| *line == close)?;
                Some((end - start + 1, format!("{}: {name}", start + 1)))
            }
            _ => None,
        }
    })
}

/// Structs, enums, traits and type aliases outside of test modules. Associated types are indented, and do not count.
fn defined_types<'a>(lines: &'a [&'a str]) -> impl Iterator<Item = &'a str> + 'a {
    let end = lines.iter().position(|line| *line == "mod tests {").unwrap_or(lines.len());
    lines[..end].iter().filter_map(|line| {
        let rest = match line.strip_prefix("pub") {
            Some(rest) => rest.trim_start_matches(|c: char| c != ' ').trim_start(),
            None => line,
        };
        let keywords = ["struct ", "enum ", "trait ", "type "];
        let name = keywords.iter().find_map(|keyword| rest.strip_prefix(keyword))?;
        name.split(|c: char| !c.is_alphanumeric() && c != '_').next()
    })
}

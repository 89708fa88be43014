//! The modules of a crate, read from its files, and the arrow from each module to every other module that its code names.
//!
//! A path is resolved as the compiler does it: from the crate, from the module itself, from a parent or from a child module, and
//! through `use` declarations to the module that declares the item: an item that is imported through a re-export is an item
//! of the module that declares it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// A chain of `use` declarations longer than this refers to itself.
const RE_EXPORTS_MAX: u32 = 8;

/// A module names an item of another one. Modules are written `planner::draft`; the root of the crate is empty.
pub struct Arrow {
    pub from: String,
    pub to: String,
    pub import: Import,
}

/// The line of code that contains a path.
#[derive(Clone)]
pub struct Import {
    pub file: PathBuf,
    pub line: usize,
    pub code: String,
}

/// The modules of one crate, each with the paths in its file.
pub struct Modules(BTreeMap<String, Module>);

struct Module {
    file: PathBuf,
    text: String,
    paths: Vec<CodePath>,
}

/// A path in the code: `crate::ids::JobId`.
struct CodePath {
    offset: usize,
    segments: Vec<String>,
    /// In a `use` declaration: the name that the module has for the item.
    used_as: Option<String>,
}

impl Modules {
    /// Read a crate from its entry file and the folder around it. Test modules are left out.
    pub fn read(source: &Path, entry: &Path) -> Result<Modules> {
        let mut modules = BTreeMap::from([(String::new(), Module::read(entry)?)]);
        for file in crate::rust_files(source)? {
            let relative = file.strip_prefix(source)?.with_extension("");
            let parts: Vec<_> = relative.iter().map(|part| part.to_string_lossy()).collect();
            if file != entry && !parts.iter().any(|part| part == "tests") {
                modules.insert(parts.join("::"), Module::read(&file)?);
            }
        }
        Ok(Modules(modules))
    }

    #[cfg(test)]
    pub fn of_texts(texts: &[(&str, &str)]) -> Modules {
        let module = |text: &str| Module { file: PathBuf::new(), text: text.to_string(), paths: paths(text) };
        Modules(texts.iter().map(|(name, text)| (name.to_string(), module(text))).collect())
    }

    /// Every arrow between two modules of the crate.
    pub fn arrows(&self) -> Vec<Arrow> {
        let mut arrows = Vec::new();
        for (from, module) in &self.0 {
            for path in &module.paths {
                let target = self.resolve(from, &path.segments, RE_EXPORTS_MAX).filter(|to| to != from);
                if let Some(to) = target {
                    arrows.push(Arrow { from: from.clone(), to, import: module.line_of(path.offset) });
                }
            }
        }
        arrows
    }

    /// The module that declares the item of a path. `None` if the path leaves the crate.
    fn resolve(&self, from: &str, segments: &[String], re_exports_max: u32) -> Option<String> {
        let (first, rest) = segments.split_first()?;
        let mut module = match first.as_str() {
            "crate" => String::new(),
            "self" => from.to_string(),
            "super" => parent(from).to_string(),
            name => self.child(from, name)?,
        };
        for (index, name) in rest.iter().enumerate() {
            if name == "super" {
                module = parent(&module).to_string();
            } else if let Some(child) = self.child(&module, name) {
                module = child;
            } else {
                let used = self.used_as(&module, name).filter(|_| re_exports_max > 0);
                let Some(used) = used else { return Some(module) };
                let through: Vec<String> = used.iter().chain(&rest[index + 1..]).cloned().collect();
                // The name comes from another crate if the path of the `use` does.
                return self.resolve(&module, &through, re_exports_max - 1);
            }
        }
        Some(module)
    }

    fn child(&self, module: &str, name: &str) -> Option<String> {
        let child = if module.is_empty() { name.to_string() } else { format!("{module}::{name}") };
        self.0.contains_key(&child).then_some(child)
    }

    fn used_as(&self, module: &str, name: &str) -> Option<&[String]> {
        let is_named = |path: &&CodePath| path.used_as.as_deref() == Some(name);
        Some(&self.0.get(module)?.paths.iter().find(is_named)?.segments)
    }
}

impl Module {
    fn read(file: &Path) -> Result<Module> {
        let text = std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
        Ok(Module { file: file.to_path_buf(), paths: paths(&text), text })
    }

    fn line_of(&self, offset: usize) -> Import {
        let line = self.text[..offset].matches('\n').count();
        let code = self.text.lines().nth(line).unwrap_or_default().trim().to_string();
        Import { file: self.file.clone(), line: line + 1, code }
    }
}

/// True if `module` is below `ancestor` in the tree of modules.
pub fn is_inside(module: &str, ancestor: &str) -> bool {
    ancestor.is_empty() || module.strip_prefix(ancestor).is_some_and(|rest| rest.starts_with("::"))
}

fn parent(module: &str) -> &str {
    module.rsplit_once("::").map_or("", |(parent, _)| parent)
}

/// The paths of a file. Comments and the tests at the end of the file do not count.
fn paths(text: &str) -> Vec<CodePath> {
    let mut reader = Reader { tokens: tokens(text), next: 0, paths: Vec::new() };
    reader.read_all();
    reader.paths
}

/// A name, `::`, or one other character.
struct Token<'a> {
    offset: usize,
    text: &'a str,
}

fn tokens(text: &str) -> Vec<Token<'_>> {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let mut tokens = Vec::new();
    let mut start = 0;
    for line in code.split_inclusive('\n') {
        let mut offset = start;
        let mut rest = line.split("//").next().unwrap_or_default();
        while !rest.is_empty() {
            let name = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            let other = if rest.starts_with("::") { 2 } else { rest.chars().next().map_or(1, char::len_utf8) };
            let (token, after) = rest.split_at(if name > 0 { name } else { other });
            if !token.trim().is_empty() {
                tokens.push(Token { offset, text: token });
            }
            offset += token.len();
            rest = after;
        }
        start += line.len();
    }
    tokens
}

#[derive(Clone, Copy, PartialEq)]
enum PathIn {
    Use,
    Code,
}

/// Reads the paths of a file from front to back.
struct Reader<'a> {
    tokens: Vec<Token<'a>>,
    next: usize,
    paths: Vec<CodePath>,
}

impl<'a> Reader<'a> {
    fn read_all(&mut self) {
        while self.next < self.tokens.len() {
            if self.takes("use") {
                self.tree(&mut Vec::new(), PathIn::Use);
            } else if self.is_name(self.next) && self.token(self.next + 1) == "::" {
                self.tree(&mut Vec::new(), PathIn::Code);
            } else {
                self.next += 1;
            }
        }
    }

    /// One path, or a group of paths in braces, that continues `before`.
    fn tree(&mut self, before: &mut Vec<String>, place: PathIn) {
        if self.takes("{") {
            while self.next < self.tokens.len() && !self.takes("}") {
                let at = self.next;
                self.tree(before, place);
                // Text that is no path, in a string for example, is skipped.
                self.next += usize::from(!self.takes(",") && self.next == at);
            }
            return;
        }
        let at = self.next;
        let length = before.len();
        // `a::{self}` is the path of the module `a`; the items behind `a::*` are not known here.
        if self.is_name(at) && (before.is_empty() || self.token(at) != "self") {
            before.push(self.token(at).to_string());
        }
        self.next += usize::from(self.is_name(at) || self.token(at) == "*");
        if self.takes("::") {
            self.tree(before, place);
        } else {
            self.push(at, before, place);
        }
        before.truncate(length);
    }

    fn push(&mut self, at: usize, segments: &[String], place: PathIn) {
        let mut name = segments.last().map_or("", String::as_str);
        if place == PathIn::Use && self.takes("as") {
            name = self.token(self.next);
            self.next += 1;
        }
        let used_as = (place == PathIn::Use).then(|| name.to_string());
        let offset = self.tokens.get(at).map_or(0, |token| token.offset);
        self.paths.push(CodePath { offset, segments: segments.to_vec(), used_as });
    }

    fn token(&self, at: usize) -> &'a str {
        self.tokens.get(at).map_or("", |token| token.text)
    }

    fn is_name(&self, at: usize) -> bool {
        self.token(at).starts_with(|c: char| c.is_alphabetic() || c == '_')
    }

    fn takes(&mut self, token: &str) -> bool {
        let is_next = self.token(self.next) == token;
        self.next += usize::from(is_next);
        is_next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrows(texts: &[(&str, &str)]) -> Vec<(String, String)> {
        let arrows = Modules::of_texts(texts).arrows();
        arrows.into_iter().map(|arrow| (arrow.from, arrow.to)).collect()
    }

    fn arrow(from: &str, to: &str) -> (String, String) {
        (from.to_string(), to.to_string())
    }

    #[test]
    fn paths_are_read_from_groups_on_several_lines_and_from_expressions() {
        let text = "use crate::{\n    ids::JobId, // not crate::plan\n    node::{self, Gpu as Device},\n};\n\
                    fn f() { crate::time::now() }\n#[cfg(test)]\nmod tests {\nuse crate::state::State;\n}\n";
        let found: Vec<String> = paths(text).iter().map(|path| path.segments.join("::")).collect();
        assert_eq!(found, ["crate::ids::JobId", "crate::node", "crate::node::Gpu", "crate::time::now"]);
    }

    #[test]
    fn an_arrow_ends_at_the_module_that_declares_the_item() {
        let texts = [
            ("", "mod plan;\npub use plan::draft::Draft;"),
            ("order", "use crate::Draft;\nuse super::plan::Space;"),
            ("plan", "pub use draft::space::Space;\nfn f() { order::x() }"),
            ("plan::draft", "pub struct Draft;"),
            ("plan::draft::space", "use std::fmt::Debug;"),
        ];
        let found = arrows(&texts);
        let expected = [
            arrow("", "plan::draft"),
            arrow("order", "plan::draft"),
            arrow("order", "plan::draft::space"),
            arrow("plan", "plan::draft::space"),
        ];
        assert_eq!(found, expected);
    }
}
